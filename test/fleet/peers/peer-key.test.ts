// The key of a host for others of its fleet, and its certificate.

import { afterAll, expect, test } from 'bun:test'
import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../../src/base/ids.ts'
import { isSignedBy, openPeerKey, peerName, readPeerKey } from '../../../src/fleet/peers/peer-key.ts'

const nowMs = Date.parse('2026-11-26T00:00:00Z')
const dayMs = 86_400_000
const deps = (stateDir: string, changes: { hostId?: string; nowMs?: number } = {}) => ({
  ...{ stateDir, hostId: 'host-1', nowMs, random: systemRandom },
  ...changes,
})
const base = mkdtempSync(join(tmpdir(), 'srt-peer-key-'))
const newDir = () => mkdtempSync(join(base, 'host-'))

afterAll(() => rmSync(base, { recursive: true, force: true }))

// Goal: a host keeps the key that others know over restarts, and nobody else on the machine reads it.
test('made once', async () => {
  const dir = newDir()
  expect(readPeerKey(dir, 'host-1')).toBeNull()
  const first = await openPeerKey(deps(dir))
  expect(await openPeerKey(deps(dir))).toMatchObject({ certificate: first.certificate, privateKey: first.privateKey })
  expect(readPeerKey(dir, 'host-1')?.certificate).toBe(first.certificate)
  for (const name of ['peer/key.pem', 'peer/certificate.pem']) expect(statSync(join(dir, name)).mode & 0o077).toBe(0)
  const certificate = new X509Certificate(first.certificate)
  expect([certificate.ca, certificate.checkHost(peerName('host-1'))]).toEqual([false, peerName('host-1')])
})

// Goal: the certificate follows what it says: a host with another id, or near the end of its time, gets another one.
test('another certificate for the same key', async () => {
  const dir = newDir()
  const first = await openPeerKey(deps(dir))
  for (const changes of [{ hostId: 'host-2' }, { nowMs: nowMs + 3_500 * dayMs }, { nowMs: nowMs - 30 * dayMs }]) {
    const next = await openPeerKey(deps(dir, changes))
    expect(next.certificate).not.toBe(first.certificate)
    expect(next.privateKey).toBe(first.privateKey)
  }
  writeFileSync(join(dir, 'peer/certificate.pem'), 'torn')
  expect(new X509Certificate((await openPeerKey(deps(dir))).certificate).checkHost(peerName('host-1'))).toBeDefined()
  writeFileSync(join(dir, 'peer/key.pem'), 'torn')
  expect(await openPeerKey(deps(dir)).catch(error => String(error.message))).toContain('remove it to get another one')
  expect(readFileSync(join(dir, 'peer/key.pem'), 'utf8')).toBe('torn')
})

// Goal: a signature is good for its message and its key alone, and text that is no certificate signs nothing.
test('signatures', async () => {
  const [own, other] = await Promise.all([openPeerKey(deps(newDir())), openPeerKey(deps(newDir()))])
  const message = Buffer.from('a call')
  const signature = own.sign(message)
  expect(signature).toHaveLength(64)
  expect(isSignedBy(own.certificate, message, signature)).toBe(true)
  expect(isSignedBy(other.certificate, message, signature)).toBe(false)
  expect(isSignedBy(own.certificate, Buffer.from('another'), signature)).toBe(false)
  for (const bad of [new Uint8Array(64), new Uint8Array(0), signature.slice(1)]) {
    expect(isSignedBy(own.certificate, message, bad)).toBe(false)
  }
  expect(isSignedBy('', message, signature)).toBe(false)
})
