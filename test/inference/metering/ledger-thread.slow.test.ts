// The usage ledger that a thread writes: what is where while a batch is with the thread, and after its end.

import { describe, expect, test } from 'bun:test'
import { join } from 'node:path'
import { sql } from 'drizzle-orm'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { notWritten, type Outcome, writeBatch } from '../../../src/inference/metering/batch.ts'
import { UsageJournal } from '../../../src/inference/metering/journal/journal.ts'
import {
  flushIntervalMs,
  importFlushes,
  importRowsMin,
  Metering,
  retryIntervalMs,
} from '../../../src/inference/metering/ledger.ts'
import {
  type LedgerWriter,
  replyTimeoutMs,
  restartPauseMs,
  startLedgerWriter,
} from '../../../src/inference/metering/ledger-writer.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { openBeside } from '../../../src/store/db.ts'
import { setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import { prepareUsageAppend } from '../../../src/store/directory/usage/usage.query.ts'
import type { Usage } from '../../../src/store/directory/usage/usage.table.ts'
import { callerOf, openLedger } from '../../rigs/gateway/keys.ts'

const period = { startMs: 0, endMs: 10_000 }
const month = '1970-01'
const spender = callerOf()

function recordOf(id: string, changes: Partial<UsageRecord> = {}): UsageRecord {
  const tokens = { prompt: 10, completion: 20 }
  return {
    id,
    atMs: 1_000,
    caller: callerOf(),
    model: 'tiny',
    upstream: 'local',
    tokens,
    tokensSource: 'reported',
    outcome: 'completed',
    ...changes,
  }
}

/** A thread whose commits and replies come when the test says so. */
function steppedWriter(path: string) {
  const { directory, close } = openBeside(path)
  const append = prepareUsageAppend(directory.db)
  const asked: { rows: readonly Usage[]; reply: (outcome: Outcome) => void }[] = []
  let isAlive = true
  const writer: LedgerWriter = {
    isAlive: () => isAlive,
    changes: { beat: () => 0, mark: () => 0 },
    write: rows => new Promise(reply => asked.push({ rows, reply })),
    close: async () => close(),
  }
  return {
    writer,
    asked,
    commit: () => writeBatch({ store: directory, append }, asked[0]?.rows ?? []),
    /** Writes, and keeps its transaction open until `end`. */
    begin: () => {
      directory.db.run(sql`BEGIN IMMEDIATE`)
      append(asked[0]?.rows ?? [])
    },
    end: () => directory.db.run(sql`COMMIT`),
    die: () => {
      isAlive = false
    },
    [Symbol.dispose]: close,
  }
}

function bench({ hasJournal = false } = {}) {
  const ledger = openLedger()
  const thread = steppedWriter(join(ledger.dir, 'strongroom.db'))
  const clock = createManualClock()
  const metering = new Metering({
    store: ledger.store,
    clock,
    log: ledger.log,
    cost: () => 5n,
    writer: thread.writer,
    ...(hasJournal ? { journal: new UsageJournal(join(ledger.dir, 'usage-journal.bin')) } : {}),
  })
  /** Records so many and hands them to the thread. */
  const begin = async (...ids: string[]) => {
    for (const id of ids) metering.record(recordOf(id))
    clock.advance(flushIntervalMs)
    await until('the thread has a batch', 10_000, () => thread.asked.length > 0)
  }
  const seen = () => [metering.spent(spender, month).key.promptTokens, metering.usage('o1', period).requests]
  return { ledger, thread, clock, metering, begin, seen, [Symbol.dispose]: ledger[Symbol.dispose] }
}

describe('a batch that is with the thread', () => {
  test('counts once in the sums, before its commit, after it, and after the reply', async () => {
    // Goal: budgets rest on these sums: no row is missing and none counts twice at any moment.
    using bed = bench()
    const spent = () => bed.metering.spent(spender, month).key.promptTokens
    expect(spent()).toBe(0)
    await bed.begin('a', 'b')
    bed.metering.record(recordOf('c'))
    expect(spent()).toBe(30)
    const outcome = bed.thread.commit()
    expect(outcome).toMatchObject({ isWritten: true, added: 2 })
    expect(spent()).toBe(30)
    expect(spent()).toBe(30)
    bed.thread.asked[0]?.reply(outcome)
    await until('the reply is taken', 10_000, () => bed.metering.counts().written === 2)
    expect([spent(), bed.metering.counts()]).toEqual([30, { written: 2, lost: 0, waiting: 1 }])
  })

  test('is written once where both write it', async () => {
    // Goal: who needs all rows at once does not wait for the thread, whichever of the two comes first.
    for (const isThreadFirst of [true, false]) {
      using bed = bench()
      await bed.begin('a', 'b')
      const early = isThreadFirst ? bed.thread.commit() : null
      expect(bed.metering.usage('o1', period).requests).toBe(2)
      bed.thread.asked[0]?.reply(early ?? bed.thread.commit())
      await until('the reply is taken', 10_000, () => bed.metering.counts().written === 2)
      expect([bed.metering.counts(), bed.seen()]).toEqual([{ written: 2, lost: 0, waiting: 0 }, [20, 2]])
    }
  })

  test('is written here at once where the thread has not written it', async () => {
    // Goal: a thread that ended, or a lock that it did not get, loses no row and delays none.
    using bed = bench()
    await bed.begin('a', 'b')
    bed.thread.die()
    bed.thread.asked[0]?.reply(notWritten(new Error('the thread has ended')))
    await until('they are in the store', 10_000, () => bed.metering.counts().written === 2)
    bed.metering.record(recordOf('c'))
    bed.clock.advance(flushIntervalMs)
    await until('the next one, too', 10_000, () => bed.metering.counts().written === 3)
    expect([bed.seen(), bed.thread.asked.length]).toEqual([[30, 3], 1])
  })

  test('comes back into the queue where it seemed to be in the store', async () => {
    // Goal: a repeated id, which is in the store already, makes no other row of its batch disappear.
    using bed = bench()
    bed.metering.record(recordOf('a'))
    bed.metering.flush()
    await bed.begin('a', 'b')
    void bed.metering.spent(spender, month)
    bed.thread.asked[0]?.reply(notWritten(new Error('disk full')))
    await until('it is in the store', 10_000, () => bed.metering.counts().waiting === 0)
    expect(bed.seen()).toEqual([20, 2])
  })

  test('costs itself alone where one of its rows is refused', async () => {
    // Goal: a row that the store never takes is counted as lost, once, and the others are kept.
    using bed = bench()
    bed.metering.record(recordOf('bad', { caller: { ...callerOf(), organizationId: 'nobody' } }))
    await bed.begin('a', 'b')
    bed.thread.asked[0]?.reply(bed.thread.commit())
    await until('the reply is taken', 10_000, () => bed.metering.counts().written === 2)
    expect([bed.metering.counts(), bed.seen()]).toEqual([{ written: 2, lost: 1, waiting: 0 }, [20, 2]])
  })
})

describe('the next batch', () => {
  const sizes = ({ thread }: ReturnType<typeof bench>) => thread.asked.map(({ rows }) => rows.length)

  test('has the rows of a second where a journal keeps them', async () => {
    // Goal: at any rate below hundreds a second there is one commit a second, and no row waits longer.
    using bed = bench({ hasJournal: true })
    const taken: number[][] = []
    for (let flush = 0; flush < 2 * importFlushes; flush += 1) {
      bed.metering.record(recordOf(`r${flush}`))
      await bed.clock.elapse(flushIntervalMs)
      taken.push(sizes(bed))
      const [asked] = bed.thread.asked.splice(0)
      if (asked === undefined) continue
      asked.reply({ isWritten: true, added: asked.rows.length, refused: [], error: null })
    }
    await bed.clock.elapse(0)
    const none = Array<number[]>(9).fill([])
    expect(taken).toEqual([...none, [10], ...none, [10]])
    expect(bed.metering.counts()).toMatchObject({ waiting: 0, written: 20 })
  })

  test('is handed over at the next flush where it is large', async () => {
    // Goal: what waits in the journal stays small at any rate.
    using bed = bench({ hasJournal: true })
    for (let i = 0; i < importRowsMin - 1; i += 1) bed.metering.record(recordOf(`r${i}`))
    await bed.clock.elapse(flushIntervalMs)
    expect(sizes(bed)).toEqual([])
    bed.metering.record(recordOf('last'))
    await bed.clock.elapse(flushIntervalMs)
    expect(sizes(bed)).toEqual([importRowsMin])
  })

  test('does not wait for a second where a row of it is in no journal', async () => {
    // Goal: a kill loses no more than before of rows that are too large for the journal.
    using bed = bench({ hasJournal: true })
    bed.metering.record(recordOf('a'))
    bed.metering.record(recordOf('large', { labels: { endUser: null, tags: 'x'.repeat(30_000) } }))
    await bed.clock.elapse(flushIntervalMs)
    expect(sizes(bed)).toEqual([1])
  })

  test('has the rows of an interval where there is no journal', async () => {
    // Goal: rows that come while a batch is written make no small batch of their own.
    using bed = bench()
    await bed.begin('a')
    bed.metering.record(recordOf('b'))
    bed.thread.asked[0]?.reply(bed.thread.commit())
    await bed.clock.elapse(flushIntervalMs - 1)
    bed.metering.record(recordOf('c'))
    expect(sizes(bed)).toEqual([1])
    await bed.clock.elapse(1)
    expect(sizes(bed)).toEqual([1, 2])
  })

  test('is written here, soon, where the thread has ended', async () => {
    // Goal: without the thread nothing writes the journal to the disk, so rows do not wait in it.
    using bed = bench({ hasJournal: true })
    bed.thread.die()
    bed.metering.record(recordOf('a'))
    await bed.clock.elapse(flushIntervalMs)
    expect(bed.metering.counts()).toEqual({ written: 1, lost: 0, waiting: 0 })
  })
})

test('a thread that is late, and commits after all', async () => {
  // Goal: its rows count once, also while nobody else can write them for its lock, and they are written once.
  using bed = bench()
  const spent = () => bed.metering.spent(spender, month).key.promptTokens
  await bed.begin('a', 'b')
  bed.thread.begin()
  bed.thread.die()
  bed.thread.asked[0]?.reply(notWritten(new Error('no reply within 10000 ms')))
  await until('this connection has tried', 10_000, () => bed.ledger.logged.some(line => line.includes('stay queued')))
  expect(spent()).toBe(20)
  bed.thread.end()
  expect(spent()).toBe(20)
  bed.clock.advance(retryIntervalMs)
  await until('the queue is empty', 10_000, () => bed.metering.counts().waiting === 0)
  expect(bed.seen()).toEqual([20, 2])
})

test('a queue that is half full', () => {
  // Goal: no request begins whose row might be lost, while the rows of running ones find room.
  using ledger = openLedger()
  const clock = createManualClock()
  const metering = new Metering({ store: ledger.store, clock, log: ledger.log, cost: () => 5n })
  for (let i = 1; i < 10_000; i += 1) metering.record(recordOf(`r${i}`))
  metering.checkRoom()
  metering.record(recordOf('last'))
  expect(() => metering.checkRoom()).toThrow('Usage cannot be recorded at present')
  metering.flush()
  metering.checkRoom()
  expect(metering.counts()).toEqual({ written: 10_000, lost: 0, waiting: 0 })
})

test('a thread that does not reply in time', async () => {
  // Goal: nobody waits for it for ever; it is said in the log, and another one takes its place.
  using ledger = openLedger()
  const path = join(ledger.dir, 'strongroom.db')
  const clock = createManualClock()
  const writer = startLedgerWriter({ path, journal: null, clock, log: ledger.log })
  await until('it lives', 60_000, writer.isAlive)
  const holder = openBeside(path)
  holder.directory.db.run(sql`BEGIN IMMEDIATE`)
  const late = writer.write([], null)
  clock.advance(replyTimeoutMs)
  expect(await late).toMatchObject({ isWritten: false, error: 'no reply within 10000 ms' })
  await until('it has ended', 10_000, () => ledger.logged.some(line => line.includes('no reply within')))
  expect(writer.isAlive()).toBe(false)
  holder.directory.db.run(sql`ROLLBACK`)
  holder.close()
  clock.advance(restartPauseMs)
  await until('another one lives', 60_000, writer.isAlive)
  expect(await writer.write([], null)).toMatchObject({ isWritten: true })
  await writer.close()
}, 90_000)

test('a real thread writes, and a stop leaves nothing behind', async () => {
  // Goal: rows come to the file by another connection within the interval; a stop writes all that was recorded.
  using ledger = openLedger()
  const path = join(ledger.dir, 'strongroom.db')
  const writer = startLedgerWriter({ path, journal: null, clock: systemClock, log: ledger.log })
  await until('it lives', 60_000, writer.isAlive)
  const metering = new Metering({ store: ledger.store, clock: systemClock, log: ledger.log, cost: () => 5n, writer })
  for (let i = 0; i < 600; i += 1) metering.record(recordOf(`r${i}`))
  await until('the thread has written some', 10_000, () => metering.counts().written >= 250)
  for (let i = 600; i < 1_000; i += 1) metering.record(recordOf(`r${i}`))
  await metering.stop()
  expect([metering.counts(), writer.isAlive()]).toEqual([{ written: 1_000, lost: 0, waiting: 0 }, false])
  metering.record(recordOf('late'))
  expect(metering.usage('o1', period).requests).toBe(1_001)
}, 90_000)

test('a real thread pushes changes of others, and none of its own', async () => {
  // Goal: keys stay in memory while the thread writes usage, and a change by another connection is seen.
  using ledger = openLedger()
  const path = join(ledger.dir, 'strongroom.db')
  const writer = startLedgerWriter({ path, journal: null, clock: systemClock, log: ledger.log })
  const { changes } = writer
  const nextMark = async () => {
    const beat = changes.beat()
    // The reading after the next begins from now on.
    await until('the mark is read again', 60_000, () => changes.beat() > beat + 1)
    return changes.mark()
  }
  const before = await nextMark()
  const metering = new Metering({ store: ledger.store, clock: systemClock, log: ledger.log, cost: () => 5n, writer })
  for (let i = 0; i < 10; i += 1) metering.record(recordOf(`r${i}`))
  await until('the thread has written them', 60_000, () => metering.counts().written === 10)
  expect(await nextMark()).toBe(before)
  setOrganizationStatus(ledger.store.db, { slug: 'acme', status: 'suspended' })
  expect(await nextMark()).not.toBe(before)
  await metering.stop()
}, 90_000)

test('a thread that cannot open the database', async () => {
  // Goal: it is said in the log, and the ledger goes on without bed.
  using ledger = openLedger()
  const writer = startLedgerWriter({
    path: '/nowhere/strongroom.db',
    journal: null,
    clock: systemClock,
    log: ledger.log,
  })
  const metering = new Metering({ store: ledger.store, clock: systemClock, log: ledger.log, cost: () => 5n, writer })
  metering.record(recordOf('a'))
  await until('it has ended', 60_000, () => ledger.logged.some(line => line.includes('thread of the usage ledger')))
  await until('the row is written', 60_000, () => metering.counts().written === 1)
  expect(writer.isAlive()).toBe(false)
  await metering.stop()
}, 90_000)
