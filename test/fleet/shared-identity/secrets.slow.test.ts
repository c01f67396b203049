// Secrets on their way from one host to another: sealed, checked, put in place.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateHybridIdentity, identityToRecipient } from 'age-encryption'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openControlKey } from '../../../src/enclave-host/control-key.ts'
import {
  checkSecrets,
  openSecrets,
  placeSecrets,
  readSecrets,
  requireOperatorKey,
  type SharedSecrets,
  sealSecrets,
} from '../../../src/fleet/shared-identity/secrets.ts'
import { openOperatorKey } from '../../../src/host/operator-key.ts'
import { openAuthority } from '../../../src/http/authority.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'srt-share-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

/** A state directory with the three secrets of its own, as the daemon's first start makes them. */
async function host(name: string) {
  const stateDir = join(dir, name)
  mkdirSync(stateDir)
  const start = async () => {
    const { digest, owned } = await openOperatorKey(stateDir)
    const { publicKey } = openControlKey(join(stateDir, 'control.key'))
    const names = [`${name}.example`]
    const random = systemRandom
    const authority = await openAuthority({ kind: 'clients', stateDir, names, nowMs: systemClock.nowMs, random })
    return { digest, owned, publicKey, authority }
  }
  return { stateDir, start, made: await start() }
}

/** The fault of what must not succeed. */
async function refusal(work: Promise<unknown>): Promise<Fault> {
  const error = await work.then(
    () => new Error('it succeeded'),
    (reason: unknown) => reason,
  )
  if (error instanceof Fault) return error
  throw error
}

function secretsOf(stateDir: string): SharedSecrets {
  const request_sha256 = 'ab'.repeat(32)
  return { format: 'strongroom/fleet-shared-secrets/v1', request_sha256, from: 'east', files: readSecrets(stateDir) }
}

test('goal: the next start has the keys of the other host, knows its former one, and issues below the shared key', async () => {
  const [east, west] = [await host('east'), await host('west')]
  placeSecrets(west.stateDir, secretsOf(east.stateDir), join(dir, 'aside'))
  const now = await west.start()
  expect(now.digest).toEqual(east.made.digest)
  expect(now.owned).toEqual([west.made.digest, east.made.digest])
  expect(now.publicKey).toBe(east.made.publicKey)
  // Another domain is another root of the same key and subject, which east's clients trust for east's names.
  const key = (stateDir: string) => readFileSync(join(stateDir, 'ca/ca.key'), 'utf8')
  expect(key(west.stateDir)).toBe(key(east.stateDir))
  for (const name of ['operator-key.pem', 'control.key', 'ca/ca.key']) {
    expect([name, statSync(join(west.stateDir, name)).mode & 0o777]).toEqual([name, 0o600])
  }
})

test('goal: with the names of the other host, its very root is served', async () => {
  const [east, west] = [await host('east'), await host('west')]
  placeSecrets(west.stateDir, secretsOf(east.stateDir), join(dir, 'aside'))
  const names = ['east.example']
  const options = { kind: 'clients', stateDir: west.stateDir, names, nowMs: systemClock.nowMs } as const
  const { caPem, replaced } = await openAuthority({ ...options, random: systemRandom })
  expect([caPem, replaced]).toEqual([east.made.authority.caPem, null])
})

test('goal: the secrets from before are set aside, whole, and put back by copying them', async () => {
  const [east, west] = [await host('east'), await host('west')]
  const before = readSecrets(west.stateDir)
  placeSecrets(west.stateDir, secretsOf(east.stateDir), join(dir, 'aside'))
  expect(readSecrets(join(dir, 'aside'))).toEqual(before)
  placeSecrets(west.stateDir, secretsOf(join(dir, 'aside')), join(dir, 'aside-2'))
  expect((await west.start()).digest).toEqual(west.made.digest)
})

test('goal: killed after any file, the service starts, and the same again completes it with the first secrets aside', async () => {
  const east = await host('east')
  const shared = secretsOf(east.stateDir)
  // In the order of a run; the files of later steps are as they were.
  const steps = ['operator-key.pub.pem', 'operator-key.pem', 'control.key', 'ca/ca.pem', 'ca/ca.key'] as const
  for (const [at] of steps.entries()) {
    const west = await host(`west-${at}`)
    const [before, aside] = [readSecrets(west.stateDir), join(dir, `aside-${at}`)]
    // A run that is killed has set everything aside first.
    placeSecrets(west.stateDir, secretsOf(west.stateDir), aside)
    for (const name of steps.slice(0, at + 1)) {
      const isDropped = name === 'operator-key.pub.pem' || name === 'ca/ca.pem'
      if (isDropped) rmSync(join(west.stateDir, name), { force: true })
      else writeFileSync(join(west.stateDir, name), shared.files[name])
    }
    await west.start()
    placeSecrets(west.stateDir, shared, aside)
    expect([at, readSecrets(west.stateDir)]).toEqual([at, shared.files])
    expect([at, readSecrets(aside)]).toEqual([at, before])
    expect((await west.start()).digest).toEqual(east.made.digest)
  }
})

test('goal: the sealed file opens by the identity it was sealed to alone, and not after a change', async () => {
  const east = await host('east')
  const [identity, other] = [await generateHybridIdentity(), await generateHybridIdentity()]
  const sealed = await sealSecrets(secretsOf(east.stateDir), await identityToRecipient(identity))
  expect(sealed).not.toContain('PRIVATE KEY')
  expect(await openSecrets(sealed, identity)).toEqual(secretsOf(east.stateDir))
  expect((await refusal(openSecrets(sealed, other))).code).toBe('invalid_request')
  const at = Math.floor(sealed.length / 2)
  const changed = sealed.slice(0, at) + (sealed[at] === 'A' ? 'B' : 'A') + sealed.slice(at + 1)
  expect((await refusal(openSecrets(changed, identity))).code).toBe('invalid_request')
  expect((await refusal(openSecrets('', identity))).code).toBe('invalid_request')
})

test('goal: secrets that do not fit together, or are of another operator, are refused by name', async () => {
  const [east, west] = [await host('east'), await host('west')]
  const [good, other] = [secretsOf(east.stateDir), readSecrets(west.stateDir)]
  const nowMs = systemClock.nowMs()
  const refused = async (changes: Partial<SharedSecrets['files']>, atMs = nowMs) =>
    (await refusal(checkSecrets({ ...good, files: { ...good.files, ...changes } }, atMs))).message
  expect(await checkSecrets(good, nowMs)).toEqual(east.made.digest)
  expect(await refused({ 'ca/ca.key': other['ca/ca.key'] })).toContain('ca/ca.pem: not of ca/ca.key')
  expect(await refused({}, nowMs + 20 * 365 * 86_400_000)).toContain('ca/ca.pem: it ended on')
  expect(await refused({ 'control.key': good.files['ca/ca.key'] })).toContain('control.key: a key of ec')
  expect(await refused({ 'operator-key.pem': good.files['ca/ca.key'] })).toContain('operator-key.pem: ')
  expect(await refused({ 'operator-key.pem': 'no key' })).not.toContain('no key')
  expect(() => requireOperatorKey(east.made.digest, west.made.digest)).toThrow('is expected')
})

test('goal: a host that has not served yet has nothing to share, and says what to do', () => {
  expect(() => readSecrets(dir)).toThrow('start the service once')
  expect(existsSync(join(dir, 'operator-key.pem'))).toBe(false)
})
