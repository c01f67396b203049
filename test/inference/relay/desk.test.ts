// The owner's side of a relay whose request waits for its key's share of limits.

import { expect, test } from 'bun:test'
import { silentLogger } from '../../../src/base/log.ts'
import type { Entry } from '../../../src/inference/gateway/enter.ts'
import { Desk, type DeskDeps } from '../../../src/inference/relay/desk.ts'
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
  } as unknown as DeskDeps
  const desk = new Desk(deps, message => void said.push(message))
  const asked = { operation: 'chat', authorization: 'Bearer k', fault: null, tokens: 1 } as const
  desk.hear({ kind: 'enter', ask: 1, id: 'r1', ...asked })
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
