// The end of a response waits for the host's books, and no longer than a host may make it wait.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { UsageSpool } from '../../../src/inference/metering/spool.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'

const recordOf = (id: string): UsageRecord => ({
  id,
  atMs: 1,
  caller: callerOf(),
  model: 'm',
  upstream: 'far',
  tokens: { prompt: 1, completion: 1 },
  tokensSource: 'reported',
  outcome: 'completed',
})

function createSpool() {
  const clock = createManualClock()
  const spool = new UsageSpool({ rowsMax: 100, sign: () => new Uint8Array(64), onRow: () => {}, clock })
  const over: string[] = []
  return {
    clock,
    /** Requests whose response may end, in order. */
    over,
    respond: (id: string) => void spool.record(recordOf(id)).then(() => over.push(id)),
    /** The host books all that waits. */
    book: () => {
      for (let batch = spool.next(); batch !== null; batch = spool.next()) spool.book(batch.from + batch.rows.length)
    },
  }
}

const turn = () => Bun.sleep(0)

test('goal: a response ends once its row is in the books, and not before', async () => {
  const { over, respond, book } = createSpool()
  respond('a')
  respond('b')
  await turn()
  expect(over).toEqual([])
  book()
  await turn()
  expect(over).toEqual(['a', 'b'])
})

test('goal: a host that does not book holds one round of responses for 250 ms, then none, until it books again', async () => {
  const { clock, over, respond, book } = createSpool()
  respond('a')
  await clock.elapse(249)
  expect(over).toEqual([])
  await clock.elapse(1)
  expect(over).toEqual(['a'])
  respond('b')
  await turn()
  expect(over).toEqual(['a', 'b'])
  book()
  respond('c')
  await turn()
  expect(over).toEqual(['a', 'b'])
  book()
  await turn()
  expect(over).toEqual(['a', 'b', 'c'])
})
