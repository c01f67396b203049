// Goal: an operator sets quotas of an organization one by one; each change is on record, and nonsense names its field.

import { expect, test } from 'bun:test'
import { systemRandom } from '../../src/base/ids.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { openLedger } from '../rigs/gateway/keys.ts'

const NONE = { instances: null, creates_per_day: null, builds: null, builds_per_day: null, memory_mib: null }

/** With the organizations acme and globex. */
function opened() {
  const ledger = openLedger()
  const { store, clock, log } = ledger
  const deps = { ...NO_ADMINISTRATORS, store, clock, log, random: systemRandom, gateway: 'off', collectors: [] }
  const admin = asRoot(createAdmin(deps as unknown as AdminDeps))
  const ask = async (method: string, path: string, body?: unknown) => {
    const headers = { 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const response = await admin(new Request(`http://admin${path}`, { method, headers, ...sent }))
    return { status: response.status, body: (await response.json()) as { quotas?: unknown } }
  }
  const set = (body: unknown, slug = 'acme') => ask('POST', `/organizations/${slug}/quotas`, body)
  return { ledger, ask, set, [Symbol.dispose]: () => ledger[Symbol.dispose]() }
}

test('goal: quotas are set, kept and removed one by one, and another organization has its own', async () => {
  using the = opened()
  expect((await the.set({ instances: 5, memory_mib: 16_384 })).body.quotas).toEqual({
    ...NONE,
    instances: 5,
    memory_mib: 16_384,
  })
  expect((await the.set({ builds: 0 })).body.quotas).toEqual({ ...NONE, instances: 5, builds: 0, memory_mib: 16_384 })
  expect((await the.set({ instances: null, builds: null, memory_mib: null })).body.quotas).toEqual(NONE)
  await the.set({ creates_per_day: 7 })
  await the.set({ creates_per_day: 7 })
  expect((await the.ask('GET', '/organizations/acme')).body.quotas).toEqual({ ...NONE, creates_per_day: 7 })
  expect((await the.ask('GET', '/organizations/globex')).body.quotas).toEqual(NONE)
  const noted = listEvents(the.ledger.store.ledger.db, { limit: 100 }).filter(({ kind }) => kind.includes('quotas'))
  expect(noted.map(({ kind, detail }) => [kind, detail]).toReversed()).toEqual([
    ['organization.quotas_changed', { slug: 'acme', instances: 5, memory_mib: 16_384 }],
    ['organization.quotas_changed', { slug: 'acme', builds: 0 }],
    ['organization.quotas_changed', { slug: 'acme', instances: null, builds: null, memory_mib: null }],
    ['organization.quotas_changed', { slug: 'acme', creates_per_day: 7 }],
  ])
})

test('goal: a quota out of its range is refused by its name, and an unknown one or organization too', async () => {
  using the = opened()
  for (const [name, value] of [
    ['instances', -1],
    ['instances', 1.5],
    ['instances', '5'],
    ['instances', 100_001],
    ['creates_per_day', 0],
    ['builds_per_day', 0],
    ['memory_mib', 67_108_865],
    ['vms', 5],
  ] as const) {
    expect([name, value, await the.set({ [name]: value })]).toMatchObject([
      name,
      value,
      { status: 400, body: { error: { code: 'invalid_request', param: name } } },
    ])
  }
  expect((await the.set({ instances: 1 }, 'nobody')).status).toBe(404)
  expect((await the.ask('GET', '/organizations/acme')).body.quotas).toEqual(NONE)
})
