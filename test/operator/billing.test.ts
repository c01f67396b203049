// Goal: an operator gets instance-hours as JSON and CSV, of one organization or of all with deleted ones, and a bad
// query is refused by its field before anything is summed.

import { expect, test } from 'bun:test'
import { systemRandom } from '../../src/base/ids.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps, InstanceHoursQuery } from '../../src/operator/deps.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { openLedger } from '../rigs/gateway/keys.ts'

/** With the organizations acme and globex, and a summing function that records its queries. */
function opened() {
  const ledger = openLedger()
  const { store, clock, log } = ledger
  const summed: unknown[] = []
  const instanceHours = async ({ organizations, days, by }: InstanceHoursQuery) => {
    summed.push([organizations.map(({ slug }) => slug), days.from, days.to, [...by]])
    const total = { ready_ms: 36_000, instance_hours: '0.010000' }
    const row = { organization: 'acme', instance: null, instance_id: null, day: null, ...total }
    return { from: days.from, to: days.to, counted_to: '2026-11-30T00:00:00.000Z', by: [...by], rows: [row], total }
  }
  const deps = { ...NO_ADMINISTRATORS, store, clock, log, random: systemRandom, gateway: 'off', collectors: [] }
  const admin = asRoot(createAdmin({ ...deps, instanceHours } as unknown as AdminDeps))
  const ask = async (query: string, suffix = '') => {
    const response = await admin(new Request(`http://admin/billing/instance-hours${suffix}?${query}`))
    return { status: response.status, type: response.headers.get('content-type'), text: await response.text() }
  }
  return { summed, ask, [Symbol.dispose]: () => ledger[Symbol.dispose]() }
}

const november = 'from=2026-11-01&to=2026-11-30'

test('goal: all organizations or one, by what was asked for, as JSON or CSV', async () => {
  using the = opened()
  expect((await the.ask(november)).status).toBe(200)
  expect(await the.ask(`${november}&by=organization&organization=acme`, '.csv')).toEqual({
    status: 200,
    type: 'text/csv; charset=utf-8',
    text: 'organization,ready_ms,instance_hours\r\nacme,36000,0.010000\r\n',
  })
  expect(the.summed).toEqual([
    [['acme', 'globex'], '2026-11-01', '2026-11-30', ['organization', 'instance']],
    [['acme'], '2026-11-01', '2026-11-30', ['organization']],
  ])
})

test('goal: a bad day, group or organization is refused by its name, and nothing is summed', async () => {
  using the = opened()
  for (const [query, status, param] of [
    ['from=2026-11-31&to=2026-12-01', 400, 'from'],
    ['from=2026-11-02&to=2026-11-01', 400, 'to'],
    ['from=2024-11-02&to=2026-11-01', 400, 'to'],
    ['to=2026-11-01', 400, 'from'],
    [`${november}&by=key`, 400, 'by'],
    [`${november}&organization=nobody`, 404, 'organization'],
  ] as const) {
    const refused = await the.ask(query)
    expect([query, refused.status, JSON.parse(refused.text)]).toMatchObject([query, status, { error: { param } }])
  }
  expect(the.summed).toEqual([])
})
