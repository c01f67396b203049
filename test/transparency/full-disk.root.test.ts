// Goal: on a full disk, the first start included, the log takes nothing and loses nothing, says why, and goes on as the
// same log as soon as there is room.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { openLogBench } from '../../scripts/rigs/transparency.ts'
import type { LogFact } from '../../src/contract/http/log-entry.ts'
import { readMeta } from '../../src/store/ledger/meta.query.ts'
import type { TransparencyLog } from '../../src/transparency/log.ts'
import { fillDisk, smallDisk } from '../rigs/small-disk.ts'

const policy = (n: number): LogFact => ({ kind: 'verifier-policy', sha256: n.toString(16).padStart(64, '0') })
const headName = 'log-head.txt'

/** A log whose directory is a file system of its own. */
function openOnSmallDisk(begins: boolean) {
  const undo = new DisposableStack()
  const parent = mkdtempSync(join(tmpdir(), 'srt-log-disk-'))
  undo.defer(() => rmSync(parent, { recursive: true }))
  const directory = join(parent, 'state')
  undo.use(smallDisk(directory, 8))
  const bench = undo.use(openLogBench({ begins, directory }))
  const ledger = bench.store.ledger.db
  return {
    ...bench,
    /** `database`: whether its own log still has room, within its file. */
    fill: (database: 'full' | 'has room') => {
      if (database === 'has room') {
        for (const sql of ['CREATE TABLE x (y)', 'INSERT INTO x VALUES (zeroblob(500000))', 'DROP TABLE x'])
          ledger.run(sql)
        ledger.all('PRAGMA wal_checkpoint(RESTART)')
      }
      return fillDisk(directory)
    },
    head: () => (existsSync(join(directory, headName)) ? readFileSync(join(directory, headName), 'utf8') : null),
    /** All that a log leaves: origin, entries, and files beside the database. */
    left: () => ({
      origin: readMeta(ledger, 'log_origin'),
      entries: ledger.all('SELECT seq FROM log_entries').length,
      files: readdirSync(directory).filter(name => name.startsWith('log-') && name !== 'log-key.pem'),
    }),
    [Symbol.dispose]: () => undo.dispose(),
  }
}

/** Fails for want of room, whichever file met it first. */
function refusedBy(log: TransparencyLog, work: () => void): string {
  expect(work).toThrow()
  const reason = log.failure()?.reason ?? ''
  expect(reason).toMatch(/full|no space|ENOSPC/i)
  return reason
}

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: nothing is left behind, and the log that begins later is the only one.
    test.each(['full', 'has room'] as const)('goal: a first start on a full disk; the database: %s', database => {
      using bench = openOnSmallDisk(false)
      const { log } = bench
      const ballast = bench.fill(database)
      refusedBy(log, () => log.begin())
      refusedBy(log, () => log.append(policy(1)))
      expect([bench.left(), log.key(), log.checkpoint()]).toEqual([{ origin: null, entries: 0, files: [] }, null, null])
      rmSync(ballast)
      log.append(policy(1))
      expect([log.failure(), log.head()?.size, bench.events]).toEqual([null, 1, ['log.begun']])
      const again = bench.reopened()
      again.begin()
      expect([again.head(), bench.events]).toEqual([log.head(), ['log.begun']])
    })

    // Goal: an entry is there whole or not at all, and the log goes on as the same one.
    test.each(['full', 'has room'] as const)(
      'goal: a disk that fills up while entries are written; the database: %s',
      database => {
        using bench = openOnSmallDisk(true)
        const { log } = bench
        log.append(policy(0))
        const before = log.head()
        const ballast = bench.fill(database)
        let accepted = 0
        for (let n = 1; n <= 20; n += 1) {
          try {
            log.append(policy(n))
            accepted += 1
          } catch {
            expect(log.failure()?.reason).toMatch(/full|no space|ENOSPC/i)
          }
        }
        expect([accepted, log.head(), log.shown(), bench.left()]).toEqual([
          0,
          before,
          1,
          { origin: before?.origin ?? '', entries: 1, files: [headName] },
        ])
        // As after a crash in the middle of it.
        const restarted = bench.reopened()
        expect(restarted.head()).toEqual(before)
        refusedBy(restarted, () => restarted.append(policy(21)))
        rmSync(ballast)
        restarted.append(policy(21))
        expect([restarted.head()?.origin, restarted.head()?.size, restarted.failure()]).toEqual([
          before?.origin,
          2,
          null,
        ])
        expect(bench.reopened().head()).toEqual(restarted.head())
      },
    )

    // Goal: neither the database nor the head is changed until both can be.
    test.each(['full', 'has room'] as const)(
      'goal: a log that has to begin anew while the disk is full; the database: %s',
      database => {
        using bench = openOnSmallDisk(true)
        bench.log.append(policy(1), policy(2), policy(3))
        // As after a way back to a copy of the database.
        bench.store.ledger.db.run('DELETE FROM log_entries WHERE seq = 2')
        const head = bench.head()
        const [left, log] = [bench.left(), bench.reopened()]
        const ballast = bench.fill(database)
        refusedBy(log, () => log.begin())
        expect([bench.left(), bench.head(), bench.events]).toEqual([left, head, ['log.begun']])
        rmSync(ballast)
        // The new log has as many entries as the one before.
        log.append()
        expect([log.head()?.size, bench.head() === head]).toEqual([3, false])
        const again = bench.reopened()
        expect(again.head()).toEqual(log.head())
      },
    )

    test('goal: what a crash left in the place of the next head is no obstacle', () => {
      using bench = openOnSmallDisk(true)
      writeFileSync(join(bench.directory, `${headName}.next`), 'half of it')
      bench.log.append(policy(1))
      expect(bench.left().files).toEqual([headName])
    })
  },
  { timeoutMs: 60_000 },
)
