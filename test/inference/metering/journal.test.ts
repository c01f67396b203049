// The usage journal: rows that a killed daemon has written are booked by the next one, once, whatever state its file is
// in.

import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import {
  closeSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import {
  headerBytes,
  JournalReader,
  readUnbooked,
  slotCount,
  UsageJournal,
} from '../../../src/inference/metering/journal/journal.ts'
import { flushIntervalMs, Metering } from '../../../src/inference/metering/ledger.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import type { Usage } from '../../../src/store/directory/usage/usage.table.ts'
import { callerOf, type Ledger, openLedger } from '../../rigs/gateway/keys.ts'

// A busy disk takes seconds for a file of 16 MiB.
setDefaultTimeout(60_000)

const period = { startMs: 0, endMs: 10_000 }

function rowOf(id: string, changes: Partial<Usage> = {}): Usage {
  return {
    id,
    atMs: 1_000,
    organizationId: 'o1',
    keyPrefix: 'aaaaaaaa',
    instanceId: null,
    model: 'tiny',
    upstream: 'local',
    promptTokens: 10,
    completionTokens: 20,
    cachedTokens: 0,
    costNanoUsd: 5,
    outcome: 'completed',
    tokensSource: 'reported',
    endUser: null,
    tags: null,
    ...changes,
  }
}

function recordOf(id: string): UsageRecord {
  return {
    id,
    atMs: 1_000,
    caller: callerOf(),
    model: 'tiny',
    upstream: 'local',
    tokens: { prompt: 10, completion: 20 },
    tokensSource: 'reported',
    outcome: 'completed',
  }
}

const pathOf = ({ dir }: Ledger) => join(dir, 'usage-journal.bin')

function meteringOf({ store, clock, log }: Ledger, journal: UsageJournal): Metering {
  return new Metering({ store: { db: store.db, transact: store.transact }, clock, log, cost: () => 5n, journal })
}

/** The rows that the next daemon finds. The one before has not closed the file, as after a kill. */
function reopened(path: string): { journal: UsageJournal; rows: Usage[] } {
  const journal = new UsageJournal(path)
  return { journal, rows: journal.takeFound().map(({ row }) => row) }
}

describe('a file of an earlier daemon', () => {
  test('gives every row that is not booked, in order and whole', () => {
    // Goal: rows of one slot and of several, with texts of several bytes a character, come back as they were.
    using ledger = openLedger()
    const written = Array.from({ length: 300 }, (_, at) =>
      rowOf(`r${at}`, { endUser: 'é'.repeat((at * 7) % 256), tags: at % 3 === 0 ? '{"a":"\\u0001R"}' : null }),
    )
    const first = new UsageJournal(pathOf(ledger))
    const places = written.map(row => first.append(row))
    first.release(places[100] ?? -1)
    first.close()
    const { journal, rows } = reopened(pathOf(ledger))
    expect(rows).toEqual(written.slice(100))
    journal.close()
    expect(statSync(pathOf(ledger)).mode & 0o777).toBe(0o600)
  })

  test('gives rows in the form of earlier releases', () => {
    // Goal: an upgrade after a kill loses no row that the earlier release wrote, as an object with the names of fields.
    using ledger = openLedger()
    const written = ['a', 'b'].map(id => rowOf(id, { endUser: 'é', tags: '{"a":"b"}' }))
    const first = new UsageJournal(pathOf(ledger))
    const places = written.map(row => first.append(row))
    first.close()
    const bytes = readFileSync(pathOf(ledger))
    const at = headerBytes + (places[1] ?? -1) * 256
    const length = bytes.write(JSON.stringify(written[1]), at + 20)
    bytes.writeUInt32LE(length, at + 8)
    bytes.writeUInt32LE(Bun.hash.crc32(bytes.subarray(at + 8, at + 20 + length)), at + 4)
    writeFileSync(pathOf(ledger), bytes)
    const { journal, rows } = reopened(pathOf(ledger))
    expect(rows).toEqual(written)
    journal.close()
  })

  test('has a row of common size in one slot', () => {
    // Goal: a row dirties no more of the file than it has to: 16 of them one page.
    using ledger = openLedger()
    const journal = new UsageJournal(pathOf(ledger))
    const uuid = '01920000-0000-7000-8000-000000000000'
    const common = { organizationId: uuid, model: 'Qwen/Qwen3-32B', upstream: 'vllm-2', costNanoUsd: 106_800 }
    const places = Array.from({ length: 16 }, () => journal.append(rowOf(uuid, { ...common, atMs: 1_795_000_000_000 })))
    expect(places).toEqual(Array.from({ length: 16 }, (_, at) => at))
    journal.close()
  })

  test('is booked once, by a ledger that then frees it', async () => {
    // Goal: a row that the daemon before wrote to the database too, and died before it noted that, counts once.
    using ledger = openLedger()
    const killed = new UsageJournal(pathOf(ledger))
    // A killed daemon's timers do not run.
    const before = meteringOf({ ...ledger, clock: createManualClock() }, killed)
    before.record(recordOf('a'))
    before.record(recordOf('b'))
    before.flush()
    before.record(recordOf('c'))
    killed.close()
    const second = new UsageJournal(pathOf(ledger))
    const metering = meteringOf(ledger, second)
    expect(metering.counts()).toEqual({ written: 0, lost: 0, waiting: 3 })
    await ledger.clock.elapse(flushIntervalMs)
    expect(metering.counts()).toEqual({ written: 1, lost: 0, waiting: 0 })
    expect(metering.usage('o1', period)).toMatchObject({ requests: 3, promptTokens: 30n, costNanoUsd: 15n })
    second.close()
    expect(reopened(pathOf(ledger)).rows).toEqual([])
  })

  test('counts in budgets before it is booked', () => {
    // Goal: a restart lets no request pass a budget that rows of the journal have used up.
    using ledger = openLedger()
    const killed = new UsageJournal(pathOf(ledger))
    meteringOf(ledger, killed).record(recordOf('a'))
    killed.close()
    const metering = meteringOf(ledger, new UsageJournal(pathOf(ledger)))
    expect(metering.spent(callerOf(), '1970-01').key).toMatchObject({ requests: 1, promptTokens: 10, costNanoUsd: 5 })
  })

  test('with a torn row, a torn header and foreign bytes', () => {
    // Goal: a row that was being written costs itself alone; without a header no row is lost.
    using ledger = openLedger()
    const first = new UsageJournal(pathOf(ledger))
    const places = ['a', 'b', 'c'].map(id => first.append(rowOf(id)))
    first.release(places[1] ?? -1)
    first.close()
    const bytes = readFileSync(pathOf(ledger))
    const torn = bytes.indexOf('"b"')
    bytes.fill(0, torn, torn + 40)
    writeFileSync(pathOf(ledger), bytes)
    const second = reopened(pathOf(ledger))
    expect(second.rows.map(({ id }) => id)).toEqual(['c'])
    second.journal.close()
    bytes.fill(0xff, 8, 16)
    bytes.fill(0x5a, headerBytes + 1_000_000, headerBytes + 2_000_000)
    writeFileSync(pathOf(ledger), bytes)
    const third = reopened(pathOf(ledger))
    expect(third.rows.map(({ id }) => id)).toEqual(['a', 'c'])
    third.journal.close()
  })

  test('that is cut, empty or of nothing but other bytes', () => {
    // Goal: whatever stands there, the daemon starts, finds what is whole, and can write again.
    using ledger = openLedger()
    const path = pathOf(ledger)
    const first = new UsageJournal(path)
    first.append(rowOf('a'))
    first.close()
    for (const [bytes, found] of [
      [headerBytes + 512, ['a']],
      [100, []],
      [0, []],
    ] as const) {
      truncateSync(path, bytes)
      const { journal, rows } = reopened(path)
      expect(rows.map(({ id }) => id)).toEqual([...found])
      expect(statSync(path).size).toBe(headerBytes + slotCount * 256)
      expect(journal.append(rowOf('again'))).toBeGreaterThanOrEqual(0)
      journal.close()
      truncateSync(path, headerBytes + 512)
    }
    writeFileSync(path, 'no journal')
    const { journal, rows } = reopened(path)
    expect(rows).toEqual([])
    journal.close()
  })

  test('with a row of another release', () => {
    // Goal: a row whose fields differ stops neither the start nor the rows beside it.
    using ledger = openLedger()
    const first = new UsageJournal(pathOf(ledger))
    first.append({ ...rowOf('later'), promptTokens: 'many' } as unknown as Usage)
    first.append(rowOf('a'))
    first.close()
    const { journal, rows } = reopened(pathOf(ledger))
    expect(rows.map(({ id }) => id)).toEqual(['a'])
    journal.close()
  })
})

describe('the ring', () => {
  test('gives a reader all rows but a torn one', () => {
    // Goal: bytes that the disk has lost cost one row, and no thread ends over them.
    using ledger = openLedger()
    const journal = new UsageJournal(pathOf(ledger))
    const reader = new JournalReader(journal.path)
    for (const id of ['a', 'b', 'c']) journal.append(rowOf(id))
    const bytes = readFileSync(pathOf(ledger))
    const torn = bytes.indexOf('"b"')
    const fd = openSync(pathOf(ledger), 'r+')
    writeSync(fd, Buffer.alloc(40), 0, 40, torn)
    closeSync(fd)
    expect(reader.rows({ from: 0, to: journal.end }).map(({ id }) => id)).toEqual(['a', 'c'])
    journal.close()
  })

  test('goes round many times, and a reader finds what is in a range', () => {
    // Goal: rows at the end of the ring and behind it are read back, and none of an earlier round.
    using ledger = openLedger()
    const journal = new UsageJournal(pathOf(ledger))
    const reader = new JournalReader(journal.path)
    let next = 0
    let rounds = 0
    while (rounds < 2) {
      const from = journal.end
      const ids: string[] = []
      for (let i = 0; i < 2_000; i += 1) {
        const row = rowOf(`r${next}`, { endUser: 'x'.repeat((next * 37) % 2_000) })
        next += 1
        expect(journal.append(row)).toBeGreaterThanOrEqual(from)
        ids.push(row.id)
      }
      if (Math.floor(journal.end / slotCount) > Math.floor(from / slotCount)) rounds += 1
      const range = { from, to: journal.end }
      expect(reader.rows(range).map(({ id }) => id)).toEqual(ids)
      if (rounds < 2) journal.release(journal.end)
      else {
        journal.close()
        expect(reopened(journal.path).rows.map(({ id }) => id)).toEqual(ids)
      }
    }
  })

  test('that is full takes no row, and half full admits no request', () => {
    // Goal: rows that wait for the database are never overwritten; requests stop before that.
    using ledger = openLedger()
    const journal = new UsageJournal(pathOf(ledger))
    const metering = meteringOf(ledger, journal)
    const tags = 'x'.repeat(20_000)
    let count = 0
    for (; journal.end <= slotCount / 2; count += 1) {
      metering.checkRoom()
      journal.append(rowOf(`r${count}`, { tags }))
    }
    expect(() => metering.checkRoom()).toThrow('Usage cannot be recorded at present')
    while (journal.append(rowOf(`r${count}`, { tags })) >= 0) count += 1
    metering.record(recordOf('small'))
    expect(metering.counts()).toEqual({ written: 0, lost: 0, waiting: 1 })
    journal.close()
    expect(reopened(pathOf(ledger)).rows.length).toBeGreaterThanOrEqual(count)
  })

  test('takes no row that is larger than a record', () => {
    // Goal: such a row is booked from memory.
    using ledger = openLedger()
    const journal = new UsageJournal(pathOf(ledger))
    expect(journal.append(rowOf('large', { tags: 'x'.repeat(30_000) }))).toBe(-1)
    expect(journal.append(rowOf('a'))).toBe(0)
    journal.close()
  })
})

test('the disk gets new rows, once', () => {
  // Goal: the ledger's thread writes rows of this daemon and of the one before to the disk, and otherwise leaves the
  // disk alone.
  using ledger = openLedger()
  const killed = new UsageJournal(pathOf(ledger))
  killed.append(rowOf('a'))
  killed.close()
  const { journal } = reopened(pathOf(ledger))
  const reader = new JournalReader(journal.path)
  expect([reader.sync(), reader.sync()]).toEqual([true, false])
  journal.append(rowOf('b'))
  journal.append(rowOf('c'))
  expect([reader.sync(), reader.sync()]).toEqual([true, false])
  journal.release(journal.end)
  expect(reader.sync()).toBe(false)
  reader.close()
  journal.close()
})

test('a file that another process uses', () => {
  // Goal: two daemons never write one journal.
  using ledger = openLedger()
  const journal = new UsageJournal(pathOf(ledger))
  expect(() => new UsageJournal(pathOf(ledger))).toThrow('another process uses it: EAGAIN')
  journal.close()
  new UsageJournal(pathOf(ledger)).close()
})

test('a path that is no file of ours', () => {
  // Goal: the journal follows no link and makes no directory a file.
  using ledger = openLedger()
  mkdirSync(pathOf(ledger))
  expect(() => new UsageJournal(pathOf(ledger))).toThrow('EISDIR')
  const link = join(ledger.dir, 'link')
  symlinkSync(join(ledger.dir, 'target'), link)
  expect(() => new UsageJournal(link)).toThrow('ELOOP')
})

test('a stop books all, and later rows do not need the file', async () => {
  // Goal: a daemon that ends in order leaves nothing for the next one.
  using ledger = openLedger()
  const metering = meteringOf(ledger, new UsageJournal(pathOf(ledger)))
  metering.record(recordOf('a'))
  await metering.stop()
  metering.record(recordOf('late'))
  expect(metering.usage('o1', period).requests).toBe(2)
  const { journal, rows } = reopened(pathOf(ledger))
  expect(rows).toEqual([])
  journal.close()
})

// Goal: an amount that no database takes is left out like any other bad row, so that it does not stop every backup.
test.each(['promptTokens', 'completionTokens', 'cachedTokens', 'costNanoUsd'] as const)('too large %s', name => {
  using state = openLedger()
  const path = join(state.dir, 'journal')
  const journal = new UsageJournal(path)
  journal.append(rowOf('beyond', { [name]: Number.MAX_SAFE_INTEGER + 1 }))
  journal.append(rowOf('most', { [name]: Number.MAX_SAFE_INTEGER }))
  journal.close()
  expect(readUnbooked(path).map(({ id }) => id)).toEqual(['most'])
})
