// Goal: a bill has each millisecond for which an instance was ready exactly once, by instance, day and organization,
// and never lacks what was removed without a word.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import {
  type AdminInstanceHours,
  type HourGroup,
  instanceHoursCsv,
  instanceHoursText,
} from '../../src/contract/admin/organizations/instance-hours.ts'
import { usageDaysOf } from '../../src/contract/http/usage-rows.ts'
import { exportInstanceHours } from '../../src/instances/hours.ts'
import { openStore } from '../../src/store/db.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { insertOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'

const at = (text: string) => Date.parse(`${text}Z`)
const hourMs = 3_600_000
const none = { organization: null, instance: null, instance_id: null, day: null }

/** With the organizations acme and globex, which signed up on 1 November. */
function opened({ now = '2026-11-30T00:00', signup = '2026-11-01T00:00', keptDays = 30, removed = '' } = {}) {
  const store = openStore(':memory:')
  const { db } = store.directory
  for (const slug of ['acme', 'globex']) insertOrganization(db, { id: `o-${slug}`, slug, nowMs: at(signup) })
  /** An instance that is ready at one time, and at another terminating; null: it still runs. */
  const add = (slug: string, name: string, ready: string, end: string | null, state: 'terminating' | 'failed') => {
    const id = `i-${slug}-${name}`
    const row = { id, name, organizationId: `o-${slug}`, hostId: store.hostId, hostname: `${name}.${slug}` }
    const terms = { agent: 'opencode', publicKey: 'k', inferenceMode: 'm', inferenceModel: 'm', vmId: null } as const
    insertInstance(db, { ...row, ...terms, platform: 'tcg', nowMs: at(ready) - 60_000 })
    moveInstance(db, { id, from: 'provisioning', to: 'ready', nowMs: at(ready), readyAtMs: at(ready) })
    if (end !== null) moveInstance(db, { id, from: 'ready', to: state, nowMs: at(end) })
  }
  const hours = (from: string, to: string, by: HourGroup[], slugs = ['acme', 'globex']) =>
    exportInstanceHours(
      {
        db,
        clock: { nowMs: () => at(now), sleep: async () => {} },
        keptDays,
        removedBeforeMs: removed === '' ? 0 : at(removed),
      },
      {
        organizations: listOrganizations(db).filter(({ slug }) => slugs.includes(slug)),
        days: usageDaysOf({ from, to }),
        by: new Set(by),
      },
    )
  return { add, hours, [Symbol.dispose]: () => store.close() }
}

const shown = ({ rows }: AdminInstanceHours) =>
  rows.map(row => [row.organization, row.instance, row.day, row.ready_ms / hourMs])

test('goal: hours are those between ready and the next change, cut at the days of the query and at midnight', async () => {
  using the = opened()
  the.add('acme', 'aaaaaaa1', '2026-11-09T22:00', '2026-11-11T01:30', 'terminating')
  the.add('acme', 'aaaaaaa2', '2026-11-10T10:00', '2026-11-10T11:00', 'failed')
  the.add('globex', 'bbbbbbb1', '2026-11-29T18:00', null, 'failed')
  const all = await the.hours('2026-11-01', '2026-11-30', ['organization', 'instance'])
  expect(all).toEqual({
    from: '2026-11-01',
    to: '2026-11-30',
    counted_to: '2026-11-30T00:00:00.000Z',
    by: ['organization', 'instance'],
    rows: [
      ['acme', 'aaaaaaa1', 27.5, '27.500000'],
      ['acme', 'aaaaaaa2', 1, '1.000000'],
      ['globex', 'bbbbbbb1', 6, '6.000000'],
    ].map(([organization, instance, hours, instance_hours]) => ({
      ...{ organization: String(organization), instance: String(instance), day: null },
      ...{ instance_id: `i-${organization}-${instance}`, ready_ms: Number(hours) * hourMs },
      instance_hours: String(instance_hours),
    })),
    total: { ready_ms: 34.5 * hourMs, instance_hours: '34.500000' },
  })
  expect(shown(await the.hours('2026-11-10', '2026-11-10', ['instance', 'day']))).toEqual([
    [null, 'aaaaaaa1', '2026-11-10', 24],
    [null, 'aaaaaaa2', '2026-11-10', 1],
  ])
  expect(shown(await the.hours('2026-11-09', '2026-11-11', ['day'], ['acme']))).toEqual([
    [null, null, '2026-11-09', 2],
    [null, null, '2026-11-10', 25],
    [null, null, '2026-11-11', 1.5],
  ])
  expect(await the.hours('2026-11-12', '2026-11-13', [])).toMatchObject({ rows: [], total: { ready_ms: 0 } })
  expect((await the.hours('2026-11-01', '2026-11-30', [], ['globex'])).rows).toEqual([
    { ...none, ready_ms: 6 * hourMs, instance_hours: '6.000000' },
  ])
})

test('goal: days of which records may be removed are refused with the first complete one, unless all is newer', async () => {
  const refused = async (signup: string, from: string) => {
    using the = opened({ now: '2026-11-30T12:00', signup })
    try {
      await the.hours(from, '2026-11-30', [])
      return 'complete'
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      return `${error.code} ${error.param}: ${error.message}`
    }
  }
  // The longest period of billing, 31 days, is kept at least.
  const message =
    'records of ended instances are kept for 31 days (instances.retention_days = 30), and removed ones do not come back, so the hours before 2026-10-31 may be incomplete; begin at 2026-10-31, export more often, or keep records for longer'
  expect(await refused('2026-09-01T00:00', '2026-10-30')).toBe(`invalid_request from: ${message}`)
  expect(await refused('2026-09-01T00:00', '2026-10-31')).toBe('complete')
  expect(await refused('2026-11-01T00:00', '2026-09-01')).toBe('complete')
})

test('goal: a longer retention does not bring back records that a shorter one removed', async () => {
  const old = { signup: '2026-09-01T00:00', keptDays: 62 }
  using whole = opened(old)
  expect((await whole.hours('2026-10-01', '2026-10-31', [])).total.ready_ms).toBe(0)
  using removed = opened({ ...old, removed: '2026-10-15T00:00' })
  await expect(removed.hours('2026-10-01', '2026-10-31', [])).rejects.toThrow('begin at 2026-10-15')
  expect((await removed.hours('2026-10-15', '2026-10-31', [])).total.ready_ms).toBe(0)
})

test('goal: hours are rounded down, and a spreadsheet gets the requested columns', () => {
  expect([0, 1, 3_599_999, 3_600_000, 90_000_001].map(instanceHoursText)).toEqual([
    '0.000000',
    '0.000000',
    '0.999999',
    '1.000000',
    '25.000000',
  ])
  const row = { organization: 'acme', instance: 'aaaaaaa1', instance_id: 'i', day: '2026-11-10' }
  const rows = [{ ...row, ready_ms: 1_800_000, instance_hours: '0.500000' }]
  expect(instanceHoursCsv({ by: ['organization', 'instance'], rows })).toBe(
    'organization,instance,instance_id,ready_ms,instance_hours\r\nacme,aaaaaaa1,i,1800000,0.500000\r\n',
  )
  expect(instanceHoursCsv({ by: ['day'], rows })).toBe('day,ready_ms,instance_hours\r\n2026-11-10,1800000,0.500000\r\n')
})
