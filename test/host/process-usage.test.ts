// Goal: CPU time and memory are those of the process with this number and start, and its scope counts only if it is a
// VM's own.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { processUsage } from '../../src/host/process-usage.ts'
import { readStat } from '../../src/linux/stat.ts'

const root = mkdtempSync(join(tmpdir(), 'srt-usage-'))
afterAll(() => rmSync(root, { recursive: true }))
const roots = { proc: join(root, 'proc'), cgroup: join(root, 'cgroup') }
const scope = '/strongroom.slice/strongroom-00000001-0000-4000-8000-000000000000.scope'

function process_(pid: number, { cgroup, ticks = '12 34' }: { cgroup: string; ticks?: string }): void {
  const directory = join(roots.proc, String(pid))
  mkdirSync(directory, { recursive: true })
  // Fields 3 to 22 of proc_pid_stat(5), behind a command name with parentheses and a blank.
  writeFileSync(join(directory, 'stat'), `${pid} (a ) b) S 1 1 1 0 -1 0 0 0 0 0 ${ticks} 7 7 20 0 3 0 9000 1 1\n`)
  writeFileSync(join(directory, 'status'), 'Name:\ta ) b\nVmRSS:\t    2048 kB\n')
  writeFileSync(join(directory, 'cgroup'), cgroup)
}

test('goal: memory of the VM scope, otherwise of the process', () => {
  mkdirSync(join(roots.cgroup, scope), { recursive: true })
  writeFileSync(join(roots.cgroup, scope, 'memory.current'), '123456789\n')
  writeFileSync(join(roots.cgroup, 'memory.current'), '99\n')
  process_(1, { cgroup: `0::${scope}\n` })
  process_(2, { cgroup: '0::/user.slice\n' })
  process_(3, { cgroup: `1:name=systemd:/x\n0::${scope}/../../..\n` })
  process_(4, { cgroup: '0::/strongroom.slice/strongroom-00000002-0000-4000-8000-000000000000.scope\n' })
  const of = (pid: number) => processUsage({ pid, startTicks: 9000 }, roots)
  // 46 ticks of 10 ms.
  expect(of(1)).toEqual({ cpuMs: 460, memoryBytes: 123_456_789 })
  for (const pid of [2, 3, 4]) expect([pid, of(pid)]).toEqual([pid, { cpuMs: 460, memoryBytes: 2_097_152 }])
})

test('goal: nothing of a process that has ended, of a later one with its number, or of an unreadable file', () => {
  process_(5, { cgroup: '', ticks: 'x y' })
  expect(processUsage({ pid: 1, startTicks: 9001 }, roots)).toBeNull()
  expect(processUsage({ pid: 6, startTicks: 9000 }, roots)).toBeNull()
  expect(processUsage({ pid: 5, startTicks: 9000 }, roots)).toBeNull()
})

test('goal: the kernel of this machine has these fields', () => {
  const startTicks = readStat(process.pid)?.startTicks ?? 0
  const before = processUsage({ pid: process.pid, startTicks })
  const { user, system } = process.cpuUsage()
  // Both count the same process; a tick is 10 ms.
  expect(Math.abs((before?.cpuMs ?? 0) - (user + system) / 1000)).toBeLessThan(200)
  expect(before?.memoryBytes ?? 0).toBeGreaterThan(10_000_000)
})
