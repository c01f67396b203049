// The secrets that hosts of one fleet may share: the operator key, the control key, and the authority for clients.
// Effects: reads and writes the state directory; randomness.
//
// A file that contains the private operator key was made by a holder of that key, so the digest of its public half,
// which the receiver pins, authenticates the rest of the file.

import { createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto'
import { existsSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { armor, Decrypter, Encrypter } from 'age-encryption'
import { publicIdKey } from '../../attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../attest/launch/id-block-verify.ts'
import { equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { Closed, Sha256 } from '../../contract/forms.ts'
import { ensureDir, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import { readP384Key } from '../../linux/keys/p384-key.ts'

export const sharedSecretsFormat = 'strongroom/fleet-shared-secrets/v1'
/** Size limit of the sealed file. */
export const sealedBytesMax = 262_144

const Pem = Type.String({ minLength: 1, maxLength: 16_384 })

/** Shared secrets, named like their files in the state directory. */
export const SharedSecrets = Closed({
  format: Type.Literal(sharedSecretsFormat),
  /** `nonceOf` of the request. */
  request_sha256: Sha256,
  /** Name of the host that sealed them. */
  from: Type.String({ pattern: '^[a-z0-9][a-z0-9-]{0,62}$' }),
  files: Closed({ 'operator-key.pem': Pem, 'control.key': Pem, 'ca/ca.key': Pem, 'ca/ca.pem': Pem }),
})
export type SharedSecrets = Static<typeof SharedSecrets>
type Name = keyof SharedSecrets['files']

/** In the order in which they are installed: a key before what depends on it. */
const NAMES = ['operator-key.pem', 'control.key', 'ca/ca.key', 'ca/ca.pem'] as const satisfies readonly Name[]

/**
 * The file that depends on each key, removed while the key is replaced. It is recreated here or at the daemon's next
 * start.
 */
const BELONGS: { readonly [name in Name]?: string } = {
  'operator-key.pem': 'operator-key.pub.pem',
  'ca/ca.key': 'ca/ca.pem',
}

/** Reads the secrets. Fault not_found if this host has not created all of them yet. */
export function readSecrets(stateDir: string): SharedSecrets['files'] {
  const read = (name: Name) => {
    const text = readTextOrNull(join(stateDir, name))
    if (text !== null) return text
    throw new Fault('not_found', `there is no ${join(stateDir, name)} to share: start the service once`)
  }
  return {
    'operator-key.pem': read('operator-key.pem'),
    'control.key': read('control.key'),
    'ca/ca.key': read('ca/ca.key'),
    'ca/ca.pem': read('ca/ca.pem'),
  }
}

/** Seals the secrets. Returns age's ASCII armor. */
export async function sealSecrets(secrets: SharedSecrets, recipient: string): Promise<string> {
  const encrypter = new Encrypter()
  encrypter.addRecipient(recipient)
  return armor.encode(await encrypter.encrypt(canonicalJson(secrets)))
}

/**
 * Opens the secrets. Fault invalid_request if they were sealed to another host or for another request, changed, or are
 * malformed.
 */
export async function openSecrets(text: string, identity: string): Promise<SharedSecrets> {
  let plain: Uint8Array
  try {
    const decrypter = new Decrypter()
    decrypter.addIdentity(identity)
    plain = await decrypter.decrypt(armor.decode(text))
  } catch (error) {
    const hint = 'it opens on the host whose newest request it answers, and nowhere else'
    throw new Fault('invalid_request', `the sealed file does not open: ${messageOf(error)}; ${hint}`)
  }
  return checkedJson(SharedSecrets, plain, { what: 'the sealed file', code: 'invalid_request' })
}

/** Returns SHA-384 of the operator key. Fault invalid_request if the files do not match, or are not valid keys. */
export async function checkSecrets({ files }: SharedSecrets, nowMs: number): Promise<Uint8Array> {
  const refusing = async <T>(name: Name, work: () => T | Promise<T>): Promise<T> => {
    try {
      return await work()
    } catch (error) {
      throw new Fault('invalid_request', `the sealed file: ${name}: ${messageOf(error)}`)
    }
  }
  await refusing('control.key', () => {
    const { asymmetricKeyType: kind } = createPrivateKey(files['control.key'])
    if (kind !== 'ed25519') throw new Error(`a key of ${kind}, in place of Ed25519`)
  })
  await refusing('ca/ca.pem', () => {
    const certificate = new X509Certificate(files['ca/ca.pem'])
    if (!certificate.publicKey.equals(createPublicKey(files['ca/ca.key']))) throw new Error('not of ca/ca.key')
    if (!certificate.ca) throw new Error('no authority')
    if (Date.parse(certificate.validTo) <= nowMs) throw new Error(`it ended on ${certificate.validTo}`)
  })
  return await refusing('operator-key.pem', async () => {
    const { keys } = await readP384Key(files['operator-key.pem'])
    return await idKeyDigest(await publicIdKey(keys.publicKey))
  })
}

/** Throws Fault invalid_request unless the operator key is the expected one. */
export function requireOperatorKey(found: Uint8Array, expected: Uint8Array): void {
  if (equalConstantTime(found, expected)) return
  const message = `the sealed file has the operator key ${toHex(found)}, and ${toHex(expected)} is expected`
  throw new Fault('invalid_request', message, { param: 'operator-key' })
}

/**
 * Installs the secrets, and moves previous ones to `asideDir`, which may exist after an interrupted run. If it is
 * killed at any point, the service still starts, and running it again completes it.
 */
export function placeSecrets(stateDir: string, { files }: SharedSecrets, asideDir: string): void {
  ensureDir(asideDir, { mode: 0o700 })
  ensureDir(join(asideDir, 'ca'), { mode: 0o700 })
  for (const name of NAMES) {
    const [former, aside] = [readTextOrNull(join(stateDir, name)), join(asideDir, name)]
    if (former !== null && !existsSync(aside)) writeFileAtomic(aside, former, { mode: 0o600 })
  }
  ensureDir(join(stateDir, 'ca'), { mode: 0o755 })
  for (const name of NAMES) {
    const file = join(stateDir, name)
    if (readTextOrNull(file) === files[name]) continue
    const belonging = BELONGS[name]
    if (belonging !== undefined) rmSync(join(stateDir, belonging), { force: true })
    writeFileAtomic(file, utf8(files[name]), { mode: name === 'ca/ca.pem' ? 0o644 : 0o600 })
  }
}
