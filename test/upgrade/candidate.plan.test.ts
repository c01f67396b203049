// Goal: what is no later strongroom for this machine is refused in words that say what to do.

import { expect, test } from 'bun:test'
import {
  kindOf,
  missingPackages,
  packageRefusal,
  roomRefusal,
  versionedOf,
  versionRefusal,
} from '../../src/upgrade/candidate.plan.ts'

function elf(bits: number, machine: number): Uint8Array {
  const head = new Uint8Array(64)
  head.set([0x7f, 0x45, 0x4c, 0x46, bits])
  head[18] = machine & 0xff
  head[19] = machine >> 8
  return head
}

const deb = new TextEncoder().encode('!<arch>\ndebian-binary   1000000000  0     0     100644  4         `\n')

test('goal: the kind of a file, by its first bytes', () => {
  expect(kindOf(elf(2, 62))).toBe('executable')
  expect(kindOf(deb)).toBe('package')
  expect(kindOf(elf(2, 183))).toMatchObject({ message: expect.stringContaining('another architecture') as unknown })
  expect(kindOf(elf(1, 62))).toMatchObject({ message: expect.stringContaining('another architecture') as unknown })
  for (const other of [
    new Uint8Array(64),
    new TextEncoder().encode('#!/bin/sh'),
    new TextEncoder().encode('!<arch>\n/ '),
  ])
    expect(kindOf(other)).toMatchObject({ message: expect.stringContaining('neither') as unknown })
})

test('goal: only our package, for amd64', () => {
  const ours = { name: 'strongroom', version: '1', architecture: 'amd64' }
  expect(packageRefusal(ours)).toBe(null)
  expect(packageRefusal({ ...ours, name: 'strongroom-images' })).not.toBe(null)
  expect(packageRefusal({ ...ours, architecture: 'arm64' })).not.toBe(null)
})

test('goal: what an executable says of itself', () => {
  const said = { version: '0.2.0', schema: 24, bun: '1.3.0', provenance: null }
  expect(versionedOf(JSON.stringify(said))).toEqual({ version: '0.2.0', schema: 24 })
  for (const other of [
    '',
    '{}',
    '[]',
    'null',
    JSON.stringify({ ...said, schema: 0 }),
    JSON.stringify({ ...said, schema: '24' }),
  ])
    expect(versionedOf(other)).toBe(null)
})

test('goal: a downgrade is refused by schema and by version, with the way back named', () => {
  const [older, newer] = [
    { version: '0.1.0', schema: 23 },
    { version: '0.2.0', schema: 24 },
  ]
  const base = { from: older, to: newer, schema: 23, order: 1, isSame: false }
  expect(versionRefusal(base)).toBe(null)
  // The same version of another commit.
  expect(versionRefusal({ ...base, to: { ...older }, order: 0 })).toBe(null)
  expect(versionRefusal({ ...base, isSame: true })?.message).toContain('serves already')
  const back = versionRefusal({ from: newer, to: older, schema: 24, order: -1, isSame: false })
  expect(back?.message).toContain('supports schema 23, the database has 24')
  expect(back?.remedy).toContain('strongroom downgrade')
  // The database is newer than both say: what it has decides.
  expect(versionRefusal({ ...base, schema: 25 })?.remedy).toContain('strongroom downgrade')
  expect(versionRefusal({ ...base, to: { version: '0.0.9', schema: 23 }, order: -1 })?.message).toContain('0.0.9')
})

test('goal: room: for the copies and the executables, to the byte', () => {
  const asked = { databaseBytes: 100 * 1_048_576, executableBytes: 10 * 1_048_576, where: '/var/lib/strongroom' }
  const needed = (4 * 100 + 4 * 10 + 64) * 1_048_576
  expect(roomRefusal({ ...asked, freeBytes: needed })).toBe(null)
  expect(roomRefusal({ ...asked, freeBytes: needed - 1 })?.message).toContain('takes up to 504 MiB')
})

test('goal: packages that are missing, by a simulation of apt', () => {
  const text =
    'Inst newdep (1.0 Debian [amd64])\nInst strongroom [0.1.0-1] (0.2.0-1 [amd64])\nConf strongroom (0.2.0-1)\n'
  expect(missingPackages(text)).toEqual(['newdep'])
  expect(missingPackages('Inst strongroom [0.1.0-1] (0.2.0-1 [amd64])\n')).toEqual([])
})
