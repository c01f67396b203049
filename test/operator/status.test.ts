// Goal: `status` still answers when the database does not, says `ready: no` with the remedy, and makes no count up.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { closeSync, mkdtempSync, openSync, rmSync, statSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { AdminStatus } from '../../src/contract/admin/admin.ts'
import { ProblemJournal } from '../../src/operator/problems/journal.ts'
import { ProblemWatch } from '../../src/operator/problems/watch.ts'
import { createStatus, type StatusDeps } from '../../src/operator/status.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { insertVm } from '../../src/store/ledger/vm.query.ts'
import { vms } from '../../src/store/ledger/vm.table.ts'
import { STATUS } from '../rigs/admin-status.ts'

const pageBytes = 4_096

let dir: string
let store: Store
const paused = new Map<string, number>()
let logFailure: { atMs: number; reason: string } | null = null

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-status-'))
  store = openStore(join(dir, 'strongroom.db'))
})

afterEach(() => {
  store.close()
  rmSync(dir, { recursive: true })
})

test('goal: a log that cannot be written makes the host not ready: nothing new is launched or handed out', () => {
  expect(statusOf().log).toMatchObject({ size: 0, problems: [] })
  logFailure = { atMs: 0, reason: 'ENOSPC' }
  const { problems, log } = statusOf()
  logFailure = null
  expect(problems).toMatchObject([
    {
      name: 'log',
      detail: expect.stringContaining('since 1970-01-01T00:00:00.000Z: ENOSPC'),
      remedy: expect.stringContaining('make room'),
    },
  ])
  expect(log?.problems).toMatchObject([{ witness: null, severe: true }])
})

function statusOf(): AdminStatus {
  const count = () => listOrganizations(store.directory.db).length
  const deps: StatusDeps = {
    store,
    config: {
      ...{ domain: 'agents.test', network: { address_rest_s: 600 }, vm: { memory_mib: 1, vcpus: 1 } },
      ...{ listen: defaultConfig().listen, inference: { placement: 'host' }, console: { names: [] } },
      tls: {
        ...{ names: [], certificate_file: '', key_file: '' },
        acme: { directory: 'https://acme.test', http_listen: '' },
      },
    },
    engine: {
      platform: 'tcg',
      tpm: () => 'off',
      capacity: { memoryMib: 9, vcpus: 9, addresses: 9 },
      collateral: null,
    },
    // These read the database, too.
    pool: {
      status: () => ({ wanted: count(), warm: 0, booting: 0, lacking: null, lastFailure: null, nextAttemptAtMs: null }),
    },
    buildVms: () => ({ wanted: count(), warm: 0, booting: 0, reserved: 0, lacking: null }),
    maintenance: { view: () => null },
    gateway: 'off',
    traces: () => null,
    attestedUpstreams: () => [],
    names: null,
    tls: {
      source: 'local',
      caFile: null,
      expiries: () => [],
      former: () => null,
      acme: () => null,
      current: () => ({ cert: '', key: '', names: [], notBeforeMs: 0, notAfterMs: 0 }) as never,
    },
    operatorKey: { digest: new Uint8Array(48), publicPem: 'PEM' },
    clock: { nowMs: () => 0 },
    clockGuard: { certainMs: () => 0, view: () => ({ isHeld: false, aheadMs: 0, certainMs: 0 }) },
    transparency: {
      log: { head: () => null, shown: count, entries: () => [], cosignatures: () => [], failure: () => logFailure },
      named: [],
      witnesses: { problem: () => null, failingSinceMs: () => null },
    },
    budgetsNear: () => [],
    backups: () => STATUS.backups,
    fleetStatus: () => null,
    problems: () => [],
    upstreams: () => [],
    journal: new ProblemJournal(store),
    pausedVms: () => paused,
    problemWatch: new ProblemWatch({
      ...{ clock: createManualClock(0), log: silentLogger, onEvent: () => {}, openBefore: () => new Map() },
    }),
    listening: {
      instances: 'https://127.0.0.1:1',
      inference: null,
      builds: null,
      dns: null,
      console: null,
      metrics: null,
    },
  }
  const status = createStatus(deps)()
  expect([...Value.Errors(AdminStatus, status)]).toEqual([])
  return status
}

