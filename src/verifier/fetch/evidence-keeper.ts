// Keeps the evidence of requests: shared, renewed in time, or when the gateway shows another key. Effects: its deps.

import type { SealingSession } from '../../attest/ehbp/client.ts'
import { SIZES } from '../../attest/ehbp/protocol.ts'
import { equalConstantTime, fromHex } from '../../base/bytes.ts'
import { VerificationError } from './errors.ts'
import { type Evidence, type EvidenceDeps, takeEvidence } from './evidence.ts'
import type { Channel } from './transport.ts'

/** Evidence, and the way to the holder of its keys. */
export type Attested = {
  readonly evidence: Evidence
  readonly channel: Channel
  /** One for all requests that rely on this evidence. */
  readonly sealing: Sealing
}

export type Sealing = {
  /** Null before the first request. */
  session: Promise<SealingSession> | null
  /** The gateway's replay epoch as this client last heard it. */
  epoch: Uint8Array
}

type CachedEvidence = Attested & { readonly monotonicMs: number }

/** After a renewal beside requests has failed, the next one waits this long. */
const renewalPauseMs = 10_000

export class EvidenceKeeper {
  readonly #deps: EvidenceDeps
  #kept: CachedEvidence | null = null
  /** One for all callers. */
  #underWay: Promise<CachedEvidence> | null = null
  #renewNotBeforeMs = Number.NEGATIVE_INFINITY
  /** How often it was closed: what was asked for before is not kept afterwards. */
  #closedCount = 0

  constructor(deps: EvidenceDeps) {
    this.#deps = deps
  }

  /** The last verified evidence, while it is fresh enough to rely on. */
  current(): Evidence | null {
    const kept = this.#kept
    return kept !== null && this.#ageMs(kept) <= this.#deps.settings.limits.evidenceAgeMaxMs ? kept.evidence : null
  }

  /** Fresh evidence, verified now if need be. Rejects as takeEvidence does, or with the signal's reason. */
  async fresh(signal: AbortSignal | null): Promise<Attested> {
    const kept = this.#kept
    const { evidenceAgeMaxMs, reverifyAfterMs } = this.#deps.settings.limits
    if (kept === null || this.#ageMs(kept) > evidenceAgeMaxMs) return await this.renew(signal)
    if (this.#ageMs(kept) > reverifyAfterMs) this.#renewBeside()
    return kept
  }

  /** New evidence for a new nonce; calls while it is under way share it. */
  async renew(signal: AbortSignal | null): Promise<Attested> {
    signal?.throwIfAborted()
    this.#underWay ??= this.#take().finally(() => {
      this.#underWay = null
    })
    return await waitFor(this.#underWay, signal)
  }

  /** As `renew`, unless what is kept is newer than what the caller has found wanting. */
  async renewAfter(stale: Attested, signal: AbortSignal | null): Promise<Attested> {
    const kept = this.#kept
    return kept !== null && kept.evidence !== stale.evidence ? kept : await this.renew(signal)
  }

  /** Forgets the evidence, and ends idle connections. */
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
      // A gateway that answers with bad evidence is trusted no longer. Silence changes nothing.
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
      // Kept evidence stays good until it is too old; a caller after that gets the reason of then.
      this.#renewNotBeforeMs = clock.monotonicMs() + renewalPauseMs
    })
  }

  /** Age by the larger of two clocks: the monotonic one may stand still in sleep, the other may be set back. */
  #ageMs({ evidence, monotonicMs }: CachedEvidence): number {
    const { clock } = this.#deps
    return Math.max(clock.monotonicMs() - monotonicMs, clock.nowMs() - evidence.verifiedAtMs)
  }
}

/** For a text that is no epoch, one that has ended: the gateway's refusal names the present one. */
export function readEpoch(text: string): Uint8Array {
  const epoch = fromHex(text)
  return epoch?.length === SIZES.epoch ? epoch : new Uint8Array(SIZES.epoch)
}

/** Leaving does not end the work: others wait for it, and it has a timeout of its own. */
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
