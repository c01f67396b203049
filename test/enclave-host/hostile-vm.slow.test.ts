// A gateway VM that attacks its host: whatever its messages and their rate, the host's pauses bound the work for it.

import { describe, expect, test } from 'bun:test'
import { generateKeyPairSync, sign } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toBase64Url, toHex } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { createLogger, silentLogger } from '../../src/base/log.ts'
import { metricsPieceCharsMax, usageRowsMax } from '../../src/contract/vm/enclave.ts'
import type { HostRequest, UsageBatch, UsageRow } from '../../src/contract/vm/enclave-responses.ts'
import { usageBytes, usageMessage } from '../../src/contract/vm/usage-batch.ts'
import { ControlSource } from '../../src/enclave-host/control.ts'
import { Metering } from '../../src/inference/metering/ledger.ts'
import { usageRecordOf, VmUsageLedger } from '../../src/inference/metering/vm-usage-ledger.ts'
import { openStore } from '../../src/store/db.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { insertGatewayVm, setReceiptKey } from '../../src/store/ledger/gateway-vm.query.ts'
import { fakeSession, fakeStatus } from '../rigs/enclave/fake-gateway-vm.ts'
import { openLedger } from '../rigs/gateway/keys.ts'

const evidence = (at: number): HostRequest => ({
  id: `w${at}`,
  kind: 'evidence',
  reportData: 'A'.repeat(86),
  report: null,
})
const certificate = (at: number): HostRequest => ({ id: `w${at}`, kind: 'certificate', csr: 'AAAA' })

describe('news', () => {
  test('goal: a VM with another status each time is asked no more often than every five milliseconds', async () => {
    let asked = 0
    let changes = 0
    const onChange = () => {
      changes += 1
    }
    const next = () => {
      asked += 1
      return { status: { ...fakeStatus, running: asked }, wants: [], usage: null }
    }
    const { session, clock } = fakeSession({ next }, { onChange })
    session.start()
    await clock.elapse(1_000)
    expect([asked, changes]).toEqual([201, 201])
    await session.stop()
  })

  test('goal: one that never answers is waited for, asked nothing else, and let go of at once', async () => {
    let asked = 0
    const next = () => {
      asked += 1
      return Promise.withResolvers<never>().promise
    }
    const { session, clock } = fakeSession({ next })
    session.start()
    await clock.elapse(600_000)
    expect([asked, session.status]).toEqual([1, null])
    await session.stop()
  })

  test('goal: one that fails each time is asked once a second, and its failures are a line a second in the log', async () => {
    let asked = 0
    const next = () => {
      asked += 1
      return Promise.reject(new Error(`failure ${asked}`))
    }
    const { session, clock, logged } = fakeSession({ next })
    session.start()
    await clock.elapse(60_000)
    expect([asked, logged.length]).toEqual([61, 61])
    await session.stop()
  })
})

describe('wants without end', () => {
  /** Sixteen new ones with each answer. */
  function insatiable(want: (at: number) => HostRequest, status = () => fakeStatus) {
    let count = 0
    return () => {
      count += 16
      return { status: status(), wants: Array.from({ length: 16 }, (_, at) => want(count + at)), usage: null }
    }
  }

  test('goal: no more than 16 are answered at a time, whether or not it changes its key, and a hundred a second', async () => {
    let keys = 0
    const another = () => {
      keys += 1
      return { ...fakeStatus, receiptKey: String(keys).padStart(43, 'A') }
    }
    for (const status of [() => fakeStatus, another]) {
      let underWay = 0
      let most = 0
      let answered = 0
      let hold = true
      const completeEvidence = async () => {
        underWay += 1
        most = Math.max(most, underWay)
        if (hold) await clock.sleep(10_000)
        underWay -= 1
        answered += 1
        return { evidence: null }
      }
      const vm = { next: insatiable(evidence, status), completeEvidence: completeEvidence as never }
      const { session, clock } = fakeSession(vm)
      session.start()
      await clock.elapse(9_000)
      expect([most, answered]).toEqual([16, 0])
      await clock.elapse(2_000)
      hold = false
      await clock.elapse(10_000)
      const before = answered
      await clock.elapse(10_000)
      expect(most).toBe(16)
      expect(answered - before).toBeGreaterThan(500)
      expect(answered - before).toBeLessThanOrEqual(1_016)
      await session.stop()
    }
  })

  test('goal: nonsense for certificates is answered once a second for each that may be open, and the log has a line a second', async () => {
    let asked = 0
    const certify = () => {
      asked += 1
      return Promise.reject(new Error('no request'))
    }
    const { session, clock, logged } = fakeSession({ next: insatiable(certificate) }, { certify })
    session.start()
    await clock.elapse(60_000)
    expect(asked).toBeGreaterThan(16)
    expect(asked).toBeLessThanOrEqual(16 * 61)
    expect(logged.length).toBeLessThanOrEqual(61)
    expect(logged.at(-1)).toContain('"leftOut":')
    await session.stop()
  })
})

