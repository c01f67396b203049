// Goal: `strongroom status` has lines for problems, the transparency log, each attested upstream and backups, in words
// that a hostile name cannot turn into a terminal's.

import { expect, test } from 'bun:test'
import { statusText } from '../../../src/cli/operator/status.ts'
import type { AdminStatus } from '../../../src/contract/admin/admin.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { STATUS } from '../../rigs/admin-status.ts'

const line = (text: string, name: string) => text.split('\n').filter(row => row.startsWith(name))

test('goal: each problem has one line with its severity, its beginning, its effect and its remedy', () => {
  const problem = { severity: 'warning', since: '2026-11-26T09:00:00.000Z', affects: 'clients', remedy: 'ask' } as const
  const text = statusText(
    {
      ...STATUS,
      ready: false,
      problems: [
        { ...problem, name: 'models', subject: null, severity: 'critical', detail: 'none is served' },
        { ...problem, name: 'log', subject: 'w', detail: 'it fails: \u001b[2J' },
      ],
    },
    paintFor(false),
  )
  const rows = text.split('\n').map(row => row.replace(/ {2,}/, ' '))
  expect(rows.slice(0, 4)).toEqual([
    'ready: no',
    'problems: 2, 1 of them critical',
    'models: critical since 2026-11-26T09:00:00.000Z: none is served; affects clients; remedy: ask; more: strongroom help problem models',
    'log: warning since 2026-11-26T09:00:00.000Z: w: it fails: \\x1b[2J; affects clients; remedy: ask; more: strongroom help problem log',
  ])
  const good = statusText(STATUS, paintFor(false)).replace(/ {2,}/g, ' ')
  expect(good).toStartWith('ready: yes\nproblems: none is known\n')
})

test('goal: log and upstreams, without what is wrong with them', () => {
  const text = statusText(
    {
      ...STATUS,
      log: {
        ...{ size: 9, shown: 7, last_entry_at: '2026-11-26T10:00:00.000Z', waiting_since: '2026-11-26T09:00:00.000Z' },
        witnesses: 1,
        problems: [{ witness: null, severe: true, detail: 'entries wait', remedy: 'see log status' }],
      },
      gateway: {
        ...STATUS.gateway,
        attested_upstreams: [
          { name: 'far', kind: 'tdx', attested: false, last_good_at: null, age_s: null, failures: [] },
        ],
      },
    },
    paintFor(false),
  )
  expect(line(text, 'log').map(row => row.replace(/ {2,}/, ' '))).toEqual([
    'log: 9 entries, the last 2026-11-26T10:00:00.000Z; 1 witnesses; 2 wait for a witness since 2026-11-26T09:00:00.000Z',
  ])
  expect(line(text, 'upstream')[0]).toMatch(/far \(tdx\): not attested, gets no prompts, last -$/)
  expect(line(statusText({ ...STATUS, log: null }, paintFor(false)), 'log')[0]).toContain('unknown')
})

test('goal: the last backup, and whether the next comes by itself', () => {
  const backupLine = (backups: Partial<AdminStatus['backups']>) => {
    const [row = ''] = line(
      statusText({ ...STATUS, backups: { ...STATUS.backups, ...backups } }, paintFor(false)),
      'backup',
    )
    return row.replace(/ {2,}/, ' ')
  }
  expect(backupLine({})).toBe('backup: none yet: strongroom help backup')
  expect(backupLine({ state: 'old' })).toBe('backup: none is known; the nightly timer is off')
  const last = { at: '2026-11-20T03:15:00.000Z', file: '/b\u001b.age', bytes: 41_943_040 }
  const made = '2026-11-20T03:15:00.000Z, 40.0 MiB, /b\\x1b.age; the timer makes one each night'
  expect(backupLine({ state: 'good', last, nightly: true })).toBe(`backup: ${made}`)
})

test('goal: whether this host answers others of its fleet, and which it does not reach', () => {
  const fleet = {
    ...{ database: 'postgres://a@b/c', name: 'rack-1', is_reachable: true, since: '2026-11-26T10:00:00.000Z' },
    ...{ problem: null, has_lease: true, is_draining: false, epoch: 1 },
  }
  const shown = (peers: Pick<NonNullable<AdminStatus['fleet']>, 'peer_address' | 'peers'>) =>
    line(statusText({ ...STATUS, fleet: { ...fleet, ...peers } }, paintFor(false)), 'other hosts')[0]
  expect(shown({ peer_address: null, peers: [] })).toMatch(
    /none of them is answered \(fleet.peer_listen is off\); none/,
  )
  const reached = { name: 'rack-2', is_reached: true, problem: null }
  const away = { name: 'rack-3', is_reached: false, problem: 'it hangs: \u001b[2J' }
  expect(shown({ peer_address: '192.0.2.1:7443', peers: [reached] })).toMatch(
    /answered at 192.0.2.1:7443; 1 of 1 reached$/,
  )
  expect(shown({ peer_address: '192.0.2.1:7443', peers: [reached, away] })).toMatch(
    /; 1 of 2 reached: rack-3: it hangs: \\x1b\[2J; strongroom fleet show NAME has the remedy$/,
  )
})

test('goal: maintenance stands beside the problems, with its end and words', () => {
  const maintenance = { since: '2026-11-30T12:00:00.000Z', until: '2026-12-01T06:00:00.000Z', message: 'a disk' }
  expect(line(statusText({ ...STATUS, maintenance }, paintFor(false)), 'maintenance')).toEqual([
    'maintenance:   since 2026-11-30T12:00:00.000Z, until about 2026-12-01T06:00:00.000Z: a disk',
  ])
  expect(statusText(STATUS, paintFor(false))).not.toContain('maintenance')
})
