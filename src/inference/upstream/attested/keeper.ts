// Outside upstreams that must show evidence: each is verified at the start and at an interval, and its connections must
// use the TLS key that the evidence names. Effects: timers, connections to upstreams.

import { type Clock, pause } from '../../../base/clock.ts'
import type { RandomBytes } from '../../../base/ids.ts'
import type { Logger } from '../../../base/log.ts'
import { backOffMs } from '../../../base/work/back-off.ts'
import type { UpstreamTarget } from '../target.ts'
import { policyDigest, type UpstreamAttestation } from './attestation.ts'
import { type Attested, evidenceTimeoutMs, verifyUpstream } from './verify.ts'

export type KeeperDeps = {
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  /** Default: connects to the upstream. */
  readonly verify?: typeof verifyUpstream
}

/** One attested upstream, for metrics. */
export type AttestedUpstream = {
  readonly name: string
  readonly kind: string
  /** Whether it gets prompts. */
  readonly attested: boolean
  /** Time of the last successful verification, by the gateway's clock; null if there was none. */
  readonly goodAtMs: number | null
  /** Milliseconds since the last successful verification, by the monotonic clock; null if there was none. */
  readonly ageMs: number | null
  /** Failed verifications since the start, by the check that failed first. */
  readonly failures: readonly { readonly check: string; readonly count: number }[]
}

/** Delay between two attempts while the upstream is not verified. */
const retryRange = { minMs: 1_000, maxMs: 60_000 }

/** Maximum number of names that are counted separately, because some names come from an upstream's document. */
const namesCounted = 32
const namePattern = /^[a-z0-9][a-z0-9/-]{0,63}$/

type State = {
  readonly target: UpstreamTarget
  readonly attestation: UpstreamAttestation
  /** The last successful verification; null if there is none, or a later one failed. */
  good: { readonly spkiSha256: string; readonly untilMs: number | null; readonly staleMs: number } | null
  /** Start of the last successful verification, by both clocks; null if there was none. */
  seen: { readonly atMs: number; readonly monotonicMs: number } | null
  /** Number of failed verifications, by the check that failed first. */
  readonly failures: Map<string, number>
  /** A running verification. */
  checking: Promise<boolean> | null
}

export class AttestedUpstreams {
  readonly #deps: KeeperDeps
  readonly #states = new Map<string, State>()

  constructor(deps: KeeperDeps) {
    this.#deps = deps
  }

  /** Names of the upstreams that must show evidence. */
  get names(): ReadonlySet<string> {
    return new Set(this.#states.keys())
  }

  /** Returns the target; one that must show evidence has the key that is currently attested. */
  follow(target: UpstreamTarget): UpstreamTarget {
    const { attestation } = target
    if (attestation === undefined) return target
    const state: State = { target, attestation, good: null, seen: null, failures: new Map(), checking: null }
    this.#states.set(target.name, state)
    const keyOf = () => this.#keyOf(state)
    return {
      ...target,
      get key() {
        return target.key
      },
      get attestedKey() {
        return keyOf()
      },
    }
  }

  view(): AttestedUpstream[] {
    const nowMs = this.#deps.clock.monotonicMs()
    return [...this.#states.values()].map(state => ({
      name: state.target.name,
      kind: state.attestation.kind,
      attested: this.#keyOf(state) !== null,
      goodAtMs: state.seen?.atMs ?? null,
      ageMs: state.seen === null ? null : nowMs - state.seen.monotonicMs,
      failures: [...state.failures].map(([check, times]) => ({ check, count: times })),
    }))
  }

  /** Verifies each upstream until the signal is aborted. */
  start(signal: AbortSignal): void {
    for (const state of this.#states.values()) void this.#keep(state, signal)
  }

  /**
   * Verifies the upstream now, or joins a running verification. Resolves to true for an upstream that need not show
   * evidence.
   */
  async check(name: string): Promise<boolean> {
    const state = this.#states.get(name)
    if (state === undefined) return true
    state.checking ??= this.#check(state).finally(() => {
      state.checking = null
    })
    return await state.checking
  }

  async #keep(state: State, signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    for (let failures = 0; !signal.aborted; ) {
      failures = (await this.check(state.target.name)) ? 0 : failures + 1
      const untilMs = state.good?.untilMs ?? null
      const leftMs = untilMs === null ? Number.POSITIVE_INFINITY : Math.max(0, untilMs - clock.nowMs())
      const goodMs = Math.max(retryRange.minMs, Math.min(state.attestation.intervalMs, leftMs))
      await pause(clock, failures === 0 ? goodMs : backOffMs(retryRange, failures), signal)
    }
  }

  async #check(state: State): Promise<boolean> {
    const { clock, random, log, verify = verifyUpstream } = this.#deps
    const { target, attestation } = state
    const startedMs = clock.monotonicMs()
    const atMs = clock.nowMs()
    const found: Attested = await verify(target, attestation, { clock, random })
    const by = { upstream: target.name, kind: attestation.kind, policy: policyDigest(attestation) }
    if (!found.ok) {
      log.warn('upstream not attested; it gets no prompts', { ...by, check: found.check, reason: found.reason })
      state.good = null
      count(state.failures, found.check)
      return false
    }
    const { spkiSha256, untilMs } = found
    if (state.good?.spkiSha256 !== spkiSha256) log.info('upstream attested', { ...by, spkiSha256 })
    state.seen = { atMs, monotonicMs: startedMs }
    // A timer that fires late must not extend the validity of a verification.
    state.good = { spkiSha256, untilMs, staleMs: startedMs + attestation.intervalMs + 4 * evidenceTimeoutMs }
    return true
  }

  #keyOf({ good }: State): string | null {
    const { clock } = this.#deps
    if (good === null || clock.monotonicMs() > good.staleMs) return null
    return good.untilMs !== null && clock.nowMs() > good.untilMs ? null : good.spkiSha256
  }
}

function count(failures: Map<string, number>, check: string): void {
  const isCounted = failures.has(check) || (namePattern.test(check) && failures.size < namesCounted)
  const name = isCounted ? check : 'other'
  failures.set(name, (failures.get(name) ?? 0) + 1)
}
