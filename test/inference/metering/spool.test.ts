// The end of a response waits for the host's books, and no longer than a host may make it wait.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { usageLabelCharsMax } from '../../../src/contract/vm/enclave.ts'
import { UsageBatch } from '../../../src/contract/vm/enclave-responses.ts'
import { usageTextBytesMax } from '../../../src/contract/vm/usage-batch.ts'
import { NO_LABELS, type UsageLabels } from '../../../src/inference/metering/labels.ts'
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

test('goal: a batch fits into a line of the channel whatever labels its rows have, and no row is lost', () => {
  const spool = new UsageSpool({
    rowsMax: 1_000,
    sign: () => new Uint8Array(64),
    onRow: () => {},
    clock: createManualClock(),
  })
  const { endUser, tags } = usageLabelCharsMax
  const labels: UsageLabels = { endUser: '\u{1f512}'.repeat(endUser / 2), tags: '"'.repeat(tags) }
  for (let at = 0; at < 150; at += 1) void spool.record({ ...recordOf(`r${at}`), labels: at < 75 ? labels : NO_LABELS })
  const sizes: number[] = []
  let booked = 0
  for (let batch = spool.next(); batch !== null; batch = spool.next()) {
    sizes.push(Buffer.byteLength(JSON.stringify(batch.rows)))
    booked += batch.rows.length
    expect([...Value.Errors(UsageBatch, batch)]).toEqual([])
    spool.book(batch.from + batch.rows.length)
  }
  expect(booked).toBe(150)
  expect(Math.max(...sizes)).toBeLessThanOrEqual(usageTextBytesMax + 2)
  expect(sizes.length).toBeLessThan(8)
})
