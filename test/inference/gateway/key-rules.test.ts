// Goal: a key uses its allowed models under its own names for them, and sees no others, wherever the gateway runs.

import { expect, test } from 'bun:test'
import { KEY, MODEL, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { needsHost } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import type { GatewayError, GatewayModelList } from '../../../src/contract/http/inference.ts'
import { eventsOf } from '../../rigs/gateway/openai-schema.ts'

const noAlias = needsHost('no alias leads to an upstream outside where a worker is inside')
test.skipIf(noAlias)(
  'goal: a name of the key’s own is the model behind it for the upstream, the response and the ledger',
  async () => {
    const upstream = await startUpstream()
    const rules = { models: [MODEL], aliases: [{ name: 'gpt-4o', model: MODEL }] }
    await using gateway = await startGateway([target(upstream.url, { models: [MODEL, 'secret'] })], {
      caller: { rules },
    })
    const answer = (await (await gateway.chat({ model: 'gpt-4o', seed: 1 })).json()) as { model: string }
    // As OpenAI does: the model that answered, whatever it was called.
    expect([answer.model, upstream.seen.at(-1)?.body.model, upstream.seen.at(-1)?.body.seed]).toEqual([MODEL, MODEL, 1])
    const stream = await gateway.chat({ model: 'gpt-4o', stream: true })
    const models = eventsOf(await stream.text()).flatMap(event => (event === '[DONE]' ? [] : [JSON.parse(event).model]))
    expect(new Set(models)).toEqual(new Set([MODEL]))
    expect((await gateway.records()).map(record => record.model)).toEqual([MODEL, MODEL])
    const list = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })
    expect(((await list.json()) as GatewayModelList).data.map(({ id }) => id)).toEqual([MODEL, 'gpt-4o'])
    const statusOf = async (id: string) =>
      (await fetch(`${gateway.url}/v1/models/${id}`, { headers: { authorization: `Bearer ${KEY}` } })).status
    expect([await statusOf('gpt-4o'), await statusOf(MODEL), await statusOf('secret')]).toEqual([200, 200, 404])
    await upstream.stop()
  },
)

test('goal: a model that a key may not use is as unknown to it as one that is not there, and costs nothing', async () => {
  const upstream = await startUpstream()
  const rules = { models: [MODEL], aliases: null }
  await using gateway = await startGateway([target(upstream.url, { models: [MODEL, 'secret'] })], { caller: { rules } })
  const errorOf = async (model: string) => {
    const answer = await gateway.chat({ model })
    return [answer.status, ((await answer.json()) as GatewayError).error]
  }
  expect(await errorOf('secret')).toEqual(await errorOf('nowhere'))
  expect((await errorOf('secret'))[0]).toBe(404)
  expect([upstream.seen, await gateway.records()]).toEqual([[], []])
  await upstream.stop()
})
