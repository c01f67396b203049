// Goal: `strongroom status` has lines for the transparency log, each attested upstream and backups, in words that a
// hostile name cannot turn into a terminal's.

import { expect, test } from 'bun:test'
import { statusText } from '../../../src/cli/operator/status.ts'
import type { AdminStatus } from '../../../src/contract/admin/admin.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { STATUS } from '../../rigs/admin-status.ts'

const line = (text: string, name: string) => text.split('\n').filter(row => row.startsWith(name))

test('goal: log and upstreams with what is wrong, and what to do', () => {
  const text = statusText(
    {
      ...STATUS,
      log: {
        ...{ size: 9, shown: 7, last_entry_at: '2026-11-26T10:00:00.000Z', waiting_since: '2026-11-26T09:00:00.000Z' },
        witnesses: 1,
        problems: [
          { witness: null, severe: true, detail: 'entries wait', remedy: 'see log status' },
          { witness: 'w', severe: false, detail: 'it fails: \u001b[2J', remedy: 'ask' },
        ],
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
    'log: entries wait; see log status',
    'log witness: w: it fails: \\x1b[2J; ask',
  ])
  expect(line(text, 'upstream')[0]).toMatch(/far \(tdx\): not attested, gets no prompts, last -$/)
  expect(line(statusText({ ...STATUS, log: null }, paintFor(false)), 'log')[0]).toContain('unknown')
})

test('goal: the last backup, whether the next comes by itself, and what is wrong', () => {
  const backupLine = (backups: Partial<AdminStatus['backups']>) => {
    const [row = ''] = line(
      statusText({ ...STATUS, backups: { ...STATUS.backups, ...backups } }, paintFor(false)),
      'backup',
    )
    return row.replace(/ {2,}/, ' ')
  }
  expect(backupLine({})).toBe('backup: none yet: strongroom help backup')
  const old = { state: 'old', problem: 'none since', remedy: 'make one' } as const
  expect(backupLine(old)).toBe('backup: none is known; the nightly timer is off; old: none since; make one')
  const last = { at: '2026-11-20T03:15:00.000Z', file: '/b\u001b.age', bytes: 41_943_040 }
  const made = '2026-11-20T03:15:00.000Z, 40.0 MiB, /b\\x1b.age; the timer makes one each night'
  expect(backupLine({ state: 'good', last, nightly: true })).toBe(`backup: ${made}`)
  const wrong = { state: 'failed', problem: 'it failed: no\nspace', remedy: 'make room' } as const
  expect(backupLine({ last, nightly: true, ...wrong })).toBe(`backup: ${made}; failed: it failed: no space; make room`)
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
