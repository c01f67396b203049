// Goal: doctor finds what is wrong with a fleet before a client does, and says what to do.

import { expect, test } from 'bun:test'
import { type FleetFacts, fleetChecks } from '../../../../src/cli/doctor/fleet/fleet.plan.ts'
import type { FleetHost } from '../../../../src/contract/admin/fleet.ts'

const host: FleetHost = {
  id: 'h1',
  name: 'rack-1',
  state: 'serving',
  is_this_host: true,
  role: 'rack_1',
  joined_at: '2026-11-20T00:00:00.000Z',
  draining_since: null,
  last_seen_at: '2026-11-20T00:00:00.000Z',
  platform: 'snp',
  places_free: 3,
  instances: 2,
  version: '0.1.0',
  schema: 2,
  clock_ahead_ms: 3,
  warm: 0,
  memory_mib_used: 0,
  memory_mib_total: 1,
  vcpus_used: 0,
  vcpus_total: 1,
  lacking: null,
  image: 'ab',
  operator_key: 'ef',
  domain: 'agents.example',
  peer_address: '192.0.2.1:7443',
  peer_key: 'cd',
  is_reached: null,
  peer_problem: null,
}
const other = (changes: Partial<FleetHost>): FleetHost => ({
  ...host,
  name: 'rack-2',
  is_this_host: false,
  is_reached: true,
  ...changes,
})

type Read = Extract<FleetFacts, { readonly kind: 'read' }>
const good: Read = {
  kind: 'read',
  database: 'postgres://rack_1@db.example:5432/fleet',
  answerMs: 1.4,
  isTls: true,
  schema: 2,
  schemaNewest: 2,
  role: { name: 'rack_1', isSuperuser: false, isOwner: false },
  owner: { name: 'fleet_owner', endsChanges: true },
  synchronousStandbyNames: 'ANY 1 (b, c)',
  synchronousCommit: 'on',
  connectionsMax: 22,
  connectionsPerHost: 11,
  hosts: [host, other({})],
}

const wrongOf = (changes: Partial<Read>) =>
  fleetChecks({ ...good, ...changes })
    .filter(({ result }) => result !== 'PASS')
    .map(({ name, result, detail }) => `${result} ${name}: ${detail}`)

test('goal: a fleet as it should be passes', () => {
  expect(wrongOf({})).toEqual([])
})

// Goal: each thing that can be wrong is one finding, with the names of the hosts that it is about.
test.each([
  [{ answerMs: 51 }, /^WARN fleet: .* answers in 51 ms/],
  [{ connectionsMax: 21 }, /^WARN fleet connections: 2 hosts may use 22 connections \(11 each\), .* accepts 21$/],
  [{ synchronousStandbyNames: '' }, /^WARN fleet replication: synchronous_standby_names is empty: .* are lost/],
  [{ synchronousCommit: 'off' }, /^WARN fleet replication: synchronous_commit is off/],
  [{ role: { name: 'postgres', isSuperuser: true, isOwner: true } }, /^WARN fleet role: postgres is a superuser/],
  [
    { owner: { name: 'fleet_owner', endsChanges: false } },
    /^WARN fleet owner: fleet_owner, .* may not end connections/,
  ],
  [
    { role: { name: 'fleet_owner', isSuperuser: false, isOwner: true } },
    /^WARN fleet role: fleet_owner owns the directory/,
  ],
  [{ hosts: [other({})] }, /^FAIL fleet member: the fleet does not have this host/],
  [{ hosts: [{ ...host, state: 'silent' }] }, /^WARN fleet member: rack-1: silent/],
  [{ hosts: [host, other({ state: 'lost' })] }, /^WARN fleet hosts: rack-2 is lost/],
  [{ hosts: [host, other({ version: '0.2.0' })] }, /^WARN fleet versions: 0\.1\.0: rack-1; 0\.2\.0: rack-2/],
  [{ hosts: [host, other({ platform: 'kvm' })] }, /^WARN fleet platforms: snp: rack-1; kvm: rack-2/],
  [{ hosts: [host, other({ image: null })] }, /^WARN fleet images: ab: rack-1; none: rack-2/],
  [
    { hosts: [host, other({ domain: 'b.example' })] },
    /^FAIL fleet domain: agents\.example: rack-1; b\.example: rack-2/,
  ],
  [
    { hosts: [host, other({ is_reached: false, peer_problem: 'ECONNREFUSED' })] },
    /^WARN fleet peers: not reached from here: rack-2 \(ECONNREFUSED\)/,
  ],
  [
    { hosts: [host, other({ peer_address: null, is_reached: null })] },
    /^WARN fleet peers: rack-2: what they alone have/,
  ],
  [{ hosts: [host, other({ clock_ahead_ms: -2_001 })] }, /^WARN fleet clocks: rack-2 is -2001 ms ahead/],
] as const satisfies readonly (readonly [Partial<Read>, RegExp])[])('goal: %j', (changes, finding) => {
  const found = wrongOf(changes)
  expect(found).toHaveLength(1)
  expect(found[0]).toMatch(finding)
})

test('goal: several operator keys are said, with the way to have one, and are no finding', () => {
  const several = { hosts: [host, other({ operator_key: 'cd' })] }
  expect(wrongOf(several)).toEqual([])
  const detailOf = (changes: Partial<Read>) =>
    fleetChecks({ ...good, ...changes }).find(({ name }) => name === 'fleet operator keys')?.detail
  expect([detailOf({}), detailOf(several)]).toEqual(['one for all hosts', expect.stringContaining('fleet share')])
})

test('goal: a host that is gone does not count for what hosts should have alike', () => {
  expect(wrongOf({ hosts: [host, other({ state: 'lost', version: '0.0.1', domain: 'x', image: null })] })).toEqual([
    'WARN fleet hosts: rack-2 is lost',
  ])
})

test('goal: a database that is away is one finding, with its remedy', () => {
  const facts = { kind: 'unread', database: 'postgres://a@b:1/c', reason: 'refused', remedy: 'look' } as const
  expect(fleetChecks(facts)).toEqual([
    { name: 'fleet', result: 'FAIL', detail: 'postgres://a@b:1/c: refused', remedy: 'look' },
  ])
})
