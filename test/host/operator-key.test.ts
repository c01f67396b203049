// The operator key: made once, kept for itself, and never replaced behind anybody's back.

import { afterAll, expect, test } from 'bun:test'
import { createPublicKey, generateKeyPairSync } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { signIdBlock } from '../../src/attest/launch/id-block-sign.ts'
import { verifyIdBlock } from '../../src/attest/launch/id-block-verify.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { openOperatorKey } from '../../src/host/operator-key.ts'
import { openSimulatedHost } from '../../src/host/simulated-host.ts'

const directories: string[] = []
afterAll(() => {
  for (const path of directories) rmSync(path, { recursive: true })
})

function newDir(): string {
  const path = mkdtempSync(join(tmpdir(), 'srt-operator-key-'))
  directories.push(path)
  return path
}

test('goal: the key signs ID blocks whose key digest is the one that is published, also after a restart', async () => {
  const stateDir = newDir()
  const first = await openOperatorKey(stateDir)
  const none = new Uint8Array(16)
  const block = {
    measurement: new Uint8Array(48).fill(1),
    familyId: none,
    imageId: none,
    guestSvn: 0,
    policy: 0x30000n,
  }
  for (const key of [first, await openOperatorKey(stateDir)]) {
    const signed = await signIdBlock(block, { idKey: key.keys })
    const { ok, idKeyDigest } = await verifyIdBlock({ ...signed, author: 'any' })
    expect([ok, idKeyDigest]).toEqual([true, first.digest])
  }
  expect([statSync(first.keyFile).mode & 0o777, statSync(first.publicFile).mode & 0o777]).toEqual([0o600, 0o644])
  expect(createPublicKey(readFileSync(first.publicFile)).asymmetricKeyDetails?.namedCurve).toBe('secp384r1')
  expect(readFileSync(first.publicFile, 'utf8')).toBe(first.publicPem)
  expect(first.publicPem).not.toContain('PRIVATE')
})

test('goal: the digests of all keys that this host has had stay on record, each once, the oldest first', async () => {
  const stateDir = newDir()
  const first = await openOperatorKey(stateDir)
  expect([first.owned, (await openOperatorKey(stateDir)).owned]).toEqual([[first.digest], [first.digest]])
  rmSync(first.keyFile)
  rmSync(first.publicFile)
  const second = await openOperatorKey(stateDir)
  const owned = [first.digest, second.digest]
  expect([second.owned, (await openOperatorKey(stateDir)).owned]).toEqual([owned, owned])
  const file = join(stateDir, 'operator-keys.txt')
  expect([readFileSync(file, 'utf8').split('\n').length, statSync(file).mode & 0o777]).toEqual([3, 0o644])
  for (const damaged of ['ab\n', `${'g'.repeat(96)}\n`, 'x']) {
    writeFileSync(file, damaged)
    await expect(openOperatorKey(stateDir)).rejects.toMatchObject({
      message: expect.stringContaining(`${file}, line 1`),
    })
  }
})

test('goal: a key that cannot be read is an error that says what to do, and is left as it is', async () => {
  const stateDir = newDir()
  const { keyFile } = await openOperatorKey(stateDir)
  const good = readFileSync(keyFile, 'utf8')
  const otherCurve = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({
    format: 'pem',
    type: 'pkcs8',
  })
  for (const damaged of ['', 'nonsense', good.slice(0, 80), `${otherCurve}`]) {
    writeFileSync(keyFile, damaged)
    const error = await openOperatorKey(stateDir).catch((thrown: unknown) => thrown)
    if (!(error instanceof Fault)) throw error
    expect(error.message).toContain(keyFile)
    expect(error.message).toContain('restore the key from the backup, or remove')
    expect(error.message).not.toContain(good.split('\n')[1] as string)
    expect(readFileSync(keyFile, 'utf8')).toBe(damaged)
  }
  rmSync(keyFile)
  mkdirSync(keyFile)
  expect(await openOperatorKey(stateDir).catch((thrown: unknown) => thrown)).toMatchObject({ code: 'internal' })
})

test('goal: a key that is lost or exchanged is noticed by its public half', async () => {
  const stateDir = newDir()
  const { keyFile, publicFile, digest } = await openOperatorKey(stateDir)
  const good = readFileSync(keyFile, 'utf8')
  const other = await openOperatorKey(newDir())
  writeFileSync(keyFile, readFileSync(other.keyFile))
  await expect(openOperatorKey(stateDir)).rejects.toMatchObject({ message: expect.stringContaining(publicFile) })
  rmSync(keyFile)
  await expect(openOperatorKey(stateDir)).rejects.toMatchObject({ message: expect.stringContaining('without') })
  // Killed between the two files: the public half is written again.
  writeFileSync(keyFile, good, { mode: 0o600 })
  rmSync(publicFile)
  expect((await openOperatorKey(stateDir)).digest).toEqual(digest)
  // Both removed: another identity, as the message says.
  rmSync(keyFile)
  rmSync(publicFile)
  expect((await openOperatorKey(stateDir)).digest).not.toEqual(digest)
})

test('goal: simulated launches are of the same operator, also where an earlier release kept another key for them', async () => {
  const stateDir = newDir()
  const open = () =>
    openSimulatedHost({ stateDir, nowMs: () => Date.UTC(2026, 10, 20), random: systemRandom, modulusBits: 2048 })
  const first = await open()
  expect(first.operatorKey).toEqual((await openOperatorKey(stateDir)).digest)
  const file = join(stateDir, 'simulator', 'keys.json')
  const kept = JSON.parse(readFileSync(file, 'utf8'))
  expect(Object.keys(kept)).not.toContain('idKey')
  writeFileSync(file, JSON.stringify({ ...kept, idKey: kept.keys.vcek }))
  expect((await open()).operatorKey).toEqual(first.operatorKey)
})
