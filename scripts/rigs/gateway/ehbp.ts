// Both halves of EHBP without a gateway: receipt keys, a server's context of a sealed request, framed bodies. Effects:
// randomness.

import { AEAD_AES_256_GCM, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } from '@panva/hpke-noble'
import { CipherSuite } from 'hpke'
import type { NewAesGcm } from '../../../src/attest/ehbp/aes-gcm.ts'
import { frameLength } from '../../../src/attest/ehbp/frames.ts'
import { openContext, type ServerContext, suiteOfEncapsulated } from '../../../src/attest/ehbp/server.ts'
import type { PublicKeys } from '../../../src/attest/receipt/public-keys.ts'
import { makeReceiptKeys, type ReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { nativeAesGcm } from '../../../src/linux/native-aes-gcm.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'

/** Made once: these tests change nothing about them. */
export const ehbpKeys: ReceiptKeys = makeReceiptKeys(systemRandom, nativeKeys)

type ServerOptions = {
  readonly keys?: ReceiptKeys
  readonly newAesGcm?: NewAesGcm
  readonly pause?: () => Promise<void>
}

/** The server's context of a sealed request's header. */
export async function serverContext(encapsulatedHex: string, options: ServerOptions = {}): Promise<ServerContext> {
  const encapsulated = fromHex(encapsulatedHex)
  const suite = encapsulated === null ? null : suiteOfEncapsulated(encapsulated)
  if (encapsulated === null || suite === null) throw new Error('not an encapsulated key')
  const { keys = ehbpKeys, newAesGcm = nativeAesGcm, pause = async () => {} } = options
  return await openContext(suite, encapsulated, { decapsulate: keys.decapsulate, newAesGcm, pause })
}

/** The frames of a sealed body, as they are: with their lengths. */
export function framesOf(sealed: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = []
  for (let at = 0; at < sealed.length; ) {
    const bytes = 4 + new DataView(sealed.buffer, sealed.byteOffset + at).getUint32(0)
    frames.push(sealed.slice(at, at + bytes))
    at += bytes
  }
  return frames
}

/** Frames of one X25519 context for a server, made by another HPKE, as a client that streams its request sends them. */
export async function sealedParts(
  parts: readonly Uint8Array[],
  { x25519 }: Pick<PublicKeys, 'x25519'> = ehbpKeys.publicKeys,
) {
  const suite = new CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM)
  const publicKey = await suite.DeserializePublicKey(x25519)
  const { ctx, encapsulatedSecret } = await suite.SetupSender(publicKey, { info: utf8('ehbp request') })
  const frames: Uint8Array[] = []
  for (const part of parts) frames.push(frameOf(await ctx.Seal(part)))
  return { frames, headers: { 'ehbp-encapsulated-key': toHex(encapsulatedSecret) } }
}

export function frameOf(ciphertext: Uint8Array): Uint8Array {
  return concat(frameLength(ciphertext), ciphertext)
}

/** Splits bytes after these counts; the rest is the last part. */
export function splitBytes(bytes: Uint8Array, counts: readonly number[]): Uint8Array[] {
  const parts: Uint8Array[] = []
  let at = 0
  for (const count of counts) {
    parts.push(bytes.slice(at, at + count))
    at = Math.min(bytes.length, at + count)
  }
  return [...parts, bytes.slice(at)]
}

/** With one bit of this byte changed. */
export function withFlip(bytes: Uint8Array, at: number): Uint8Array {
  return bytes.map((byte, i) => (i === at ? byte ^ 1 : byte))
}