describe('reports', () => {
  test('goal: metrics without end are cut at a megabyte, by whole lines, and asked for no faster than its pauses', async () => {
    let asked = 0
    const metrics = `${'x'.repeat(1_022)} 1\n`.repeat(100).slice(0, metricsPieceCharsMax)
    const report = () => {
      asked += 1
      return { metrics, metricsChars: Number.MAX_SAFE_INTEGER, log: [] }
    }
    const { session, clock } = fakeSession({ report })
    session.start()
    await clock.elapse(60_000)
    expect(session.metrics.length).toBeLessThanOrEqual(1_048_576)
    expect(session.metrics.length).toBeGreaterThan(1_000_000)
    expect(session.metrics.endsWith('\n')).toBe(true)
    // 32 pieces each time, every five seconds.
    expect(asked).toBeLessThanOrEqual(12 * 32)
    await session.stop()
  })

  test('goal: empty pieces, and pieces longer than the whole, end it', async () => {
    for (const [piece, whole] of [
      [{ metrics: '', metricsChars: 1_000_000, log: [] }, ''],
      [{ metrics: 'up 1\n', metricsChars: 0, log: [] }, 'up 1\n'],
    ] as const) {
      let asked = 0
      const report = () => {
        asked += 1
        return { ...piece, log: [] }
      }
      const { session, clock } = fakeSession({ report })
      session.start()
      await clock.elapse(5_100)
      expect([asked, session.metrics]).toEqual([1, whole])
      await session.stop()
    }
  })

  test('goal: a thousand lines of its log are kept, with numbers that rise, whatever numbers it gives them', async () => {
    const seqs = [0, 5, 5, 3, Number.MAX_SAFE_INTEGER, 0]
    const report = () => {
      const log = Array.from({ length: 32 }, (_, at) => ({ seq: seqs[at % seqs.length] ?? 0, line: 'x'.repeat(1_024) }))
      return { metrics: '', metricsChars: 0, log }
    }
    const { session, clock } = fakeSession({ report })
    session.start()
    await clock.elapse(300_000)
    const kept = session.log(0).map(({ seq }) => seq)
    expect(kept.length).toBe(1_000)
    expect(kept).toEqual(Array.from({ length: 1_000 }, (_, at) => (kept[0] ?? 0) + at))
    expect(session.log((kept.at(-1) ?? 0) - 1).length).toBe(2)
    await session.stop()
  })

  test('goal: the log of a gateway that has started anew in its VM is read from its beginning, and goes on with our numbers', async () => {
    let process = 'A'
    const lines = ['A 0', 'A 1', 'A 2', 'B 0'].map(text => ({ seq: Number(text.slice(2)), line: text }))
    const { session, clock } = fakeSession({
      status: () => ({ ...fakeStatus, receiptKey: process.repeat(43) }),
      report: ({ logFrom }) => ({
        metrics: '',
        metricsChars: 0,
        log: lines.filter(({ seq, line }) => line.startsWith(process) && seq >= logFrom),
      }),
    })
    session.start()
    await clock.elapse(12_000)
    process = 'B'
    await clock.elapse(24_000)
    expect(session.log(0).map(item => `${item.seq}: ${item.line}`)).toEqual(['0: A 0', '1: A 1', '2: A 2', '3: B 0'])
    await session.stop()
  })
})

