// The session with one gateway VM: sends keys and workload, answers requests, records usage. Effects: through the
// engine, the ledger, the authority.
//
// One loop polls the VM and processes each answer completely, so a lost message costs time, never usage. The VM is
// hostile: the wire checks its messages, and no message makes this loop faster than its pauses.

import { fromBase64Url } from '../base/bytes.ts'
import { type Clock, pause } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { createSerial } from '../base/work/serial.ts'
import { sweepLater } from '../base/work/sweep.ts'
import { TokenBucket } from '../base/work/token-bucket.ts'
import type { EnclaveStatus, HostRequest, UsageBatch } from '../contract/vm/enclave-responses.ts'
import type { Addresses } from './addresses.ts'
import type { ControlSource } from './control.ts'
import { SpanFetcher, type SpanTaker } from './spans.ts'
import type {
  BudgetPart,
  BudgetScope,
  Certify,
  GatewayVmEngine,
  HostRequestOf,
  UsageLedger,
  UsageReporter,
  VmShares,
} from './types.ts'

export type SessionDeps = {
  readonly vmId: string
  readonly engine: GatewayVmEngine
  readonly control: Pick<ControlSource, 'current' | 'raiseAbove'>
  readonly addresses: Pick<Addresses, 'hosts'>
  readonly usageLedger: UsageLedger
  readonly certify: Certify
  /** Changes with the certificates that a VM would get now; SHA-256, hexadecimal. */
  readonly certificatesStamp: () => string
  /** Null if spans are not collected. */
  readonly spans: SpanTaker | null
  readonly usageReporter: UsageReporter
  /** Shares of keys' limits, by receipt key. Null if this host is not in a fleet. */
  readonly shares: VmShares | null
  readonly clock: Clock
  readonly log: Logger
  /** The status has changed. */
  readonly onChange: () => void
}

const askTimeoutMs = 10_000
/** Requests of the budget wait as long. */
const lowerTimeoutMs = 2_000
const lowerRetryMs = 60_000
const waitMs = 10_000
const retryMs = 1_000
const reportMs = 5_000
const logLinesMax = 1_000
/** Bound on the metrics of one VM. */
const metricsCharsMax = 1_048_576
/** Bound of the wire (contract/vm/enclave.ts). */
const problemCharsMax = 512
/** Concurrent requests of one VM. No share: between one VM and its host. */
const hostRequestsMax = 16
/** An honest VM sends one request after the other. */
const hostRequestsPerSecondMax = 100
/** Between two lines of the log on failures of one kind. */
const noteMs = 1_000
/** Between two answers of a VM that always has changes. */
const leastPauseMs = 5

export class GatewayVmSession {
  readonly vmId: string
  readonly #deps: SessionDeps
  readonly #stopping = new AbortController()
  readonly #stopped = Promise.withResolvers<void>()
  readonly #inProgress = new Set<string>()
  #answering = 0
  readonly #requestRate: TokenBucket
  /** By kind of failure: monotonic time of its last log line, and number of lines left out since. */
  readonly #notes = new Map<string, { atMs: number; leftOut: number }>()
  readonly #pushes = createSerial()
  readonly #spans: SpanFetcher | null
  readonly #lines: { seq: number; line: string }[] = []
  #running: Promise<unknown> | null = null
  #status: EnclaveStatus | null = null
  #usageWaitingSinceMs: number | null = null
  #usageProblem: string | null = null
  #metrics = ''
  #lineCount = 0
  /** Position in the VM's numbering. */
  #logFrom = 0
  #lowerAfterMs = Number.NEGATIVE_INFINITY
  /** The receipt key of the process that was initialized; a new process has no state. */
  #initializedKey: string | null = null

  constructor(deps: SessionDeps) {
    this.vmId = deps.vmId
    this.#deps = deps
    this.#requestRate = new TokenBucket(hostRequestsPerSecondMax, deps.clock)
    this.#spans = this.#newSpanFetcher(deps.spans)
  }

