// The owner's side of a relay: requests that wait for their key's share of limits, and the memory
// of responses.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { BusyFault } from '../../../src/inference/failure.ts'
import type { Entry } from '../../../src/inference/gateway/enter.ts'
import { createResponseMemory, type ResponseFacts } from '../../../src/inference/gateway/response-memory.ts'
import { RelayOwner, type RelayOwnerDeps } from '../../../src/inference/relay/relay-owner.ts'
import type { FromOwner } from '../../../src/inference/relay/wire.ts'
import type { Caller } from '../../../src/inference/types.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'

function bench() {
  const entry = Promise.withResolvers<Entry<Caller>>()
  const ends: unknown[] = []
  const said: FromOwner[] = []
  const account = { close: async (end: unknown) => void ends.push(end), upstream: null, promptEstimate: 0 }
  const deps = {
    gateway: { enter: () => entry.promise },
    upstreams: [],
    log: silentLogger,
  } as unknown as RelayOwnerDeps
  const desk = new RelayOwner(deps, message => void said.push(message))
  const asked = { operation: 'chat', authorization: 'Bearer k', fault: null, tokens: 1 } as const
  desk.handleMessage({ kind: 'enter', ask: 1, id: 'r1', ...asked })
  const admit = async () => {
    entry.resolve({ ok: true, caller: callerOf(), headers: {}, open: () => account as never })
    await entry.promise
    await Promise.resolve()
  }
  return { desk, ends, said, admit }
}

test('goal: a request that waited for its share is answered, and ends with its relay', async () => {
  const { desk, ends, said, admit } = bench()
  expect(said).toEqual([])
  await admit()
  expect(said).toMatchObject([{ kind: 'reply', to: 1, value: { ok: true } }])
  expect(desk.size).toBe(1)
  await desk.close()
  expect(ends).toMatchObject([{ outcome: 'aborted' }])
})

test('goal: a relay that dies while a request waits for its share leaves no slot taken', async () => {
  const { desk, ends, admit } = bench()
  await desk.close()
  expect(ends).toEqual([])
  await admit()
  expect(ends).toMatchObject([{ outcome: 'aborted', tokens: { prompt: 0, completion: 0 } }])
  expect(desk.size).toBe(0)
})

test('goal: a relay learns the place of a request of its own alone', async () => {
  const { desk, replies } = await twoKeys()
  desk.handleMessage({ kind: 'place', ask: 5, id: 'r1' })
  desk.handleMessage({ kind: 'place', ask: 6, id: "another relay's" })
  expect(await replies()).toMatchObject([
    { kind: 'reply', to: 5, value: { position: 3, waitMs: 7 } },
    { kind: 'refusal', to: 6 },
  ])
})

const facts: ResponseFacts = { previous: null, hasInput: true, isInside: true, chars: 8, bytes: 8, values: 2 }

/** Two requests of two keys of one organization under way. */
async function twoKeys(reserveTokens: (tokens: number) => void = () => {}) {
  const said: FromOwner[] = []
  const account = { close: async () => {}, owner: { organizationId: 'o1' }, reserveTokens }
  const keys = ['a', 'b'].map(keyDigest => callerOf({ keyDigest }))
  const deps = {
    gateway: {
      enter: ({ id }: { id: string }) => ({
        ok: true,
        caller: keys[id === 'r1' ? 0 : 1],
        headers: {},
        open: () => account,
      }),
      place: () => ({ position: 3, waitMs: 7 }),
    },
    responses: createResponseMemory(createManualClock()),
    upstreams: [],
    log: silentLogger,
  } as unknown as RelayOwnerDeps
  const desk = new RelayOwner(deps, message => void said.push(message))
  const asked = { operation: 'responses', authorization: 'Bearer k', fault: null, tokens: 1 } as const
  for (const [at, id] of ['r1', 'r2'].entries()) desk.handleMessage({ kind: 'enter', ask: at, id, ...asked })
  const replies = async () => {
    await Promise.resolve()
    return said.splice(0)
  }
  await replies()
  return { desk, replies }
}

// Goal: a relay's request finds by digest what a request of the same key left, and nothing of
// another key.
test('kept responses', async () => {
  const { desk, replies } = await twoKeys()
  desk.handleMessage({ kind: 'keepResponse', id: 'r1', digest: 'd1', text: '{"in":1}', facts })
  const digests = { previous: 'd1', named: [] }
  for (const id of ['r1', 'r2']) {
    desk.handleMessage({ kind: 'surveyResponses', ask: 8, id, digests })
    desk.handleMessage({ kind: 'findResponse', ask: 9, id, digest: 'd1' })
  }
  const survey = { count: 1, chars: 8, bytes: 8, values: 2, isInside: true, chain: ['d1'], all: ['d1'] }
  expect(await replies()).toEqual([
    { kind: 'reply', to: 8, value: survey },
    { kind: 'reply', to: 9, value: '{"in":1}' },
    { kind: 'reply', to: 8, value: null },
    { kind: 'reply', to: 9, value: null },
  ])
})

// Goal: tokens beyond the key's limit are a refusal that the relay's client gets with its
// Retry-After.
test('more tokens', async () => {
  const { desk, replies } = await twoKeys(tokens => {
    if (tokens > 10) throw new BusyFault('Limit reached.', 7)
  })
  desk.handleMessage({ kind: 'reserveTokens', ask: 8, id: 'r1', tokens: 10 })
  await Bun.sleep(0)
  expect(await replies()).toEqual([{ kind: 'reply', to: 8, value: null }])
  desk.handleMessage({ kind: 'reserveTokens', ask: 9, id: 'r1', tokens: 11 })
  await Bun.sleep(0)
  const fault = { code: 'rate_limited', message: 'Limit reached.', retryAfterSeconds: 7 }
  expect(await replies()).toEqual([{ kind: 'refusal', to: 9, fault }])
})