/** Noise over every page but the first, which names the tables. */
function ruin(): void {
  store.directory.db.run('PRAGMA wal_checkpoint(TRUNCATE)')
  const path = join(dir, 'strongroom.db')
  const fd = openSync(path, 'r+')
  const noise = new Uint8Array(statSync(path).size - pageBytes).fill(0xa5)
  writeSync(fd, noise, 0, noise.length, pageBytes)
  closeSync(fd)
  store.directory.db.run('PRAGMA shrink_memory')
}

test('goal: a whole database is ready and counted', () => {
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: 1 })
  expect(statusOf()).toMatchObject({
    ready: true,
    problems: [],
    organizations: 1,
    instances: {},
    vms: {},
    pool: { wanted: 1 },
  })
})

test('goal: a damaged one is a problem with its remedy at the very answer that meets it, and its counts are unknown', () => {
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: 1 })
  ruin()
  const status = statusOf()
  expect(status).toMatchObject({
    organizations: null,
    instances: null,
    vms: null,
    capacity: { memory_mib_used: null, vcpus_used: null, addresses_used: null, memory_mib_total: 9 },
    pool: { lacking: 'the database is damaged' },
    log: null,
    builds: { states: null, disk_bytes: null, lacking: 'the database is damaged' },
  })
  expect(status.problems).toHaveLength(1)
  expect(status.problems[0]).toMatchObject({
    name: 'database',
    detail: expect.stringContaining('malformed'),
    remedy: expect.stringContaining('restore the last backup'),
  })
})

test('goal: a host with failed instances lists them, and a code that only this database knows too', () => {
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: 1 })
  for (const [at, code] of ['ssh_unreachable', 'ssh_unreachable', 'odd_code'].entries()) failedInstance(at, code)
  const { ready, problems, instances } = statusOf()
  expect(instances).toEqual({ failed: 3 })
  // Two in a row, and none has ever become ready.
  expect(ready).toBe(false)
  expect(problems.map(({ name, subject, severity }) => [name, subject, severity])).toEqual([
    ['instances', 'ssh_unreachable', 'critical'],
    ['instances', 'odd_code', 'warning'],
  ])
  expect(problems[0]?.detail).toStartWith('2 instances have failed (ssh_unreachable): The instance did not become')
  expect(problems[0]?.remedy).toContain('strongroom instance list --status failed')
})

test('goal: a VM that is paused for lack of disk space is a problem as long as it is to run', () => {
  const { db } = store.ledger
  insertVm(db, { id: 'v', hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs: 1 })
  db.update(vms).set({ state: 'running' }).run()
  paused.set('v', 5).set('of another time', 6)
  const [problem] = statusOf().problems
  expect(problem).toMatchObject({ name: 'vm_paused', severity: 'critical', since: '1970-01-01T00:00:00.005Z' })
  expect(problem?.detail).toStartWith('1 VMs are paused')
  db.update(vms).set({ state: 'failed' }).run()
  expect(statusOf().problems).toEqual([])
  paused.clear()
})

test('goal: failures of another host are that host’s problem, unless it is lost', () => {
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: 1 })
  for (const [at, code] of ['ssh_unreachable', 'ssh_unreachable', 'host_lost'].entries())
    failedInstance(at, code, 'another host')
  const { ready, problems } = statusOf()
  expect([ready, problems.map(({ subject }) => subject)]).toEqual([true, ['host_lost']])
})

function failedInstance(at: number, code: string, hostId = store.hostId): void {
  const name = `abcdefg${at}`
  const instance = insertInstance(store.directory.db, {
    ...{ id: `i${at}`, hostId, organizationId: 'o', name, hostname: `${name}.agents.test` },
    ...{ agent: 'opencode', publicKey: 'ssh-ed25519 A', inferenceMode: 'gateway', inferenceModel: 'm' },
    ...{ vmId: `v${at}`, platform: 'tcg', nowMs: 0 },
  })
  const move = { from: 'provisioning', to: 'failed', failureCode: code, failureMessage: code } as const
  expect(moveInstance(store.directory.db, { ...move, id: instance?.id ?? '', nowMs: 1 })).toBe(true)
}
