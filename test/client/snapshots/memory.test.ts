// Goal: what was seen of an instance's snapshots outlives it, only grows, and belongs to one host key.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SnapshotMemory } from '../../../src/client/snapshots/memory.ts'

let base = ''
let memory: SnapshotMemory
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'srt-memory-'))
  memory = new SnapshotMemory(base)
})
afterEach(() => rmSync(base, { recursive: true, force: true }))

const hostname = 'k3v9x2ma.acme.agents.example'
const hostKey = `ssh-ed25519 ${'A'.repeat(68)}`
const verified = { hostname, localName: 'work', hostKey, atMs: 5 }
const newest = (number: number) => ({ number, sha256: `${number}`.repeat(64).slice(0, 64) })

test('goal: a verified instance is found by host name and by the name that it last had here', () => {
  expect([memory.find(hostname), memory.named('work')]).toEqual([null, null])
  memory.verified(verified)
  memory.verified({ ...verified, hostname: 'aaaaaaaa.acme.agents.example', atMs: 9 })
  expect(memory.find(hostname)).toEqual({ ...verified, newest: null })
  expect(memory.named('work')?.hostname).toBe('aaaaaaaa.acme.agents.example')
  expect(memory.named('other')).toBeNull()
})

test('goal: the newest number only grows, also through another verification; another host key starts anew', () => {
  memory.verified(verified)
  const seen = memory.find(hostname)
  if (seen === null) throw new Error('nothing was kept')
  for (const number of [2, 5, 3]) memory.saw(seen, newest(number))
  memory.verified({ ...verified, atMs: 7 })
  expect(memory.find(hostname)).toEqual({ ...verified, atMs: 7, newest: newest(5) })
  memory.verified({ ...verified, hostKey: `ssh-ed25519 ${'B'.repeat(68)}` })
  expect(memory.find(hostname)?.newest).toBeNull()
})

test('goal: a damaged file, one of another instance, and one that others may write are refused', () => {
  memory.verified(verified)
  const path = join(base, 'snapshots', `${hostname}.json`)
  writeFileSync(path, '{')
  expect(() => memory.find(hostname)).toThrow(path)
  expect(() => memory.verified(verified)).toThrow(path)
  expect(readFileSync(path, 'utf8')).toBe('{')
  writeFileSync(path, JSON.stringify({ ...verified, hostname: 'aaaaaaaa.acme.agents.example', newest: null }))
  expect(() => memory.find(hostname)).toThrow('another instance')
  writeFileSync(path, JSON.stringify({ ...verified, newest: null }))
  chmodSync(path, 0o666)
  expect(() => memory.find(hostname)).toThrow('others may write it')
})

test('goal: a verification never replaces a damaged file, which would forget the newest snapshot', () => {
  memory.verified(verified)
  const path = join(base, 'snapshots', `${hostname}.json`)
  writeFileSync(path, '{ broken')
  expect(() => memory.verified({ ...verified, atMs: 7 })).toThrow(path)
  expect(readFileSync(path, 'utf8')).toBe('{ broken')
})

test('goal: fields of a later release are no damage, and stay', () => {
  const path = join(base, 'snapshots', `${hostname}.json`)
  memory.verified(verified)
  const later = { ...verified, newest: { ...newest(5), root: 'a' }, colour: 'blue' }
  writeFileSync(path, JSON.stringify(later), { mode: 0o600 })
  memory.verified({ ...verified, atMs: 7 })
  expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({ ...later, atMs: 7 })
})
