// Ledger of used nonces: each can be used once, across restarts, for as long as two statements over it could both
// count as fresh. Effects: the store.
//
// A verifier refuses a statement over its nonce that is minutes away from its own clock, either way
// (verifier/gateway.ts, freshAgeMsMax). If two statements over a nonce are further apart than twice that, at most one
// is fresh to any verifier: then the nonce may be forgotten.
//
// A ledger belongs to one identity: the receipt keys of one process, which every statement names by their digest. The
// keys are never written, so no two hosts of a fleet share them, and each host's ledger is complete
// (test/inference/attestation/identities.slow.test.ts).

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'

/** Used nonces, each with the time of its use. */
export type NonceRows = {
  readonly count: () => number
  /** Returns the time of the latest use; null if there is none. */
  readonly newestMs: () => number | null
  readonly has: (nonce: Uint8Array) => boolean
  /** Returns false if the nonce was used before. */
  readonly insert: (use: { readonly nonce: Uint8Array; readonly nowMs: number }) => boolean
  /** Deletes at most `limit` that were used at or before a time, oldest first. Returns how many. */
  readonly deleteExpired: (expired: { readonly usedAtOrBeforeMs: number; readonly limit: number }) => number
}

/** `transact` keeps all changes of `work`, or none if it throws. */
export type NonceStore = NonceRows & { readonly transact: <Result>(work: (rows: NonceRows) => Result) => Result }

export type NonceLedger = {
  readonly isUsed: (nonce: Uint8Array) => boolean
  /**
   * Marks the nonce as used; the store has it when this returns. Faults: conflict if it was used
   * before; attestation_unavailable if the ledger is full, because no nonce is deleted early.
   */
  readonly use: (nonce: Uint8Array) => void
}

export type NonceLedgerDeps = {
  readonly store: NonceStore
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly retentionMs: number
  readonly countMax: number
  /** Whether the wall clock is trusted; null if no nonce is older than this process. */
  readonly mayDelete: (() => boolean) | null
}

/**
 * Number of expired nonces that one request deletes; above one, so that the ledger shrinks. No share: deletes of this
 * process.
 */
const purgeRowsMax = 64

/** Returns the least time between two nonces that keeps the ledger from ever being full. */
export function nonceGapMs({ retentionMs, countMax }: Pick<NonceLedgerDeps, 'retentionMs' | 'countMax'>): number {
  // A period holds one more begin than gaps, and expired nonces go with the next request.
  return retentionMs / Math.max(1, countMax - 2)
}

/**
 * Opens the ledger. Only one process may use it: the count is kept in memory, because counting rows slows down as they
 * grow.
 */
export function createNonceLedger({ store, clock, retentionMs, countMax, mayDelete }: NonceLedgerDeps): NonceLedger {
  let kept = store.count()
  // Later times come from the monotonic clock: setting the wall clock neither forgets a nonce early nor keeps it
  // longer.
  const beginMs = Math.max(clock.nowMs(), store.newestMs() ?? 0) - clock.monotonicMs()
  // If the clock was set, the age of stored nonces is unknown: none is deleted until it is certainly old enough.
  const keepsUntilMs = mayDelete?.() === false ? clock.monotonicMs() + retentionMs : Number.NEGATIVE_INFINITY
  return {
    isUsed: store.has,
    use: nonce => {
      const nowMs = Math.floor(beginMs + clock.monotonicMs())
      const result = store.transact(rows => {
        const isKept = clock.monotonicMs() < keepsUntilMs
        const purged = isKept ? 0 : rows.deleteExpired({ usedAtOrBeforeMs: nowMs - retentionMs, limit: purgeRowsMax })
        // A nonce that was used before is a conflict, whether or not there would be room for it.
        const isUsed = rows.has(nonce)
        const isFull = kept - purged >= countMax
        const isTaken = !isUsed && !isFull
        if (isTaken && !rows.insert({ nonce, nowMs })) {
          throw new Error('invariant broken: the nonce was inserted by another writer within this transaction')
        }
        return { purged, isUsed, isTaken }
      })
      kept += (result.isTaken ? 1 : 0) - result.purged
      if (result.isUsed) throw reusedNonce()
      if (!result.isTaken)
        throw new Fault('attestation_unavailable', 'The store of used nonces is full; try again later.')
    },
  }
}

export function reusedNonce(): Fault {
  return new Fault('conflict', 'This nonce was used before; generate a new one.')
}