describe('revisions', () => {
  test('goal: one that no clock could have given does not take all later ones from the other gateways', () => {
    using ledger = openLedger()
    const { store, clock } = ledger
    const key = { publicKey: 'x', sign: () => new Uint8Array(64) }
    const control = new ControlSource({ db: store.db, key, upstreamKeys: {}, prices: [], clock })
    const first = control.current().revision
    for (const revision of [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER - 1, 8.64e15 + 1]) {
      expect(() => control.raiseAbove(revision)).toThrow('unknown revision')
    }
    expect(control.current().revision).toBe(first)
    control.raiseAbove(8.64e15)
    expect(control.current().revision).toBe(8.64e15 + 1)
    expect(Number.isSafeInteger(control.current().revision + 1_000_000_000)).toBe(true)
  })
})

describe('usage', () => {
  test('goal: rows for organizations that do not exist are lost, a line of the log for each batch, and the good ones among them are booked', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'srt-books-'))
    await using stop = new AsyncDisposableStack()
    stop.defer(() => rmSync(dir, { recursive: true, force: true }))
    const store = openStore(join(dir, 'strongroom.db'))
    stop.defer(() => store.close())
    insertOrganization(store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
    const logged: string[] = []
    const log = createLogger({ level: 'info', sink: line => void logged.push(line), nowMs: systemClock.nowMs })
    const metering = new Metering({ store: store.directory, clock: systemClock, log, cost: () => 1n })
    stop.defer(() => metering.stop())
    const books = new VmUsageLedger({
      ledger: store.ledger.db,
      write: rows => metering.book(rows.map(usageRecordOf)),
      log: silentLogger,
    })
    const { privateKey, publicKey } = generateKeyPairSync('ed25519')
    insertGatewayVm(store.ledger.db, { vmId: 'v1', hostId: store.hostId, shape: 's', nowMs: 1 })
    setReceiptKey(store.ledger.db, 'v1', publicKey.export({ format: 'jwk' }).x ?? '')
    let before: Uint8Array = new Uint8Array(32)
    let from = 0
    const batchOf = (rows: UsageRow[]): UsageBatch => {
      const digest = new Uint8Array(Bun.CryptoHasher.hash('sha256', usageBytes(before, rows)))
      const signature = toBase64Url(new Uint8Array(sign(null, usageMessage(digest), privateKey)))
      const batch = { from, rows, before: toHex(before), digest: toHex(digest), signature }
      before = digest
      from += rows.length
      return batch
    }
    const rowOf = (at: number, organizationId: string): UsageRow => ({
      id: `r${from + at}`,
      atMs: 1,
      organizationId,
      keyPrefix: 'p',
      instanceId: null,
      model: 'm',
      upstream: 'u',
      promptTokens: 1,
      completionTokens: Number.MAX_SAFE_INTEGER,
      tokensSource: 'reported',
      outcome: 'completed',
    })
    for (let count = 0; count < 10; count += 1) {
      const rows = Array.from({ length: usageRowsMax }, (_, at) => rowOf(at, at === 0 ? 'o1' : `nobody-${at}`))
      books.take('v1', batchOf(rows))
    }
    expect(metering.counts()).toEqual({ written: 10, lost: 10 * (usageRowsMax - 1), waiting: 0 })
    expect(books.booked('v1')).toBe(10 * usageRowsMax)
    expect(logged.length).toBe(10)
    expect(metering.usage('o1', { startMs: 0, endMs: 10 }).requests).toBe(10)
  })
})
