// Which hosts a numbered transaction wakes, and the text of its notification.

import { expect, test } from 'bun:test'
import { announcementText, readAnnouncement } from '../../../src/fleet/replica/announcement.codec.ts'
import { REPLICA_TABLES, type RowChange, type WireRow } from '../../../src/fleet/replica/tables.ts'

const change = (table: string, row: WireRow | null): RowChange => ({ table, key: { id: 'k' }, row })
const instance = (hostId: string) => change('instances', { id: 'i', host_id: hostId })
const ofClaim = { prefix: 'p', instance_id: 'i', revoked_at_ms: null }

// Goal: rows that tell of an instance wake its host alone, so that a create is not read at once by every host.
test('hosts of instances', () => {
  const created = [instance('a'), change('instance_changes', {}), change('idempotency', {}), instance('b')]
  expect(announcementText(7, created)).toBe('7:a,b')
  expect(announcementText(7, [instance('a'), instance('a')])).toBe('7:a')
  const ready = ['instance_changes', 'instance_attestations', 'instance_addresses'].map(table => change(table, {}))
  expect(announcementText(8, [...ready, change('gateway_keys', ofClaim)])).toBe('8:')
  expect(announcementText(9, [change('instances', null)])).toBe('9:')
})

// Goal: a revoked key, and every table that says nothing of one host's instances, wakes all hosts.
test('all hosts', () => {
  const ofInstances = ['instances', 'instance_changes', 'instance_attestations', 'instance_addresses', 'idempotency']
  const others = REPLICA_TABLES.map(({ name }) => name).filter(name => !ofInstances.includes(name))
  expect(others).toContain('keys')
  for (const table of others) expect(announcementText(7, [instance('a'), change(table, {})])).toBe('7')
  for (const row of [null, { ...ofClaim, revoked_at_ms: 5 }, { ...ofClaim, instance_id: null }]) {
    expect(announcementText(7, [change('gateway_keys', row)])).toBe('7')
  }
})

// Goal: a text that PostgreSQL would refuse, and so roll the change back, is never made.
test('too many hosts for a notification', () => {
  const hosts = Array.from({ length: 300 }, (_, at) => instance(`${at}`.padStart(36, '0')))
  expect(announcementText(7, hosts)).toBe('7')
  expect(announcementText(7, hosts.slice(0, 64)).length).toBeGreaterThan(64 * 36)
})

// Goal: both forms are read; any other text is a lost announcement.
test('reading', () => {
  expect(readAnnouncement('7')).toEqual({ version: 7, hostIds: null })
  expect(readAnnouncement('7:')).toEqual({ version: 7, hostIds: [] })
  expect(readAnnouncement('7:a,b')).toEqual({ version: 7, hostIds: ['a', 'b'] })
  for (const text of [undefined, '', ':a', 'x', '-1', '7 a', '9999999999999999']) {
    expect(readAnnouncement(text)).toBeNull()
  }
})
