// Goal: an operator changes what a key may do, field by field; each change is one event, and none is too much for the
// gateway.

import { expect, test } from 'bun:test'
import { systemRandom } from '../../src/base/ids.ts'
import { offeredModels } from '../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { revokeGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { openLedger, prefixOf } from '../rigs/gateway/keys.ts'

function opened(unpricedModels: readonly string[] = []) {
  const ledger = openLedger()
  const admin = asRoot(
    createAdmin({
      ...NO_ADMINISTRATORS,
      offeredModels: offeredModels([
        { models: ['inside'], isInside: true },
        { models: ['outside'], isInside: false },
      ]),
      unpricedModels,
      store: ledger.store,
      clock: ledger.clock,
      random: systemRandom,
      log: ledger.log,
      mintGatewayKey,
      gateway: 'off',
      collectors: [],
    } as unknown as AdminDeps),
  )
  const post = async (path: string, body: unknown) => {
    const headers = { 'content-type': 'application/json' }
    const response = await admin(
      new Request(`http://admin${path}`, { method: 'POST', headers, body: JSON.stringify(body) }),
    )
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  const kinds = () =>
    listEvents(ledger.store.ledger.db, { limit: 100 }).map(event => [event.kind, event.detail.changed])
  return { ledger, post, kinds, [Symbol.dispose]: () => ledger[Symbol.dispose]() }
}

test('goal: what is left out stays, null is the default, and only a change is an event', async () => {
  using the = opened()
  const prefix = prefixOf(the.ledger.addKey({ tokensPerMinute: 5, models: ['tiny'] }))
  const set = (body: unknown) => the.post(`/gateway-keys/${prefix}/terms`, body)
  expect(await set({ requests_per_minute: 7 })).toMatchObject({
    status: 200,
    body: { requests_per_minute: 7, tokens_per_minute: 5, models: ['tiny'], aliases: null },
  })
  expect((await set({ requests_per_minute: 7 })).status).toBe(200)
  expect((await set({})).status).toBe(200)
  expect(await set({ tokens_per_minute: null, models: null })).toMatchObject({
    body: { requests_per_minute: 7, tokens_per_minute: null, models: null },
  })
  expect(the.kinds()).toEqual([
    ['gateway_key.changed', ['tokensPerMinute', 'models']],
    ['gateway_key.changed', ['requestsPerMinute']],
  ])
})

test('goal: what cannot be is refused with its field and changes nothing', async () => {
  using the = opened()
  const prefix = prefixOf(the.ledger.addKey({ models: ['tiny'] }))
  const set = async (body: unknown, of = prefix) => {
    const answer = await the.post(`/gateway-keys/${of}/terms`, body)
    const error = answer.body.error as { code: string; param?: string }
    return [answer.status, error.code, error.param]
  }
  for (const alias of [
    { name: 'a', model: 'big' },
    { name: 'inside', model: 'big' },
    { name: 'a', model: 'outside' },
  ]) {
    expect(await set({ aliases: [alias] })).toEqual([400, 'invalid_request', 'aliases'])
  }
  expect(await set({ models: ['a\nb'] })).toMatchObject([400, 'invalid_request', expect.any(String)])
  expect(await set({ expires_at: '2001-01-01' })).toEqual([400, 'invalid_request', 'expires_at'])
  expect(await set({ requests_per_minute: 0 })).toEqual([400, 'invalid_request', 'requests_per_minute'])
  expect(await set({ nonsense: 1 })).toMatchObject([400, 'invalid_request', expect.any(String)])
  expect(await set({}, 'zzzzzzzz')).toEqual([404, 'not_found', 'prefix'])
  revokeGatewayKey(the.ledger.store.db, { prefix, nowMs: 1 })
  expect(await set({ models: null })).toEqual([409, 'conflict', 'prefix'])
  expect(the.kinds()).toEqual([])
})

test('goal: the rules of all keys together stay within what the gateway’s VM is told at once', async () => {
  using the = opened()
  const names = (tag: string) => Array.from({ length: 32 }, (_, at) => `${tag}${at}`.padEnd(256, 'x'))
  const models = names('m')
  const aliases = names('a').map((name, at) => ({ name, model: models[at] ?? '' }))
  // Each has 26 KB of rules: 8 MiB of them are less than 400 keys.
  for (let count = 0; count < 400; count += 1) the.ledger.addKey({ models, aliases })
  const prefix = prefixOf(the.ledger.addKey())
  const answer = await the.post(`/gateway-keys/${prefix}/terms`, { models, aliases })
  expect([answer.status, answer.body.error]).toEqual([409, expect.objectContaining({ param: 'models' })])
  const plain = await the.post(`/gateway-keys/${prefix}/terms`, { requests_per_minute: 3 })
  expect(plain.status).toBe(200)
})

test('goal: a budget in dollars needs a price for each model of the key, or of the gateway for an organization', async () => {
  using the = opened(['outside'])
  const prefix = prefixOf(the.ledger.addKey({ models: ['inside'] }))
  const set = async (body: unknown, path = `/gateway-keys/${prefix}/terms`) => {
    const answer = await the.post(path, body)
    return [answer.status, (answer.body.error as { param?: string } | undefined)?.param]
  }
  expect(await set({ budget_usd: '5' })).toEqual([200, undefined])
  expect(await set({ models: null })).toEqual([400, 'models'])
  expect(await set({ models: null, budget_usd: null })).toEqual([200, undefined])
  expect(await set({ budget_day_usd: '5' })).toEqual([400, 'budget_day_usd'])
  expect(await set({ budget_usd: '5' }, `/organizations/acme/budget`)).toEqual([400, 'budget_usd'])
  expect(await set({ budget_tokens: 5 }, `/organizations/acme/budget`)).toEqual([200, undefined])
})
