// How lines of the host become responses, whatever the program answers.

import { expect, test } from 'bun:test'
import { createLogger } from '../../src/base/log.ts'
import { createHandler, type Outcome } from '../../src/guest/requests.ts'
import { ok, parseRequest, refuse } from '../../src/guest/wire.codec.ts'

function handlerOf(answer: () => Promise<Outcome>) {
  const lines: string[] = []
  const log = createLogger({ level: 'info', sink: line => lines.push(line), nowMs: () => 0, name: 'test' })
  const handle = createHandler({ parse: parseRequest, answer, log })
  const send = (text: string) => handle({ kind: 'line', text })
  return { handle, send, logged: () => lines.map(line => JSON.parse(line)) }
}

const hello = '{"id":"1","op":"hello"}'
const shutdown = '{"id":"2","op":"shutdown"}'

test('goal: the response carries the id of its request, and only a shutdown that succeeds powers off', async () => {
  expect(await handlerOf(async () => ok).send(hello)).toEqual({ response: { id: '1', ok: true }, next: 'go_on' })
  expect(await handlerOf(async () => ok).send(shutdown)).toEqual({ response: { id: '2', ok: true }, next: 'power_off' })
  const { send, logged } = handlerOf(async () => refuse('claimed', 'no'))
  expect(await send(shutdown)).toEqual({
    response: { id: '2', ok: false, code: 'claimed', message: 'no' },
    next: 'go_on',
  })
  expect(logged()).toMatchObject([{ level: 'warn', message: 'request refused', op: 'shutdown', code: 'claimed' }])
})

test('goal: a line without a request gets no response, and a request that is not of the wire is refused by its id', async () => {
  const { handle, send, logged } = handlerOf(async () => ok)
  expect(await handle({ kind: 'dropped', reason: 'overlong' })).toBeNull()
  expect(await send('nonsense')).toBeNull()
  for (let dropped = 2; dropped < 12; dropped += 1) expect(await send('nonsense')).toBeNull()
  // The 1st and the 10th: a flood of lines does not become a flood of log lines.
  expect(logged().map(line => [line.message, line.reason, line.count])).toEqual([
    ['line dropped', 'overlong', 1],
    ['line dropped', 'no_request', 10],
  ])
  expect(await send('{"id":"3","op":"format"}')).toEqual({
    response: { id: '3', ok: false, code: 'bad_request', message: 'not a request of this wire' },
    next: 'go_on',
  })
})

test('goal: a failure becomes a refusal without keys in its message', async () => {
  const { send, logged } = handlerOf(async () => {
    throw new Error(`bad key gw_abcdefgh_${'s'.repeat(32)}`)
  })
  expect(await send(hello)).toMatchObject({ response: { ok: false, code: 'failed' }, next: 'go_on' })
  expect(JSON.stringify([await send(hello), logged()])).not.toContain('ssssssss')
})

test('goal: 64 requests are in progress at most; another is refused at once, and a finished one makes room', async () => {
  const gate = Promise.withResolvers<Outcome>()
  const { send } = handlerOf(() => gate.promise)
  const first = Array.from({ length: 64 }, () => send(hello))
  expect(await send(hello)).toMatchObject({ response: { ok: false, message: 'too many requests at once' } })
  gate.resolve(ok)
  expect((await Promise.all(first)).every(handled => handled?.response.ok)).toBe(true)
  expect(await send(hello)).toMatchObject({ response: { ok: true } })
})
