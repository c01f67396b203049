// Clients that leave: how soon the upstream is free, what is charged, and what is left; in each API.

import { describe, expect, test } from 'bun:test'
import { chatBody, eachWithGateway, KEY, type TestGateway } from '../../../../scripts/rigs/gateway/server.ts'
import { chargedTo, viewOf } from '../../../../scripts/rigs/gateway/test-gateway.ts'
import type { Behaviour, TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { watchWithheld } from '../../../../scripts/rigs/withheld.ts'
import { TEST_SHAPES } from '../../../rigs/dialects/apis.ts'
import { begun, hang } from '../../../rigs/hostile/misbehaviour.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

async function expectAllClosed(): Promise<void> {
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  const { requests } = await chargedTo(gateway, KEY)
  await until('nothing runs', 60_000, async () => {
    const { running, targets } = await viewOf(gateway)
    return running === 0 && targets[0]?.active === 0
  })
  expect((await gateway.records()).length).toBe(requests)
  expect(Object.values((await viewOf(gateway)).ended)).toEqual([requests])
}

describe('a chat', () => {
  const LEAVING: Record<string, { stream: boolean; behave: Behaviour; readsFirst: boolean }> = {
    'before the first byte': { stream: true, behave: hang, readsFirst: false },
    'within the stream': { stream: true, behave: begun(hang), readsFirst: true },
    'without a stream': { stream: false, behave: hang, readsFirst: false },
  }
  for (const [name, { stream, behave, readsFirst }] of Object.entries(LEAVING)) {
    test(`goal: ${name}: the upstream is free within 100 ms, the prompt is charged, once`, async () => {
      upstream.behave = behave
      const leave = new AbortController()
      const pending = gateway.chat({ stream }, { signal: leave.signal })
      if (readsFirst) await (await pending).body?.getReader().read()
      else pending.catch(() => {})
      await until('the upstream is asked', 60_000, () => upstream.active() === 1)
      using withheld = watchWithheld()
      const leftMs = performance.now()
      leave.abort()
      await until('the upstream is free', 60_000, () => upstream.active() === 0)
      const goneMs = upstream.lastGoneMs() ?? Number.POSITIVE_INFINITY
      expect(goneMs - leftMs - withheld.ms()).toBeLessThan(100)
      await until('the request is accounted', 60_000, async () => (await gateway.records()).length === 1)
      const prompt = Math.ceil(JSON.stringify(chatBody({ stream })).length / 4)
      expect((await gateway.records())[0]).toMatchObject({
        outcome: 'aborted',
        tokens: { prompt, completion: readsFirst ? 1 : 0 },
      })
      await expectAllClosed()
    })
  }
})

const promptEstimate = (chat: unknown) => Math.ceil(JSON.stringify(chat).length / 4)

describe.each(Object.entries(TEST_SHAPES))('%s', (_operation, dialect) => {
  // Goal: a client that leaves frees the upstream within 100 ms and the key's slot, and pays for prompt and delivered
  // text.
  test('a client that leaves', async () => {
    for (const stream of [false, true]) {
      upstream.behave = stream ? begun(hang) : hang
      const leave = new AbortController()
      const pending = gateway.post(dialect.path, dialect.body({ stream }), { signal: leave.signal })
      if (stream) await (await pending).body?.getReader().read()
      else pending.catch(() => {})
      await until('the upstream is asked', 60_000, () => upstream.active() === 1)
      using withheld = watchWithheld()
      const leftMs = performance.now()
      leave.abort()
      await until('the upstream is free', 60_000, () => upstream.active() === 0)
      const goneMs = upstream.lastGoneMs() ?? Number.POSITIVE_INFINITY
      expect(goneMs - leftMs - withheld.ms()).toBeLessThan(100)
      const count = stream ? 2 : 1
      await until('the request is accounted', 60_000, async () => (await gateway.records()).length === count)
      const tokens = { prompt: promptEstimate(dialect.chat({ stream })), completion: stream ? 1 : 0 }
      expect((await gateway.records()).at(-1)).toMatchObject({ outcome: 'aborted', tokens })
    }
    await expectAllClosed()
  })
})
