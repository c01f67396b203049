// Scratch files on a real file system: made empty, counted by what they hold, and a paused VM that is let go on once.

import { expect, test } from 'bun:test'
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import { diskSpace } from '../../../src/linux/files/disk-space.ts'
import { openStore } from '../../../src/store/db.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { freeDiskGib, makeDisk, resumeWhenFree } from '../../../src/vm/launch/disk.driver.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import type { VmLink } from '../../../src/vm/link.driver.ts'

const mib = 2 ** 20
const gib = 2 ** 30

function place(): { stateDir: string; scratch: string; exchange: string } & Disposable {
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-scratch-'))
  mkdirSync(join(stateDir, 'vms', 'a'), { recursive: true })
  const { scratch, exchange } = vmPaths(stateDir, 'a')
  return { stateDir, scratch, exchange, [Symbol.dispose]: () => rmSync(stateDir, { recursive: true }) }
}

test('a scratch file is sparse, ours alone, and empty though an earlier attempt left something', () => {
  // Goal: nothing of an earlier VM or attempt reaches a guest, and a size costs nothing before it is used.
  using at = place()
  writeFileSync(at.scratch, 'left behind')
  using file = makeDisk(at.scratch, 3)
  expect(statSync(at.scratch)).toMatchObject({ size: 3 * gib, blocks: 0 })
  writeSync(file.fd, 'x', 0)
  const start = Buffer.alloc(4)
  readSync(file.fd, start, 0, start.length, 0)
  expect(start).toEqual(Buffer.from('x\0\0\0'))
})

test('a scratch file is made nowhere else', () => {
  // Goal: a link in the VM's directory leads root to no other file.
  using at = place()
  const other = join(at.stateDir, 'other')
  writeFileSync(other, 'precious')
  symlinkSync(other, at.scratch)
  expect(() => makeDisk(at.scratch, 1)).toThrow()
  expect(readFileSync(other, 'utf8')).toBe('precious')
})

test('room is a share of what is free', () => {
  // Goal: a rest stays for the database and the logs.
  using at = place()
  const freeBytes = diskSpace(at.stateDir).freeBytes
  expect(freeDiskGib(at.stateDir)).toBeGreaterThan(0)
  expect(freeDiskGib(at.stateDir)).toBeLessThan(freeBytes / gib)
  expect(freeDiskGib(at.stateDir, { freeBytes: 10 * gib })).toBe(8)
})

test.each(['scratch', 'exchange'] as const)('what a VM has written to its %s disk is room as before', name => {
  // Goal: a VM that fills its disk does not lower the bound under which it, or any other, was admitted.
  using at = place()
  // Free room as on a host without other writers: what the VM takes is no longer free.
  const writtenBytes = 2 * mib
  const freeBytes = 10 * gib - writtenBytes
  using file = makeDisk(at[name], 1)
  expect(freeDiskGib(at.stateDir, { freeBytes })).toBe(7)
  writeSync(file.fd, Buffer.alloc(writtenBytes, 1), 0)
  expect(freeDiskGib(at.stateDir, { freeBytes })).toBe(8)
})

test('a pause is on record once, and its end once', async () => {
  // Goal: the operator's journal tells when a VM stood still, not each look at it; a refusal is tried again.
  using at = place()
  const store = openStore(':memory:')
  let refusals = 2
  const link = {
    resume: async () => {
      refusals -= 1
      if (refusals >= 0) throw new Error('QEMU is busy')
    },
  } as unknown as VmLink
  const deps = { db: store.ledger.db, log: silentLogger, clock: { nowMs: () => 1 } }
  for (let i = 0; i < 3; i += 1) await resumeWhenFree(deps, { vmId: 'a', directory: at.stateDir, link })
  const kinds = listEvents(store.ledger.db, { subject: 'a', limit: 10 }).map(({ kind }) => kind)
  expect(kinds).toEqual(['vm.resumed', 'vm.paused'])
})
