// Goal: each limit of a machine is held against what the configuration promises, and what is too little comes with the
// setting to write.

import { expect, test } from 'bun:test'
import { type MachineFacts, machineChecks } from '../../../../src/cli/doctor/machine/machine.plan.ts'
import { defaultConfig } from '../../../../src/config/load.ts'

const config = defaultConfig()
const nowMs = Date.UTC(2026, 10, 22)
/** Room for 10 instances of 2 GiB. */
const good: MachineFacts = {
  nowMs,
  clock: { isSynchronised: true, errorMaxMs: 3.2 },
  boardMs: nowMs + 1_000,
  writtenMs: nowMs - 1_000,
  freeDiskGib: 80,
  inodes: { total: 10_000, free: 1_184 },
  capacity: { ok: true, memoryMib: 20_480, vcpus: 100, addresses: 254, asids: null, bootingMax: 2 },
  openFilesMax: 16_384 + 80 + 512,
  systemFilesMax: 1e9,
  connections: { max: 36_864, count: 5 },
  tasksMax: 2_388,
  controllers: ['cpuset', 'cpu', 'io', 'memory', 'pids'],
}
const of = (change: Partial<MachineFacts>, name: string, settings = config) =>
  machineChecks({ ...good, ...change }, settings, { systemd: true }).find(check => check.name === name)
const resultOf = (change: Partial<MachineFacts>, name: string) => of(change, name)?.result

test('goal: a machine that just holds what is promised passes in all', () => {
  expect(machineChecks(good, config, { systemd: true }).map(check => [check.name, check.result])).toEqual(
    ['clock', 'disk', 'inodes', 'open files', 'connections', 'processes', 'control groups'].map(name => [name, 'PASS']),
  )
})

test('goal: one less of anything is told, with the line to write', () => {
  expect(of({ inodes: { total: 10_000, free: 1_183 } }, 'inodes')).toMatchObject({
    result: 'FAIL',
    detail: '1183 of 10000 free; 1184 may be needed',
  })
  expect(of({ openFilesMax: 16_975 }, 'open files')).toMatchObject({
    result: 'WARN',
    remedy: expect.stringContaining('LimitNOFILE=16976'),
  })
  expect(of({ systemFilesMax: 17_000 }, 'open files')).toMatchObject({
    result: 'FAIL',
    remedy: expect.stringContaining('fs.file-max = 17616'),
  })
  expect(of({ connections: { max: 36_863, count: 5 } }, 'connections')).toMatchObject({
    result: 'WARN',
    remedy: expect.stringContaining('nf_conntrack_max = 36864'),
  })
  expect(resultOf({ connections: { max: 100_000, count: 80_001 } }, 'connections')).toBe('WARN')
  expect(of({ tasksMax: 2_387 }, 'processes')).toMatchObject({
    result: 'WARN',
    remedy: expect.stringContaining('kernel.pid_max = 2388'),
  })
})

test('goal: the least of memory, vCPUs, addresses and ASIDs says how many instances there may be', () => {
  const capacity = { ok: true, memoryMib: 1e9, vcpus: 1e6, addresses: 254, asids: 9, bootingMax: 2 } as const
  expect(of({ capacity }, 'processes')?.detail).toContain(`${9 * 34 + 2_048} may be needed`)
  expect(of({ capacity: { ...capacity, asids: null } }, 'processes')?.result).toBe('WARN')
  expect(resultOf({ capacity: { ok: false, text: 'no cpuid' } }, 'processes')).toBe('PASS')
})

test('goal: disks: none fits, more is promised than there is, results of builds too', () => {
  expect(of({ freeDiskGib: 7 }, 'disk')).toMatchObject({
    result: 'FAIL',
    remedy: expect.stringContaining('vm.scratch_gib'),
  })
  // No smaller disk fits there.
  expect(of({ freeDiskGib: 0 }, 'disk')).toMatchObject({ remedy: expect.not.stringContaining('vm.scratch_gib') })
  const promised = { ...config, capacity: { ...config.capacity, scratch_gib: 80 } }
  expect(of({}, 'disk', promised)?.result).toBe('PASS')
  expect(of({ freeDiskGib: 79 }, 'disk', promised)?.result).toBe('WARN')
  const builds = { ...promised, listen: { ...config.listen, builds: '0.0.0.0:8443' } }
  expect(of({}, 'disk', builds)).toMatchObject({
    result: 'WARN',
    detail: expect.stringContaining('builds.results_gib_max'),
  })
  expect(resultOf({ freeDiskGib: null }, 'disk')).toBe('SKIP')
})

test('goal: a clock that went back fails; one that nobody keeps, or whose board differs, warns', () => {
  expect(of({ writtenMs: nowMs + 61_000 }, 'clock')).toMatchObject({
    result: 'FAIL',
    detail: expect.stringContaining('gone back'),
  })
  expect(resultOf({ clock: { isSynchronised: false, errorMaxMs: 0 } }, 'clock')).toBe('WARN')
  expect(of({ boardMs: nowMs - 3_600_000 }, 'clock')).toMatchObject({
    result: 'WARN',
    detail: expect.stringContaining('3600 s'),
  })
  expect(resultOf({ boardMs: null, writtenMs: null }, 'clock')).toBe('PASS')
  expect(resultOf({ clock: null }, 'clock')).toBe('SKIP')
})

test('goal: control groups of version 1, or without a controller, bind nothing; without systemd nobody asks', () => {
  expect(of({ controllers: null }, 'control groups')).toMatchObject({
    result: 'WARN',
    detail: expect.stringContaining('version 1'),
  })
  const all = ['cpu', 'memory', 'pids']
  for (const missing of all) {
    const controllers = all.filter(kind => kind !== missing)
    const found = of({ controllers }, 'control groups')
    expect([missing, found?.result, found?.detail]).toEqual([
      missing,
      'WARN',
      expect.stringContaining(`version 2 without ${missing}: `),
    ])
  }
  expect(of({ controllers: ['io', ...all] }, 'control groups')).toMatchObject({
    result: 'PASS',
    detail: 'version 2, with cpu, memory, pids',
  })
  expect(machineChecks({ ...good, controllers: null }, config, { systemd: false }).at(-1)?.result).toBe('SKIP')
})

test('goal: what is not known is not called good', () => {
  const unknown = { inodes: null, openFilesMax: null, connections: null, tasksMax: null }
  for (const name of ['inodes', 'open files', 'connections', 'processes'])
    expect([name, resultOf(unknown, name)]).toEqual([name, 'SKIP'])
  expect(resultOf({ inodes: { total: 0, free: 0 } }, 'inodes')).toBe('PASS')
})

test('goal: a clock that the daemon does not believe fails, with the command that ends it', () => {})
