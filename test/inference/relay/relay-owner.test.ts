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

// Goal: the end of a request frees its upstream with the health that the relay saw, or as unknown; a lease that the
// relay has given back is not given back again. The owner answers in the same turn if there is no wait.
test.each([
  ['healthy', ['healthy']],
  ['unhealthy', ['unhealthy']],
  [null, ['unknown']],
] as const)('the end of a request that reports %p', (released, health) => {
  const said: FromOwner[] = []
  const seen: string[] = []
  const target = { name: 'a', key: null }
  const account = { close: () => undefined, owner: { organizationId: 'o1', keyPrefix: 'k1' }, costNanoUsd: null }
  const signals: AbortSignal[] = []
  const deps = {
    gateway: {
      enter: () => ({ ok: true, caller: callerOf(), headers: {}, open: () => account }),
      acquire: (_model: string, { signal }: { signal: AbortSignal }) => {
        signals.push(signal)
        return { target, paceMs: 5, release: (health: string) => void seen.push(health) }
      },
    },
    upstreams: [target],
    log: silentLogger,
  } as unknown as RelayOwnerDeps
  const desk = new RelayOwner(deps, message => void said.push(message))
  const asked = { operation: 'chat', authorization: 'Bearer k', fault: null, tokens: 1 } as const
  desk.handleMessage({ kind: 'enter', ask: 1, id: 'r1', ...asked })
  desk.handleMessage({ kind: 'acquire', ask: 2, id: 'r1', model: 'm', except: [], promptEstimate: 1 })
  expect(said.at(-1)).toEqual({ kind: 'reply', to: 2, value: { target: 0, paceMs: 5 } })
  const end = { outcome: 'completed', tokens: { prompt: 1, completion: 1 }, tokensSource: 'reported' } as const
  const close = { end: { ...end, status: 200, errorCode: null }, model: 'm', upstream: 'a', queueMs: 0 }
  const rest = { firstChunkMs: 1, wantsCost: false, labels: { endUser: null, tags: null }, spans: [] }
  desk.handleMessage({ kind: 'close', ask: 3, id: 'r1', ...close, ...rest, released })
  expect(said.at(-1)).toEqual({ kind: 'reply', to: 3, value: { costNanoUsd: null } })
  expect(seen).toEqual([...health])
  expect(desk.size).toBe(0)

  desk.handleMessage({ kind: 'enter', ask: 4, id: 'r2', ...asked })
  desk.handleMessage({ kind: 'acquire', ask: 5, id: 'r2', model: 'm', except: [], promptEstimate: 1 })
  desk.handleMessage({ kind: 'release', id: 'r2', health: 'healthy' })
  desk.handleMessage({ kind: 'close', ask: 6, id: 'r2', ...close, ...rest, released: null })
  expect(seen).toEqual([...health, 'healthy'])
  expect(signals.every(({ aborted }) => !aborted)).toBe(true)
})
