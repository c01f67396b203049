// How long the ledger and its keys are kept: a real database, a manual clock.

import { describe, expect, test } from 'bun:test'
import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import {
  retentionBatchGapMs,
  retentionBatchRowsMax,
  retentionIntervalMs,
  runLedgerRetention,
} from '../../../src/inference/metering/retention.ts'
import { findGatewayKey, listGatewayKeys, revokeGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { dayOf } from '../../../src/store/directory/usage/periods.ts'
import { prepareUsageAppend } from '../../../src/store/directory/usage/usage.query.ts'
import { type Usage, usage } from '../../../src/store/directory/usage/usage.table.ts'
import { prepareDaysPage } from '../../../src/store/directory/usage/usage-day.query.ts'
import { type Ledger, openLedger, prefixOf } from '../../rigs/gateway/keys.ts'

const dayMs = 86_400_000
const retentionDays = 62

function run({ store, clock, log }: Ledger) {
  const stopping = new AbortController()
  const running = runLedgerRetention(
    { store, clock, guard: createClockGuard(clock), log, retentionDays },
    stopping.signal,
  )
  return {
    /** Ends the loop and waits for it. */
    stop: () => {
      stopping.abort()
      return running
    },
  }
}

function append(ledger: Ledger, rows: readonly { id: string; atMs: number; organizationId?: string }[]) {
  const rest: Omit<Usage, 'id' | 'atMs' | 'organizationId'> = {
    keyPrefix: 'aaaaaaaa',
    instanceId: null,
    model: 'tiny',
    upstream: 'local',
    promptTokens: 1,
    completionTokens: 1,
    costNanoUsd: 1,
    outcome: 'completed',
    tokensSource: 'reported',
    endUser: null,
    tags: null,
    cachedTokens: 0,
  }
  prepareUsageAppend(ledger.store.db)(rows.map(row => ({ organizationId: 'o1', ...rest, ...row })))
}

const rowIds = ({ store }: Ledger) =>
  store.db
    .select({ id: usage.id })
    .from(usage)
    .all()
    .map(row => row.id)
    .sort()

describe('usage', () => {
  test('goes to the millisecond, and no sooner', async () => {
    // Goal: rows of every organization are kept exactly as long as configured; a later round deletes those due since.
    using ledger = openLedger()
    const cutoffMs = ledger.clock.nowMs() - retentionDays * dayMs
    append(ledger, [
      { id: 'older', atMs: cutoffMs - 1 },
      { id: 'other', atMs: cutoffMs - 1, organizationId: 'o2' },
      { id: 'ancient', atMs: 0 },
      { id: 'edge', atMs: cutoffMs },
      { id: 'later', atMs: cutoffMs + retentionIntervalMs },
      { id: 'now', atMs: ledger.clock.nowMs() },
    ])
    const page = prepareDaysPage(ledger.store.db)
    const always = { organizationId: 'o1', keyPrefix: 'aaaaaaaa', from: '0000-01-01', to: '9999-12-31' }
    const days = () => page(always, null, 10).rows.map(({ day }) => day)
    const kept = [cutoffMs, ledger.clock.nowMs()].map(dayOf)
    expect(days()).toEqual(['1970-01-01', ...kept])
    const purging = run(ledger)
    await ledger.clock.elapse(0)
    expect(rowIds(ledger)).toEqual(['edge', 'later', 'now'])
    // Sums of a day go when all of it is due.
    expect(days()).toEqual(kept)
    await ledger.clock.elapse(retentionIntervalMs)
    expect(rowIds(ledger)).toEqual(['later', 'now'])
    expect(ledger.logged.filter(line => line.includes('"usage":3'))).toHaveLength(1)
    await purging.stop()
    expect(ledger.clock.pending()).toEqual([])
  })

  test('goes in batches with room in between', async () => {
    // Goal: however much is due, one batch at a time goes, and all of it in one round.
    using ledger = openLedger()
    const count = retentionBatchRowsMax * 2 + 10
    append(
      ledger,
      Array.from({ length: count }, (_, i) => ({ id: `r${i}`, atMs: i })),
    )
    const purging = run(ledger)
    expect(rowIds(ledger)).toHaveLength(count - retentionBatchRowsMax)
    expect(ledger.clock.pending()).toEqual([retentionBatchGapMs])
    await ledger.clock.elapse(retentionBatchGapMs)
    expect(rowIds(ledger)).toHaveLength(10)
    await ledger.clock.elapse(retentionBatchGapMs)
    expect(rowIds(ledger)).toEqual([])
    expect(ledger.clock.pending()).toEqual([retentionIntervalMs])
    await purging.stop()
  })

  test('a clock that jumped back removes nothing', async () => {
    // Goal: less is due then, and rows from what seems the future stay.
    using ledger = openLedger()
    append(ledger, [{ id: 'r1', atMs: ledger.clock.nowMs() }])
    ledger.clock.set(1_000)
    const purging = run(ledger)
    await ledger.clock.elapse(retentionIntervalMs)
    expect(rowIds(ledger)).toEqual(['r1'])
    await purging.stop()
  })

  test('is kept for two billing periods at the least', () => {
    // Goal: the configuration takes nothing shorter, and 400 days where it says nothing.
    const daysOf = (text: string) => {
      const verdict = parseConfig(text, 'f')
      return verdict.ok ? verdict.config.inference.usage_retention_days : verdict.problems.map(({ message }) => message)
    }
    expect(daysOf('')).toBe(400)
    expect(daysOf('[inference]\nusage_retention_days = 62')).toBe(62)
    expect(daysOf('[inference]\nusage_retention_days = 61')).toEqual([
      '61 is not allowed; allowed: an integer from 62 to 3650',
    ])
  })
})

describe('keys', () => {
  test('go a day after the last of their usage could', async () => {
    // Goal: a key that ended long ago is deleted; keys with usage left, ended later or alive stay until their turn.
    using ledger = openLedger()
    const { store, clock } = ledger
    const cutoffMs = clock.nowMs() - retentionDays * dayMs
    const revoked = (atMs: number) => {
      const prefix = prefixOf(ledger.addKey())
      revokeGatewayKey(store.db, { prefix, nowMs: atMs })
      return prefix
    }
    const [gone, lately] = [revoked(cutoffMs - dayMs - 1), revoked(cutoffMs - dayMs)]
    const expired = prefixOf(ledger.addKey({ expiresAtMs: cutoffMs - dayMs - 1 }))
    const living = prefixOf(ledger.addKey())
    const there = () => [gone, expired, lately, living].filter(prefix => findGatewayKey(store.db, prefix) !== null)
    const purging = run(ledger)
    await clock.elapse(0)
    expect(there()).toEqual([lately, living])
    await clock.elapse(retentionIntervalMs)
    expect(there()).toEqual([living])
    await purging.stop()
  })

  test('of an instance go as other keys do', async () => {
    // Goal: its guest drew the key, so no claim can bring a revoked one back, and nothing keeps the row.
    using ledger = openLedger()
    const { store, clock } = ledger
    const instanceId = ledger.addInstance('abcd1234')
    const prefix = prefixOf(ledger.addKey({ instanceId }))
    revokeGatewayKey(store.db, { prefix, nowMs: 7 })
    const purging = run(ledger)
    await clock.elapse(0)
    expect(listGatewayKeys(store.db, 'o1')).toEqual([])
    await purging.stop()
  })
})

describe('the loop', () => {
  test('outlives a database that refuses', async () => {
    // Goal: a failure is logged, and the next round does what is due.
    using ledger = openLedger()
    append(ledger, [{ id: 'r1', atMs: 0 }])
    ledger.store.db.run("CREATE TRIGGER refuse BEFORE DELETE ON usage BEGIN SELECT RAISE(ABORT, 'refused'); END")
    const purging = run(ledger)
    await ledger.clock.elapse(0)
    expect(ledger.logged.filter(line => line.includes('old usage was not removed'))).toHaveLength(1)
    ledger.store.db.run('DROP TRIGGER refuse')
    await ledger.clock.elapse(retentionIntervalMs)
    expect(rowIds(ledger)).toEqual([])
    await purging.stop()
  })

  test('ends with its signal, in the middle of a round too', async () => {
    // Goal: a stop waits for nothing but the batch under way, and is no failure.
    using ledger = openLedger()
    append(
      ledger,
      Array.from({ length: retentionBatchRowsMax * 3 }, (_, i) => ({ id: `r${i}`, atMs: i })),
    )
    await run(ledger).stop()
    expect(rowIds(ledger)).toHaveLength(retentionBatchRowsMax * 2)
    expect(ledger.clock.pending()).toEqual([])
    expect(ledger.logged.filter(line => line.includes('error'))).toEqual([])
  })
})
