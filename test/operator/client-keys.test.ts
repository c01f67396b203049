// Goal: an operator registers keys that clients made, by their digests alone; the record, the
// events and every list say who made a key.

import { expect, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { systemRandom } from '../../src/base/ids.ts'
import { AdminGatewayKey, AdminKey } from '../../src/contract/admin/admin.ts'
import { offeredModels } from '../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../src/instances/http/auth.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { findGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { findKey } from '../../src/store/directory/key.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { openLedger } from '../rigs/gateway/keys.ts'

const GATEWAY_TERMS = {
  requests_per_minute: null,
  tokens_per_minute: null,
  concurrency_max: null,
  expires_at: null,
} as const

/** The registration line of a key with this prefix, and of no secret that this test has. */
function lineOf(tag: 'ca' | 'gw', start: string): string {
  return `${tag}_${start.padEnd(8, '0')}_sha256_${'5e'.repeat(32)}`
}

/** With the organizations acme and globex. */
function opened() {
  const ledger = openLedger()
  const admin = asRoot(
    createAdmin({
      ...NO_ADMINISTRATORS,
      offeredModels: offeredModels([]),
      store: ledger.store,
      clock: ledger.clock,
      random: systemRandom,
      log: ledger.log,
      mintKey,
      mintGatewayKey,
      gateway: 'off',
      collectors: [],
    } as unknown as AdminDeps),
  )
  const ask = async (method: string, path: string, body?: unknown) => {
    const headers = { 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const response = await admin(new Request(`http://admin${path}`, { method, headers, ...sent }))
    return { status: response.status, body: (await response.json()) as unknown }
  }
  return { ledger, ask, [Symbol.dispose]: () => ledger[Symbol.dispose]() }
}

test('goal: a key that its client made is stored by its digest, said so everywhere, and no prefix is taken twice', async () => {
  using the = opened()
  const { ask, ledger } = the
  const added = await ask('POST', '/organizations/acme/keys/add', { registration: lineOf('ca', 'mine'), scope: 'read' })
  expect(added).toEqual({
    status: 201,
    body: {
      prefix: 'mine0000',
      name: null,
      organization: 'acme',
      scope: 'read',
      made_by: 'client',
      created_at: expect.any(String),
      last_used_at: null,
      revoked_at: null,
    },
  })
  expect(faultsOf(AdminKey, added.body)).toEqual([])
  expect(findKey(ledger.store.db, 'mine0000')?.secretSha256.toHex()).toBe('5e'.repeat(32))
  const gateway = { ...GATEWAY_TERMS, concurrency_max: 2, budget_usd: '5', registration: lineOf('gw', 'mine') }
  const addedGateway = await ask('POST', '/organizations/acme/gateway-keys/add', gateway)
  expect(faultsOf(AdminGatewayKey, addedGateway.body)).toEqual([])
  expect(addedGateway).toMatchObject({
    status: 201,
    body: { prefix: 'mine0000', made_by: 'client', state: 'active', concurrency_max: 2, budget_usd: '5.000000000' },
  })
  await ask('POST', '/organizations/acme/gateway-keys', GATEWAY_TERMS)
  await ask('POST', '/organizations/acme/keys', { scope: 'read' })
  const makers = async (path: string) => {
    const { keys } = (await ask('GET', `/organizations/acme/${path}`)).body as { keys: { made_by: string }[] }
    return keys.map(key => key.made_by).toSorted()
  }
  expect([await makers('keys'), await makers('gateway-keys')]).toEqual([
    ['client', 'host'],
    ['client', 'host'],
  ])
  const noted = listEvents(ledger.store.ledger.db, { limit: 100 }).map(event => [event.kind, event.detail.made_by])
  expect(noted.filter(([kind]) => String(kind).endsWith('key.created'))).toEqual([
    ['key.created', 'host'],
    ['gateway_key.created', 'host'],
    ['gateway_key.created', 'client'],
    ['key.created', 'client'],
  ])
  // In any organization, and for a revoked key too: its usage and record are under that prefix.
  await ask('POST', '/keys/mine0000/revoke')
  await ask('POST', '/gateway-keys/mine0000/revoke')
  for (const slug of ['acme', 'globex']) {
    const again = [
      await ask('POST', `/organizations/${slug}/keys/add`, { registration: lineOf('ca', 'mine'), scope: 'write' }),
      await ask('POST', `/organizations/${slug}/gateway-keys/add`, {
        ...GATEWAY_TERMS,
        registration: lineOf('gw', 'mine'),
      }),
    ]
    const message =
      'another key has the prefix mine0000; the client has to make a new key and send its registration line'
    const taken = { status: 409, body: { error: { code: 'conflict', message, param: 'registration' } } }
    expect([slug, again]).toEqual([slug, [taken, taken]])
  }
})

test('goal: a line of the other service, a whole key and nonsense are refused with their field, and make no key', async () => {
  using the = opened()
  const { ask } = the
  const key = mintKey(systemRandom).key
  for (const registration of [lineOf('gw', 'b'), key, `Bearer ${key}`, 'nonsense', '', 'x'.repeat(257), 5, null]) {
    const answer = await ask('POST', '/organizations/acme/keys/add', { registration, scope: 'read' })
    expect([registration, answer]).toMatchObject([
      registration,
      { status: 400, body: { error: { code: 'invalid_request', param: 'registration' } } },
    ])
    expect(JSON.stringify(answer)).not.toContain(key.split('_')[2] ?? '?')
  }
  expect((await ask('GET', '/organizations/acme/keys')).body).toEqual({ keys: [] })
  const recorded = JSON.stringify((await ask('GET', '/events?limit=50')).body)
  expect(recorded).toContain('key.add')
  expect(recorded).not.toContain(key.split('_')[2] ?? '?')
})

function faultsOf(schema: TSchema, body: unknown): unknown[] {
  return [...Value.Errors(schema, body)]
}

test('goal: budgets of a day and a week are set, kept, changed and removed one by one, for keys and organizations', async () => {
  using the = opened()
  const { ask, ledger } = the
  const terms = { ...GATEWAY_TERMS, budget_day_usd: '5', budget_week_tokens: 900, registration: lineOf('gw', 'days') }
  const added = await ask('POST', '/organizations/acme/gateway-keys/add', terms)
  expect([added.status, faultsOf(AdminGatewayKey, added.body)]).toEqual([201, []])
  expect(added.body).toMatchObject({
    budget_usd: null,
    budget_day_usd: '5.000000000',
    budget_day_tokens: null,
    day_cost_usd: '0.000000000',
    day_tokens: 0,
    budget_week_usd: null,
    budget_week_tokens: 900,
    week_tokens: 0,
  })
  const set = async (body: object) => (await ask('POST', '/gateway-keys/days0000/terms', body)).body
  expect(await set({ budget_day_tokens: 7 })).toMatchObject({ budget_day_usd: '5.000000000', budget_day_tokens: 7 })
  const left = await set({ budget_day_usd: null, budget_day_tokens: null })
  expect(left).toMatchObject({ budget_week_tokens: 900 })
  expect(left).not.toHaveProperty('budget_day_usd')
  expect(findGatewayKey(ledger.store.db, 'days0000')?.shortBudgets).toEqual({ week: { nanoUsd: null, tokens: 900 } })
  await set({ budget_week_tokens: null })
  expect(findGatewayKey(ledger.store.db, 'days0000')?.shortBudgets).toBeNull()
  const budget = async (body: object) => (await ask('POST', '/organizations/acme/budget', body)).body
  expect(await budget({ budget_week_usd: '12.5' })).toMatchObject({ budget_usd: null, budget_week_usd: '12.500000000' })
  expect(await budget({ budget_usd: '40' })).toMatchObject({ budget_week_usd: '12.500000000' })
  expect((await ask('POST', '/organizations/acme/budget', { budget_day_usd: '1e3' })).status).toBe(400)
})

test('goal: a key keeps its name in every list and record, and no other valid key of the organization takes it', async () => {
  using the = opened()
  const { ask, ledger } = the
  const kinds = [
    { path: 'keys', tag: 'ca', terms: { scope: 'read' } },
    { path: 'gateway-keys', tag: 'gw', terms: GATEWAY_TERMS },
  ] as const
  for (const { path, tag, terms } of kinds) {
    const made = await ask('POST', `/organizations/acme/${path}`, { ...terms, name: 'ci' })
    expect(made).toMatchObject({ status: 201, body: { name: 'ci' } })
    const { prefix } = made.body as { prefix: string }
    const registered = { ...terms, registration: lineOf(tag, 'lap'), name: 'laptop-2' }
    expect(await ask('POST', `/organizations/acme/${path}/add`, registered)).toMatchObject({
      status: 201,
      body: { name: 'laptop-2' },
    })
    const message = `key ${prefix} of the organization is named ci already; choose another name, or revoke that key first`
    const taken = { status: 409, body: { error: { code: 'conflict', message, param: 'name' } } }
    expect(await ask('POST', `/organizations/acme/${path}`, { ...terms, name: 'ci' })).toEqual(taken)
    const again = { ...terms, registration: lineOf(tag, 'more'), name: 'ci' }
    expect(await ask('POST', `/organizations/acme/${path}/add`, again)).toEqual(taken)
    // Another organization has names of its own, and a revoked key gives its name back.
    expect((await ask('POST', `/organizations/globex/${path}`, { ...terms, name: 'ci' })).status).toBe(201)
    expect((await ask('POST', `/${path}/${prefix}/revoke`)).body).toMatchObject({ name: 'ci' })
    expect((await ask('POST', `/organizations/acme/${path}/add`, again)).status).toBe(201)
    const { keys } = (await ask('GET', `/organizations/acme/${path}`)).body as { keys: { name: string }[] }
    expect(keys.map(({ name }) => name).toSorted()).toEqual(['ci', 'ci', 'laptop-2'])
  }
  const noted = listEvents(ledger.store.ledger.db, { limit: 100 }).map(({ kind, detail }) => `${kind} ${detail.name}`)
  expect(noted.filter(text => text.endsWith(' ci')).toSorted()).toEqual(
    ['key', 'gateway_key']
      .flatMap(kind => [...Array<string>(3).fill(`${kind}.created ci`), `${kind}.revoked ci`])
      .toSorted(),
  )
})

test('goal: a name that a shell or a terminal would read otherwise is refused in words, and makes no key', async () => {
  using the = opened()
  const { ask } = the
  for (const name of ['', '-rf', 'a b', 'a\u001b[2J', 'é', 'x'.repeat(65), "a'b", '.hidden', 'a\n']) {
    for (const [path, terms] of [
      ['keys', { scope: 'read' }],
      ['gateway-keys', GATEWAY_TERMS],
    ] as const) {
      const refused = await ask('POST', `/organizations/acme/${path}`, { ...terms, name })
      expect([name, refused]).toMatchObject([
        name,
        { status: 400, body: { error: { code: 'invalid_request', param: 'name' } } },
      ])
      expect([name, (await ask('GET', `/organizations/acme/${path}`)).body]).toEqual([name, { keys: [] }])
    }
  }
})
