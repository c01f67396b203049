// Another model that answers where no upstream of the first does.

import { expect, test } from 'bun:test'
import { startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { sendJson, startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { NO_RULES } from '../../../src/contract/key-rules.ts'
import { BusyFault } from '../../../src/inference/failure.ts'
import { modelsToTry, servedModels } from '../../../src/inference/gateway/models.ts'
import { NO_BUDGETS } from '../../../src/inference/metering/budgets.ts'

async function two() {
  const stack = new AsyncDisposableStack()
  const large = await startUpstream((response, _seen, _gone) => sendJson(response, 500, {}))
  const small = await startUpstream()
  stack.defer(large.stop)
  stack.defer(small.stop)
  const upstreams = [target(large.url, { models: ['large'] }), target(small.url, { models: ['small'] })]
  return { large, small, upstreams, [Symbol.asyncDispose]: () => stack.disposeAsync() }
}

const fallbacks = [{ model: 'large', fallback: 'small' }]
type Answered = { readonly model?: string; readonly error?: { readonly code: string } }

// Goal: the response, its stream and the ledger name the model that answered; the failing one costs nothing.
test('the response and the books name the model that answered', async () => {
  await using rig = await two()
  await using gateway = startHostGateway(rig.upstreams, { limits: { fallbacks } })
  const response = await gateway.chat({ model: 'large' })
  expect([response.status, ((await response.json()) as Answered).model]).toEqual([200, 'small'])
  const stream = await (await gateway.chat({ model: 'large', stream: true })).text()
  expect(stream).toContain('"model":"small"')
  expect(stream).not.toContain('"model":"large"')
  const records = await gateway.records()
  expect(records.map(({ model, outcome }) => [model, outcome])).toEqual([
    ['small', 'completed'],
    ['small', 'completed'],
  ])
  expect(rig.large.seen.length).toBeGreaterThan(0)
})

// Goal: where both fail the client gets the failure; requests at fault, and models without a fallback, get no other
// model; a key that may not use the fallback does not get it.
test('only as configured', async () => {
  await using rig = await two()
  await using gateway = startHostGateway(rig.upstreams, { limits: { fallbacks } })
  expect((await gateway.chat({ model: 'large', max_tokens: -1 })).status).toBe(400)
  expect(rig.small.seen).toEqual([])
  await using without = startHostGateway(rig.upstreams)
  expect((await without.chat({ model: 'large' })).status).toBe(502)
  const rules = { ...NO_RULES, models: ['large'] }
  await using limited = startHostGateway(rig.upstreams, { limits: { fallbacks }, caller: { rules } })
  expect((await limited.chat({ model: 'large' })).status).toBe(502)
  expect(rig.small.seen).toEqual([])
  rig.small.behave = response => sendJson(response, 500, {})
  expect((await gateway.chat({ model: 'large' })).status).toBe(502)
})

// Goal: a budget has room for one of the two, and is charged for the one that answered.
test('budgets', async () => {
  await using rig = await two()
  const contextTokens = 1_000
  const upstreams = rig.upstreams.map(upstream => ({ ...upstream, contextTokens }))
  const budgets = { ...NO_BUDGETS, key: { nanoUsd: null, tokens: 1_600 } }
  await using gateway = startHostGateway(upstreams, { limits: { fallbacks }, caller: { budgets } })
  expect((await gateway.chat({ model: 'large', max_tokens: 8 })).status).toBe(200)
})

// Goal: a canary answers its share, by name, and where it fails the model that was asked for does.
test('a canary', async () => {
  await using rig = await two()
  const canary = [{ model: 'small', fallback: 'large', canaryPercent: 100 }]
  await using failing = startHostGateway(rig.upstreams, { limits: { fallbacks: canary } })
  expect(((await (await failing.chat({ model: 'small' })).json()) as Answered).model).toBe('small')
  expect(rig.large.seen.length).toBeGreaterThan(0)
  const models = servedModels(rig.upstreams, new Set(), [{ model: 'small', fallback: 'large', canaryPercent: 5 }])
  const first = (draw: number) => modelsToTry(models, { rules: NO_RULES, model: 'small' }, () => draw)
  expect([first(0), first(0.0499), first(0.05), first(0.999)]).toEqual([
    ['large', 'small'],
    ['large', 'small'],
    ['small', 'large'],
    ['small', 'large'],
  ])
  const rules = { ...NO_RULES, models: ['small'] }
  expect(modelsToTry(models, { rules, model: 'small' }, () => 0)).toEqual(['small'])
})

// Goal: a full queue of signatures is the gateway's own state: the request is refused, no other model is tried, and the
// log names none.
test('a full queue of signatures', async () => {
  await using rig = await two()
  let begun = 0
  const begin = () => {
    begun += 1
    throw new BusyFault('256 responses wait for their receipts to be signed.', 1)
  }
  await using gateway = startHostGateway(rig.upstreams, { limits: { fallbacks }, host: { sealer: { begin } } })
  const answer = await gateway.chat({ model: 'large' }, { headers: { 'x-strongroom-receipt': '1' } })
  expect([answer.status, begun]).toEqual([429, 1])
  expect((await gateway.log()).filter(line => line.includes('another model answers'))).toEqual([])
  expect([...rig.large.seen, ...rig.small.seen]).toEqual([])
})

// Goal: whatever the settings say, a prompt for a model inside goes to no model outside, and none for completions to
// one that makes embeddings.
test('no fallback leads out of the measured VM', () => {
  const upstreams = [
    { name: 'worker', models: ['inside', 'second'], embeddingModels: [] },
    { name: 'far', models: ['outside', 'other', 'vectors'], embeddingModels: ['vectors'] },
  ]
  const asked = [
    { model: 'inside', fallback: 'outside' },
    { model: 'second', fallback: 'inside' },
    { model: 'outside', fallback: 'inside' },
    { model: 'other', fallback: 'vectors' },
  ]
  expect([...servedModels(upstreams, new Set(['worker']), asked).fallbacks]).toEqual([
    ['second', { fallback: 'inside' }],
    ['outside', { fallback: 'inside' }],
  ])
})