  /** Status by its last answer; null before the first. */
  get status(): EnclaveStatus | null {
    return this.#status
  }

  /** Since when rows of its usage wait and none is booked; null if none waits. */
  get usageWaitingSinceMs(): number | null {
    return this.#usageWaitingSinceMs
  }

  /** Why its usage is not recorded; null if no problem is known. */
  get usageProblem(): string | null {
    return this.#usageProblem
  }

  /** Prometheus text. */
  get metrics(): string {
    return this.#metrics
  }

  /** Lines of its log that are kept here, from that number on. */
  log(from: number): { readonly seq: number; readonly line: string }[] {
    return this.#lines.filter(line => line.seq >= from)
  }

  start(): void {
    this.#running ??= Promise.all([this.#pollRepeatedly(), this.#collect(), this.#spans?.run(this.#stopping.signal)])
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    this.#stopped.resolve()
    await this.#running
  }

  /**
   * Sends keys and limits to the VM at once instead of waiting for its next poll. Resolves once it has them or cannot
   * be reached. Never rejects.
   */
  async pushControl(): Promise<void> {
    if (this.#status === null || this.#status.workload === null) return
    await this.#pushes.run(() => this.#sendControl()).catch(error => this.#note('keys', error))
  }

  pushAddresses(): void {
    if (this.#status === null) return
    void this.#pushes.run(() => this.#sendAddresses()).catch(error => this.#note('addresses', error))
  }

  /** Names or certificates have changed. A VM of an earlier release refuses them and renews in time. */
  pushCertificates(): void {
    if (this.#status === null) return
    void this.#pushes.run(() => this.#sendCertificates()).catch(error => this.#note('certificates', error))
  }

  /** The VM has ended: others may have its parts of keys' limits. Never rejects. */
  async endShares(): Promise<void> {
    if (this.#status !== null) await this.#deps.shares?.end(this.#status.receiptKey)
  }

  /**
   * Returns the part of a budget that the VM keeps in addition to recorded usage, after it has dropped its share.
   * Null if unknown. Never rejects.
   */
  async lowerBudget({ organizationId, keyPrefix, month }: BudgetScope): Promise<BudgetPart | null> {
    const { engine, clock } = this.#deps
    if (this.#status?.state !== 'ready' || clock.monotonicMs() < this.#lowerAfterMs) return null
    try {
      return await engine.lower(this.vmId, { organizationId, keyPrefix, month }, lowerTimeoutMs)
    } catch (error) {
      // A VM of an earlier release refuses it.
      this.#lowerAfterMs = clock.monotonicMs() + lowerRetryMs
      this.#note('budgets', error)
      return null
    }
  }

  /** Starts draining: clients reconnect to the replacement. */
  drain(): void {
    void this.#send({ op: 'drain' }).catch(error => this.#note('drain', error))
  }

  async #pollRepeatedly(): Promise<void> {
    const { clock, engine } = this.#deps
    const { signal } = this.#stopping
    while (!signal.aborted) {
      if (engine.view(this.vmId)?.state !== 'running') {
        await pause(clock, retryMs, signal)
        continue
      }
      try {
        // An answer after the end is ignored.
        await Promise.race([this.#poll(), this.#stopped.promise])
        await pause(clock, leastPauseMs, signal)
      } catch (error) {
        if (signal.aborted) return
        this.#note('news', error)
        await pause(clock, retryMs, signal)
      }
    }
  }

  async #poll(): Promise<void> {
    const { engine, usageLedger, onChange } = this.#deps
    // A restarted daemon polls at once for the whole state.
    const isNew = this.#status === null || this.#status.state === 'waiting'
    const asked = { known: [...this.#inProgress], booked: usageLedger.booked(this.vmId), waitMs: isNew ? 0 : waitMs }
    const { status, wants, usage } = await engine.next(this.vmId, asked, waitMs + askTimeoutMs)
    if (this.#stopping.signal.aborted) return
    const isChanged = JSON.stringify(status) !== JSON.stringify(this.#status)
    this.#status = status
    if (this.#initializedKey !== status.receiptKey) {
      this.#inProgress.clear()
      this.#logFrom = 0
      this.#spans?.beginAnew()
      await this.#sendAddresses()
      await this.#sendCertificates().catch(error => this.#note('certificates', error))
      this.#initializedKey = status.receiptKey
    }
    // Usage is first. Otherwise a daemon that was killed before it noted what it recorded would answer with sums that
    // miss its own rows. And a VM of an earlier release may refuse today's keys; its usage counts until it is
    // replaced.
    this.#book(status, usage)
    let refusedMs = 0
    if (status.state === 'waiting') await engine.workload(this.vmId, askTimeoutMs)
    else if (status.revision !== this.#deps.control.current().revision) {
      await this.#pushes
        .run(() => this.#sendControl())
        .catch(error => {
          this.#note('keys', error)
          refusedMs = retryMs
        })
    }
    const owedMs = Math.max(refusedMs, ...wants.map(want => this.#answer(want)))
    if (isChanged) onChange()
    await pause(this.#deps.clock, owedMs, this.#stopping.signal)
  }

  /** Faults of the books. */
  #book({ usageWaiting }: EnclaveStatus, usage: UsageBatch | null): void {
    const { usageLedger, clock } = this.#deps
    if (usageWaiting === 0) this.#usageWaitingSinceMs = null
    else this.#usageWaitingSinceMs ??= clock.nowMs()
    if (usage === null) return
    try {
      usageLedger.take(this.vmId, usage)
      this.#usageProblem = null
      this.#usageWaitingSinceMs = null
    } catch (error) {
      this.#usageProblem = messageOf(error)
      throw error
    }
  }

  async #sendControl(): Promise<void> {
    const { engine, control } = this.#deps
    const inForce = this.#status?.revision ?? 0
    if (inForce > control.current().revision) control.raiseAbove(inForce)
    const snapshot = control.current()
    if (snapshot.revision === inForce) return
    const revision = await engine.control(this.vmId, snapshot, askTimeoutMs)
    if (this.#status !== null) this.#status = { ...this.#status, revision }
  }

  #sendAddresses(): Promise<void> {
    return this.#send({ op: 'addresses', hosts: this.#deps.addresses.hosts() })
  }

  #sendCertificates(): Promise<void> {
    return this.#send({ op: 'certificates', stamp: this.#deps.certificatesStamp() })
  }

  #send(operation: Parameters<GatewayVmEngine['tell']>[1]): Promise<void> {
    return this.#deps.engine.tell(this.vmId, operation, askTimeoutMs)
  }

  /**
   * Runs beside the loop: certificates may take long. The VM repeats requests that failed or found no room. Returns
   * how long to wait before the next.
   */
  #answer(request: HostRequest): number {
    if (this.#inProgress.has(request.id) || this.#answering >= hostRequestsMax) return 0
    this.#inProgress.add(request.id)
    this.#answering += 1
    const work = this.#respondTo(request)
    const ended = () => {
      this.#inProgress.delete(request.id)
      this.#answering -= 1
    }
    work.catch(error => this.#note(request.kind, error)).finally(ended)
    return this.#requestRate.take(1)
  }

  async #respondTo(request: HostRequest): Promise<void> {
    const { usageReporter } = this.#deps
    switch (request.kind) {
      case 'evidence':
        return this.#completeEvidence(request)
      case 'certificate':
        return this.#certify(request)
      case 'spent':
        return this.#send({ op: 'spent_for', want: request.id, sums: await usageReporter.spent(this.vmId, request) })
      case 'days':
        return this.#send({ op: 'days_for', want: request.id, sums: usageReporter.days(this.vmId, request) })
      case 'shares':
        return this.#share(request)
    }
  }

  async #completeEvidence(request: HostRequestOf<'evidence'>): Promise<void> {
    const { engine } = this.#deps
    const answer = await engine.completeEvidence(this.vmId, request).then(
      ({ evidence }) => ({ evidence, problem: null }),
      error => {
        this.#note('evidence', error)
        return { evidence: null, problem: messageOf(error).slice(0, problemCharsMax) }
      },
    )
    await this.#send({ op: 'evidence_for', want: request.id, ...answer })
  }

  /** Each process in the VM is a separate gateway, without the state of the previous one. */
  async #share(request: HostRequestOf<'shares'>): Promise<void> {
    const { shares } = this.#deps
    const receiptKey = this.#status?.receiptKey
    const none = { goodMs: null, grants: [] }
    const answer =
      shares === null || receiptKey === undefined ? none : await shares.renew(receiptKey, request).catch(() => none)
    await this.#send({ op: 'shares_for', want: request.id, ...answer })
  }

  async #certify({ id, csr, byName, follows, requests = [] }: HostRequestOf<'certificate'>): Promise<void> {
    const { certify, clock } = this.#deps
    try {
      const chains = await certify(decodeBase64Url(csr), {
        byName: byName === true,
        follows: follows === true,
        requests: requests.map(({ name, csr }) => ({ name, csr: decodeBase64Url(csr) })),
      })
      await this.#send({ op: 'certificate_for', want: id, ...chains })
    } catch (error) {
      // Keeps the request marked as in progress during the pause, so that an invalid one is not repeated immediately.
      await pause(clock, retryMs, this.#stopping.signal)
      throw error
    }
  }

  /** Metrics and log. */
  async #collect(): Promise<void> {
    const timing = { clock: this.#deps.clock, intervalMs: reportMs, signal: this.#stopping.signal }
    await sweepLater(timing, async () => {
      if (this.#status === null) return
      try {
        this.#metrics = await this.#takeReport()
      } catch (error) {
        this.#note('report', error)
      }
    })
  }

  /** The metrics, put together from their pieces; beyond the bound they are left out by whole lines. */
  async #takeReport(): Promise<string> {
    const { engine } = this.#deps
    let text = ''
    while (text.length < metricsCharsMax) {
      const asked = { logFrom: this.#logFrom, metricsFrom: text.length }
      const { metrics, metricsChars, log } = await engine.report(this.vmId, asked, askTimeoutMs)
      this.#keepLog(log)
      text += metrics
      if (metrics === '' || text.length >= metricsChars) return text
      await pause(this.#deps.clock, leastPauseMs, this.#stopping.signal)
    }
    return text.slice(0, text.lastIndexOf('\n', metricsCharsMax - 1) + 1)
  }

  /** Lines get our own numbers: those of the VM restart with each of its processes. */
  #keepLog(log: readonly { readonly seq: number; readonly line: string }[]): void {
    for (const { line } of log) this.#lines.push({ seq: this.#lineCount++, line })
    this.#lines.splice(0, this.#lines.length - logLinesMax)
    this.#logFrom = (log.at(-1)?.seq ?? this.#logFrom - 1) + 1
  }

  #newSpanFetcher(taker: SpanTaker | null): SpanFetcher | null {
    const { vmId, engine, clock } = this.#deps
    const isFed = () => this.#status !== null && this.#status.workload !== null
    const onFailure = (error: unknown) => this.#note('spans', error)
    return taker === null ? null : new SpanFetcher({ vmId, engine, taker, isFed, onFailure, clock })
  }

  #note(what: string, error: unknown): void {
    if (this.#stopping.signal.aborted) return
    const { clock, log } = this.#deps
    const nowMs = clock.monotonicMs()
    const last = this.#notes.get(what)
    if (last !== undefined && nowMs - last.atMs < noteMs) {
      last.leftOut += 1
      return
    }
    this.#notes.set(what, { atMs: nowMs, leftOut: 0 })
    const fields = { vm: this.vmId, what, leftOut: last?.leftOut ?? 0, error }
    log.warn('the gateway VM: a message failed; retrying', fields)
  }
}

function decodeBase64Url(text: string): Uint8Array {
  return fromBase64Url(text) ?? new Uint8Array(0)
}
