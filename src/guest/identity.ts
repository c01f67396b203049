// The keys of this boot. Effects: reads (or makes) the SSH host key below /run.
// The X25519 key is in the memory of this process alone: a restarted agent has another one.

import { createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from 'node:crypto'
import * as fs from 'node:fs'
import { fromBase64 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, systemErrorCode } from '../base/fault.ts'
import type { SealedClaim } from '../contract/vm/agent.ts'
import { run } from '../linux/command.ts'
import { readTextOrNull } from '../linux/files.ts'
import type { GuestPaths } from './paths.ts'
import { sshPublicKeyOf } from './ssh-host-key.codec.ts'

export type Identity = {
  readonly bootId: string
  /** X25519 public key, standard base64. */
  readonly boxKey: string
  /** `ssh-ed25519 AAAA…`. */
  readonly sshHostKey: string
  /** The plaintext, or null if the box was sealed to another key or changed on the way. */
  readonly openBox: (sealed: SealedClaim) => Promise<Uint8Array | null>
  /** Runs the code of a claim once, so that it is loaded and compiled. */
  readonly warmUp: () => Promise<void>
}

type IdentityDeps = {
  readonly paths: Pick<GuestPaths, 'sshHostKey' | 'bootId'>
  readonly clock: Clock
  /** Wait for init's SSH host key before the agent makes it. */
  readonly hostKeyWaitMs: number
}

/** Faults: internal (no boot id, unreadable key), host.command_failed, host.command_timeout (ssh-keygen). */
export async function createIdentity({ paths, clock, hostKeyWaitMs }: IdentityDeps): Promise<Identity> {
  const box = createBoxKey()
  return { bootId: bootIdIn(paths), ...box, sshHostKey: await hostKey({ paths, clock, hostKeyWaitMs }) }
}

/** Fault internal when the kernel gives none. */
export function bootIdIn(paths: Pick<GuestPaths, 'bootId'>): string {
  const bootId = readTextOrNull(paths.bootId)?.trim()
  if (bootId === undefined) throw new Fault('internal', `read ${paths.bootId}: not there`)
  return bootId
}

/** A new X25519 key pair, native in node:crypto: tweetnacl takes 0.15 s per operation under software emulation. */
export function createBoxKey(): Pick<Identity, 'boxKey' | 'openBox' | 'warmUp'> {
  const { privateKey } = generateKeyPairSync('x25519')
  const { x } = privateKey.export({ format: 'jwk' })
  const open = async (box: { ephemeralKey: Uint8Array; nonce: Uint8Array; ciphertext: Uint8Array }) => {
    const secret = sharedSecret(privateKey, box.ephemeralKey)
    if (secret === null) return null
    const { default: nacl } = await import('tweetnacl')
    // NaCl's crypto_box_beforenm: HSalsa20 of the shared secret, with zeros for the nonce.
    const key = new Uint8Array(nacl.secretbox.keyLength)
    const { crypto_core_hsalsa20: hsalsa20 } = (nacl as unknown as LowLevel).lowlevel
    hsalsa20(key, new Uint8Array(16), secret, new TextEncoder().encode('expand 32-byte k'))
    return nacl.secretbox.open(box.ciphertext, box.nonce, key)
  }
  return {
    boxKey: Uint8Array.fromBase64(x ?? '', { alphabet: 'base64url' }).toBase64(),
    openBox: async sealed => {
      const ephemeralKey = fromBase64(sealed.ephemeralKey)
      const nonce = fromBase64(sealed.nonce)
      const ciphertext = fromBase64(sealed.box)
      if (ephemeralKey?.length !== 32 || nonce?.length !== 24 || ciphertext === null) return null
      return open({ ephemeralKey, nonce, ciphertext })
    },
    warmUp: async () => {
      const other = generateKeyPairSync('x25519').publicKey.export({ format: 'jwk' })
      const ephemeralKey = Uint8Array.fromBase64(other.x ?? '', { alphabet: 'base64url' })
      await open({ ephemeralKey, nonce: new Uint8Array(24), ciphertext: new Uint8Array(2_048) })
    },
  }
}

/** Exported by tweetnacl, but missing in its types. */
type LowLevel = {
  readonly lowlevel: {
    readonly crypto_core_hsalsa20: (out: Uint8Array, input: Uint8Array, key: Uint8Array, constant: Uint8Array) => void
  }
}

/** RFC 7748 section 6.1; null for a point of small order, with which anyone could compute the secret. */
function sharedSecret(privateKey: KeyObject, publicKey: Uint8Array): Uint8Array | null {
  try {
    const x = publicKey.toBase64({ alphabet: 'base64url', omitPadding: true })
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x }, format: 'jwk' })
    return Uint8Array.from(diffieHellman({ privateKey, publicKey: key }))
  } catch {
    return null
  }
}

const pollMs = 20
const keygenBounds = { timeoutMs: 30_000, outputBytesMax: 65_536 } as const

async function hostKey({ paths, clock, hostKeyWaitMs }: IdentityDeps): Promise<string> {
  const untilMs = clock.monotonicMs() + hostKeyWaitMs
  while (readTextOrNull(paths.sshHostKey) === null && clock.monotonicMs() < untilMs) await clock.sleep(pollMs)
  if (readTextOrNull(paths.sshHostKey) === null) await makeHostKey(paths.sshHostKey)
  const publicKey = sshPublicKeyOf(readTextOrNull(paths.sshHostKey) ?? '')
  if (publicKey === null) throw new Fault('internal', `read ${paths.sshHostKey}: not an ed25519 private key`)
  return publicKey
}

async function makeHostKey(path: string): Promise<void> {
  const beside = `${path}.agent`
  for (const leftover of [beside, `${beside}.pub`]) fs.rmSync(leftover, { force: true })
  const argv = ['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', beside]
  await run(argv, keygenBounds)
  fs.chmodSync(beside, 0o600)
  fs.rmSync(`${beside}.pub`)
  try {
    // link(2) does not replace: a late init's key stays the only one.
    fs.linkSync(beside, path)
  } catch (error) {
    if (systemErrorCode(error) !== 'EEXIST') throw error
  } finally {
    fs.rmSync(beside)
  }
}
