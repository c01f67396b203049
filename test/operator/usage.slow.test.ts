// Goal: the operator has the usage of an organization by key, model and day exactly, within bounds, whatever the
// ledger holds: real SQLite.

import { expect, test } from 'bun:test'
import { Fault } from '../../src/base/fault.ts'
import { usageRowsMax } from '../../src/contract/http/usage-rows.ts'
import { exportUsage, usageRoutes } from '../../src/operator/usage.ts'
import { insertGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { prepareUsageAppend, sumUsage } from '../../src/store/directory/usage/usage.query.ts'
import type { Usage } from '../../src/store/directory/usage/usage.table.ts'
import { openLedger } from '../rigs/gateway/keys.ts'
import { usageRow } from '../rigs/gateway/usage-rows.ts'

const at = (text: string) => Date.parse(`${text}Z`)
function opened(rows: readonly Usage[]) {
  const ledger = openLedger()
  ledger.store.transact(() => prepareUsageAppend(ledger.store.db)(rows))
  const deps = { store: { directory: ledger.store.directory }, clock: { sleep: async () => {} } }
  const ask = (from: string, to: string, by?: string) =>
    exportUsage(deps, 'acme', { from, to, ...(by === undefined ? {} : { by }) })
  return { ledger, deps, ask, [Symbol.dispose]: () => ledger[Symbol.dispose]() }
}

test('goal: days are those of UTC, both ends included, and other organizations have no part', async () => {
  using the = opened([
    usageRow({ id: '1', atMs: at('2026-11-01T00:00:00.000') }),
    usageRow({ id: '2', atMs: at('2026-11-01T23:59:59.999'), model: 'big' }),
    usageRow({ id: '3', atMs: at('2026-11-02T00:00:00.000'), keyPrefix: 'k2' }),
    usageRow({ id: '4', atMs: at('2026-10-31T23:59:59.999') }),
    usageRow({ id: '5', atMs: at('2026-11-03T00:00:00.000') }),
    usageRow({ id: '6', organizationId: 'o2', atMs: at('2026-11-01T12:00') }),
  ])
  const none = { user: null, tags: null }
  const sums = { ...none, requests: 1, prompt_tokens: 10, completion_tokens: 5, cost_usd: '0.000000007' }
  expect(await the.ask('2026-11-01', '2026-11-02')).toEqual({
    organization: 'acme',
    key_names: {},
    from: '2026-11-01',
    to: '2026-11-02',
    by: ['key', 'model', 'day'],
    rows: [
      { day: '2026-11-01', key: 'k1', model: 'big', ...sums },
      { day: '2026-11-01', key: 'k1', model: 'tiny', ...sums },
      { day: '2026-11-02', key: 'k2', model: 'tiny', ...sums },
    ],
    total: { requests: 3, prompt_tokens: 30, completion_tokens: 15, cost_usd: '0.000000021' },
  })
  expect((await the.ask('2026-11-01', '2026-11-02', 'key')).rows).toEqual([
    {
      day: null,
      key: 'k1',
      model: null,
      ...sums,
      requests: 2,
      prompt_tokens: 20,
      completion_tokens: 10,
      cost_usd: '0.000000014',
    },
    { day: null, key: 'k2', model: null, ...sums },
  ])
  expect((await the.ask('2026-12-01', '2026-12-31')).rows).toEqual([])
})

test('goal: what is read in many pieces has the same sums as the ledger, many rows of one millisecond too', async () => {
  const rows = Array.from({ length: 12_345 }, (_, index) =>
    usageRow({
      id: `r${index}`,
      promptTokens: index,
      model: `m${index % 7}`,
      // More rows than a piece has are of one millisecond.
      atMs: index < 6_000 ? at('2026-11-05T00:00') : at('2026-11-06T00:00') + index * 1000,
    }),
  )
  using the = opened(rows)
  const found = await the.ask('2026-11-01', '2026-11-30', 'model,day')
  const whole = sumUsage(the.ledger.store.db, { organizationId: 'o1', startMs: 0, endMs: at('2027-01-01T00:00') })
  expect(found.total).toMatchObject({ requests: 12_345, prompt_tokens: Number(whole.promptTokens) })
  expect(found.rows.reduce((sum, row) => sum + row.prompt_tokens, 0)).toBe(Number(whole.promptTokens))
  expect(found.rows).toHaveLength(14)
})

test('goal: what cannot be asked for is refused with the field, and so are more rows than one response has', async () => {
  const many = Array.from({ length: usageRowsMax + 1 }, (_, index) => usageRow({ id: `r${index}`, model: `m${index}` }))
  using the = opened(many)
  const refused = async (from: string, to: string, by?: string) => {
    const error = await the.ask(from, to, by).catch((caught: unknown) => caught)
    return error instanceof Fault ? [error.code, error.param] : error
  }
  expect(await refused('2026-11-31', '2026-12-01')).toEqual(['invalid_request', 'from'])
  expect(await refused('2026-11-01', '20261201')).toEqual(['invalid_request', 'to'])
  expect(await refused('2026-11-02', '2026-11-01')).toEqual(['invalid_request', 'to'])
  expect(await refused('2025-01-01', '2026-11-01')).toEqual(['invalid_request', 'to'])
  expect(await refused('2026-11-01', '2026-11-30', 'key,upstream')).toEqual(['invalid_request', 'by'])
  expect(await refused('2026-11-01', '2026-11-30', 'model')).toEqual(['invalid_request', 'by'])
  expect((await the.ask('2026-11-01', '2026-11-30', 'key')).rows).toHaveLength(1)
})

test('goal: the same as CSV', async () => {
  using the = opened([usageRow({ id: '1', model: '@tiny' })])
  const response = await usageRoutes(the.deps).fetch(
    new Request('http://admin/organizations/acme/usage.csv?from=2026-11-01&to=2026-11-30&by=model,day'),
  )
  expect(response.headers.get('content-type')).toBe('text/csv; charset=utf-8')
  expect((await response.text()).split('\r\n')[1]).toBe("2026-11-22,'@tiny,1,10,5,0.000000007")
})

test('goal: by end user and by tags, with those that have none in a row of their own', async () => {
  const tags = '{"team":"blue"}'
  using the = opened([
    usageRow({ id: '1', endUser: 'ann', tags }),
    usageRow({ id: '2', endUser: 'ann' }),
    usageRow({ id: '3', endUser: '=1+1', tags }),
    usageRow({ id: '4' }),
  ])
  const by = async (groups: string) =>
    (await the.ask('2026-11-01', '2026-11-30', groups)).rows.map(({ user, tags, requests }) => [user, tags, requests])
  expect(await by('user')).toEqual([
    ['=1+1', null, 1],
    ['ann', null, 2],
    [null, null, 1],
  ])
  expect(await by('tags')).toEqual([
    [null, tags, 2],
    [null, null, 2],
  ])
  expect(await by('tags,user')).toContainEqual(['ann', tags, 1])
  const csv = await usageRoutes(the.deps).fetch(
    new Request('http://admin/organizations/acme/usage.csv?from=2026-11-01&to=2026-11-30&by=user,tags'),
  )
  expect((await csv.text()).split('\r\n').slice(0, 2)).toEqual([
    'user,tags,requests,prompt_tokens,completion_tokens,cost_usd',
    `'=1+1,"{""team"":""blue""}",1,10,5,0.000000007`,
  ])
})

test('goal: usage names the keys of the organization, without those of others', async () => {
  using the = opened([])
  const { db } = the.ledger.store
  for (const [organizationId, prefix, name] of [
    ['o1', 'named000', 'ci'],
    ['o1', 'bare0000', null],
    ['o2', 'theirs00', 'theirs'],
  ] as const) {
    const limits = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
    const secretSha256 = new Uint8Array(32)
    insertGatewayKey(db, { ...limits, organizationId, prefix, name, secretSha256, instanceId: null, nowMs: 1 })
  }
  expect((await the.ask('2026-11-01', '2026-11-02')).key_names).toEqual({ named000: 'ci' })
})
