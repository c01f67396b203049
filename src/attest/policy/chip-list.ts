// A list of an operator's chips, which a policy may name instead of chip_ids. The operator key signs it (ECDSA P-384
// with SHA-384), so that a genuine chip of another owner is not accepted. Pure, but WebCrypto draws randomness for
// signatures; reading throws Malformed.
//
// The same key signs ID blocks, which are 96 bytes; a signed list is longer and begins with its own context.

import { concat, equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { parsedJson } from '../encoding/json.ts'
import { sha384, webBytes } from '../hash.ts'
import { publicIdKey } from '../launch/id-block-sign.ts'
import { coordinateBytes, writeIdKey } from '../launch/id-key.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { chipId, hex, listOf, object, oneOf, text } from './kinds.ts'

export type ChipList = {
  /** 64 bytes each, as CHIP_ID in reports. */
  readonly chipIds: readonly Uint8Array[]
  readonly issuedAtMs: number
  /** SHA-384 of the ID key that signed it: ID_KEY_DIGEST of the operator's VMs. */
  readonly signer: Uint8Array
}

const format = 'strongroom/chip-list/v1'
/** No share: a file of one relying party. */
export const chipListBytesMax = 512 * 1024

const document = object({
  format: oneOf([format]),
  issuedAt: text('[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z', 'a time in UTC like 2026-06-01T00:00:00Z'),
  chipIds: listOf(chipId(64)),
  /** Uncompressed point. Trusted only by its digest. */
  publicKey: hex(1 + 2 * coordinateBytes),
  /** r and s. */
  signature: hex(2 * coordinateBytes),
})

const curve = { name: 'ECDSA', namedCurve: 'P-384' } as const
const algorithm = { name: 'ECDSA', hash: 'SHA-384' } as const

/** Returns the file, with the chips in ascending order. `issuedAtMs`: milliseconds since 1970, kept to the second. */
export async function signChipList(
  { chipIds, issuedAtMs }: Pick<ChipList, 'chipIds' | 'issuedAtMs'>,
  keys: CryptoKeyPair,
): Promise<string> {
  const issuedAt = new Date(issuedAtMs).toISOString().replace(/\.[0-9]{3}Z$/, 'Z')
  const fields = { format, issuedAt, chipIds: [...new Set(chipIds.map(toHex))].sort() }
  const { x, y } = await publicIdKey(keys.publicKey)
  const signature = await crypto.subtle.sign(algorithm, keys.privateKey, messageOf(fields))
  const publicKey = toHex(concat(Uint8Array.of(4), x, y))
  return `${JSON.stringify({ ...fields, publicKey, signature: toHex(new Uint8Array(signature)) }, null, 2)}\n`
}

/** Returns the list if one of these operator keys signed it, each given as SHA-384 of the ID key. Throws Malformed. */
export async function readChipList(bytes: Uint8Array, signers: readonly Uint8Array[]): Promise<ChipList> {
  wellFormed(bytes.length <= chipListBytesMax, `chip list: more than ${chipListBytesMax} bytes`)
  const { issuedAt, chipIds, publicKey, signature } = document.parse(parsedJson('chip list', bytes), 'chip list')
  const issuedAtMs = Date.parse(issuedAt)
  wellFormed(!Number.isNaN(issuedAtMs), `chip list.issuedAt: there is no time ${issuedAt}`)
  const [x, y] = [publicKey.slice(1, 1 + coordinateBytes), publicKey.slice(1 + coordinateBytes)]
  const signer = sha384(writeIdKey({ x, y }))
  // The message leaves the found digest out: it is the file's own, and a reader might paste it into the policy.
  const isExpected = signers.some(expected => equalConstantTime(expected, signer))
  wellFormed(isExpected, 'chip list: signed by another operator key than the policy names in idKeyDigest')
  const message = messageOf({ format, issuedAt, chipIds: chipIds.map(toHex) })
  const isSigned = await crypto.subtle.verify(algorithm, await imported(publicKey), webBytes(signature), message)
  wellFormed(isSigned, 'chip list: the signature does not fit its content: the file was changed')
  return { chipIds, issuedAtMs, signer }
}

async function imported(point: Uint8Array): Promise<CryptoKey> {
  try {
    return await crypto.subtle.importKey('raw', webBytes(point), curve, false, ['verify'])
  } catch {
    throw new Malformed('chip list.publicKey: not a point of P-384')
  }
}

function messageOf(fields: {
  readonly format: string
  readonly issuedAt: string
  readonly chipIds: readonly string[]
}): Uint8Array<ArrayBuffer> {
  return webBytes(utf8(`${format}\n${canonicalJson(fields)}`))
}
