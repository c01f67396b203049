// Goal: the frame of each metered request: what is asked of admission, whose failure goes where. However a request
// ends, its account is closed once and its memory is given back.

import { expect, test } from 'bun:test'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import {
  type AdmittedRequest,
  createMeteredHandler,
  type MeteredDeps,
} from '../../../src/inference/gateway/completion.ts'
import type { EntryRequest } from '../../../src/inference/gateway/enter.ts'
import { BodyRoom } from '../../../src/inference/limits/body-room.ts'
import type { RequestEnd } from '../../../src/inference/metering/account.ts'
import type { Operation } from '../../../src/inference/types.ts'

const mib = 1_048_576
const textBytesMax = 4 * mib

type Respond = (admitted: AdmittedRequest<Operation>, body: Uint8Array) => Promise<Response>

function open(respond: Respond = async () => new Response('good'), changes: Partial<MeteredDeps> = {}) {
  const entered: EntryRequest[] = []
  const closed: RequestEnd[] = []
  const bodyRoom = new BodyRoom(32 * mib)
  const account = {
    upstream: null as string | null,
    promptEstimate: 7,
    trace: null,
    wantsCost: false,
    close: async (end: RequestEnd) => void closed.push(end),
  }
  const caller = { keyPrefix: 'k', keyDigest: 'd', organizationId: 'o', madeBy: null, rules: null }
  const deps = {
    clock: systemClock,
    log: silentLogger,
    deadlines: createDeadlines(systemClock),
    limits: { bodyBytesMax: 32 * mib, bodyTimeoutMs: 60_000, padsStreams: false },
    bodyRoom,
    bodyBatch: () => null,
    largeBodies: null,
    beginTrace: null,
    enter: (asked: EntryRequest) => {
      entered.push(asked)
      if (asked.fault !== null) throw asked.fault
      return { ok: true, caller, headers: { 'x-limit': '1' }, open: () => account }
    },
    ...changes,
  } as unknown as MeteredDeps
  const handle = createMeteredHandler<Operation>(deps, respond)
  const send = (operation: Operation, request: Request) => handle(request, { operation, id: 'r1', exchange: null })
  return { send, entered, closed, account, bodyRoom }
}

/** `length`: the declared one, whatever the body has; null for none. */
function requestOf(length: number | null, headers: Record<string, string> = {}, body = '{}'): Request {
  const declared = length === null ? {} : { 'content-length': String(length) }
  return new Request('http://h/v1', { method: 'POST', body, headers: { ...declared, ...headers } })
}

const operations = ['chat', 'text_completion', 'responses', 'messages', 'count_tokens', 'embeddings'] as const

test('goal: a quarter of the bytes and 256 tokens for the answer are reserved, nothing to count, no answer to embed', async () => {
  const tokensOf = async (length: number | null) => {
    const rig = open()
    for (const operation of operations) await rig.send(operation, requestOf(length)).catch(() => null)
    return rig.entered.map(({ tokens }) => tokens)
  }
  expect(await tokensOf(400)).toEqual([356, 356, 356, 356, 0, 100])
  expect(await tokensOf(401)).toEqual([357, 357, 357, 357, 0, 101])
  // Without a length as for 16 KiB.
  expect(await tokensOf(null)).toEqual([4_352, 4_352, 4_352, 4_352, 0, 4_096])
  expect((await tokensOf(textBytesMax))[0]).toBe(mib + 256)
  // Most of a larger body is pictures.
  expect((await tokensOf(textBytesMax + 1))[0]).toBe(65_536 + 256)
})

test('goal: only a body that says its length may be large, and none to embed', async () => {
  const faultOf = async (operation: Operation, length: number) => {
    const rig = open()
    await rig.send(operation, requestOf(length)).catch(() => null)
    return rig.entered[0]?.fault?.code ?? null
  }
  expect(await faultOf('chat', 32 * mib)).toBeNull()
  expect(await faultOf('chat', 32 * mib + 1)).toBe('body_too_large')
  expect(await faultOf('embeddings', textBytesMax)).toBeNull()
  expect(await faultOf('embeddings', textBytesMax + 1)).toBe('body_too_large')
})

