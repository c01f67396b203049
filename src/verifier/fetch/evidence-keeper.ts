// Caches the evidence for requests. It is shared, and renewed in time or when the gateway presents another key.
// Effects: its deps.

import type { SealingSession } from '../../attest/ehbp/client.ts'
import { SIZES } from '../../attest/ehbp/protocol.ts'
import { equalConstantTime, fromHex } from '../../base/bytes.ts'
import { VerificationError } from './errors.ts'
import { type Evidence, type EvidenceDeps, takeEvidence } from './evidence.ts'
import type { Channel } from './transport.ts'

/** Evidence, and a channel to the holder of its keys. */
export type Attested = {
  readonly evidence: Evidence
  readonly channel: Channel
  /** Shared by all requests that rely on this evidence. */
  readonly sealing: Sealing
}

export type Sealing = {
  /** Null before the first request. */
  session: Promise<SealingSession> | null
  /** The gateway's replay epoch as last received. */
  epoch: Uint8Array
}

type CachedEvidence = Attested & { readonly monotonicMs: number }

/** Minimum wait after a failed background renewal. */
const renewalPauseMs = 10_000

export class EvidenceKeeper {
  readonly #deps: EvidenceDeps
  #kept: CachedEvidence | null = null
  /** The renewal in progress, shared by all callers. */
  #underWay: Promise<CachedEvidence> | null = null
  #renewNotBeforeMs = Number.NEGATIVE_INFINITY
  /** Number of calls of `close`, so that evidence requested before one is not cached after it. */
  #closedCount = 0

  constructor(deps: EvidenceDeps) {
    this.#deps = deps
  }

  /** Returns the last verified evidence while it is fresh enough; otherwise null. */
  current(): Evidence | null {
    const kept = this.#kept
    return kept !== null && this.#ageMs(kept) <= this.#deps.settings.limits.evidenceAgeMaxMs ? kept.evidence : null
  }

  /** Returns fresh evidence, verifying now if necessary. Rejects like takeEvidence, or with the signal's reason. */
  async fresh(signal: AbortSignal | null): Promise<Attested> {
    const kept = this.#kept
    const { evidenceAgeMaxMs, reverifyAfterMs } = this.#deps.settings.limits
    if (kept === null || this.#ageMs(kept) > evidenceAgeMaxMs) return await this.renew(signal)
    if (this.#ageMs(kept) > reverifyAfterMs) this.#renewBeside()
    return kept
  }

  /** Requests evidence with a new nonce. Concurrent calls share it. */
  async renew(signal: AbortSignal | null): Promise<Attested> {
    signal?.throwIfAborted()
    this.#underWay ??= this.#take().finally(() => {
      this.#underWay = null
    })
    return await waitFor(this.#underWay, signal)
  }

  /** Renews, unless the cached evidence is newer than what the caller rejected. */
  async renewAfter(stale: Attested, signal: AbortSignal | null): Promise<Attested> {
    const kept = this.#kept
    return kept !== null && kept.evidence !== stale.evidence ? kept : await this.renew(signal)
  }

  /** Forgets the evidence, and closes idle connections. */
  close(): void {
    this.#closedCount += 1
    this.#forget()
  }

  async #take(): Promise<CachedEvidence> {
    const { transport, clock } = this.#deps
    const closedCount = this.#closedCount
    try {
      const { evidence, epoch } = await takeEvidence(this.#deps)
      const before = this.#kept
      const isSameKey = before !== null && equalConstantTime(before.evidence.tlsSpkiDigest, evidence.tlsSpkiDigest)
      if (!isSameKey) before?.channel.close()
      const channel = isSameKey ? before.channel : transport.open(transport.pins ? evidence.tlsSpkiDigest : 'any')
      const sealing = { session: null, epoch: readEpoch(epoch ?? '') }
      const kept: CachedEvidence = { evidence, channel, sealing, monotonicMs: clock.monotonicMs() }
      if (closedCount === this.#closedCount) this.#kept = kept
      return kept
    } catch (error) {
      // Bad evidence ends the trust in a gateway. A missing response changes nothing.
      if (error instanceof VerificationError) this.#forget()
      throw error
    }
  }

  #forget(): void {
    this.#kept?.channel.close()
    this.#kept = null
  }

  #renewBeside(): void {
    const { clock } = this.#deps
    if (this.#underWay !== null || clock.monotonicMs() < this.#renewNotBeforeMs) return
    this.renew(null).catch(() => {
      // Cached evidence stays valid until it is too old; later callers get their own error.
      this.#renewNotBeforeMs = clock.monotonicMs() + renewalPauseMs
    })
  }

  /**
   * Returns the age by the larger of two clocks: the monotonic one may stop during sleep, and the other may be set
   * back.
   */
  #ageMs({ evidence, monotonicMs }: CachedEvidence): number {
    const { clock } = this.#deps
    return Math.max(clock.monotonicMs() - monotonicMs, clock.nowMs() - evidence.verifiedAtMs)
  }
}

/**
 * Parses an epoch. For invalid text, returns one that has ended, so that the gateway's rejection names the current one.
 */
export function readEpoch(text: string): Uint8Array {
  const epoch = fromHex(text)
  return epoch?.length === SIZES.epoch ? epoch : new Uint8Array(SIZES.epoch)
}

/** Waits for shared work. Aborting does not end it, because others wait for it, and it has its own timeout. */
async function waitFor<T>(work: Promise<T>, signal: AbortSignal | null): Promise<T> {
  if (signal === null) return await work
  let leave = () => {}
  const left = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason)
  })
  signal.addEventListener('abort', leave, { once: true })
  try {
    return await Promise.race([work, left])
  } finally {
    signal.removeEventListener('abort', leave)
  }
}