test("goal: the key of another API's header is taken where Authorization has none", async () => {
  const keyOf = async (operation: Operation, headers: Record<string, string>) => {
    const rig = open()
    await rig.send(operation, requestOf(2, headers))
    return rig.entered[0]?.headers.get('authorization') ?? null
  }
  expect(await keyOf('messages', { 'x-api-key': 'a' })).toBe('Bearer a')
  expect(await keyOf('count_tokens', { 'x-api-key': 'a' })).toBe('Bearer a')
  expect(await keyOf('messages', { 'x-api-key': 'a', authorization: 'Bearer b' })).toBe('Bearer b')
  expect(await keyOf('chat', { 'x-api-key': 'a' })).toBeNull()
})

test('goal: what is refused before admission is thrown, and a refusal is a response; neither has an account', async () => {
  const thrown = open(undefined, { enter: () => Promise.reject(new Fault('unauthenticated', 'no')) })
  await expect(thrown.send('chat', requestOf(2))).rejects.toMatchObject({ code: 'unauthenticated' })
  const refusal = { message: 'too many', retryAfterSeconds: 3, headers: {} }
  const refused = open(undefined, { enter: () => ({ ok: false, refusal }) as never })
  const response = await refused.send('chat', requestOf(2))
  expect([response.status, thrown.closed, refused.closed]).toEqual([429, [], []])
})

test('goal: the body and all that is known of the request reach the handler', async () => {
  let seen: unknown = null
  const rig = open(async ({ operation, id, headers, dialect, account }, body) => {
    seen = [operation, id, headers['x-limit'], dialect, account.wantsCost, new TextDecoder().decode(body)]
    return new Response('good')
  })
  const response = await rig.send('chat', requestOf(7, { 'x-strongroom-cost': '1' }, '{"a":1}'))
  expect([await response.text(), rig.closed]).toEqual(['good', []])
  expect(seen).toEqual(['chat', 'r1', '1', null, true, '{"a":1}'])
})

test('goal: a failure closes the account once, at no cost, with its status and code', async () => {
  for (const [error, status, code] of [
    [new Fault('invalid_request', 'm'), 400, 'invalid_request'],
    [new Error('secret'), 500, 'internal'],
  ] as const) {
    const rig = open(() => Promise.reject(error))
    const response = await rig.send('chat', requestOf(2))
    expect([response.status, response.headers.get('x-limit')]).toEqual([status, '1'])
    expect(await response.text()).not.toContain('secret')
    expect(rig.closed).toEqual([
      { outcome: 'failed', tokens: { prompt: 0, completion: 0 }, tokensSource: 'reported', status, errorCode: code },
    ])
  }
})

test('goal: a client that left pays for the prompt if an upstream was asked, else nothing', async () => {
  for (const [upstream, prompt] of [
    [null, 0],
    ['u', 7],
  ] as const) {
    const leaving = new AbortController()
    const rig = open(async ({ account }) => {
      account.upstream = upstream
      leaving.abort()
      throw new Error('it left')
    })
    const response = await rig.send('chat', new Request(requestOf(2), { signal: leaving.signal }))
    expect(response.status).toBe(499)
    expect(rig.closed).toEqual([
      {
        outcome: 'aborted',
        tokens: { prompt, completion: 0 },
        tokensSource: 'estimated',
        status: 499,
        errorCode: null,
      },
    ])
  }
})

test('goal: memory for a large body is taken before it is read and given back in the end; without it the request fails', async () => {
  const body = 'x'.repeat(textBytesMax + 1)
  let isFull = false
  const rig = open(async () => {
    isFull = takes(rig.bodyRoom, 64 * mib - textBytesMax) === null
    return new Response('good')
  })
  await rig.send('chat', requestOf(body.length, {}, body))
  expect([isFull, takes(rig.bodyRoom, 64 * mib) === null]).toEqual([true, false])
  const held = takes(rig.bodyRoom, 64 * mib)
  const response = await rig.send('chat', requestOf(body.length, {}, body))
  expect([response.status, rig.closed.map(({ outcome }) => outcome)]).toEqual([429, ['failed']])
  held?.()
})

/** Takes room; the function gives it back. Null if there is none. */
function takes(room: BodyRoom, bytes: number): (() => void) | null {
  try {
    return room.take(bytes, 'o')
  } catch {
    return null
  }
}
