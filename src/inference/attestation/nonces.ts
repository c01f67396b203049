// Which nonces have been used: each once, across restarts, for as long as the configuration says. Effects: the store.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { LedgerStore } from '../../store/db.ts'
import { countNonces, deleteExpiredNonces, hasNonce, insertNonce } from '../../store/ledger/nonce.query.ts'

export type NonceLedger = {
  /**
   * Uses the nonce up; it is on disk when this returns. Faults: conflict when it was used before,
   * attestation_unavailable when no more can be kept: none is forgotten before its time.
   */
  readonly use: (nonce: Uint8Array) => void
}

export type NonceLedgerDeps = {
  readonly store: LedgerStore
  readonly clock: Pick<Clock, 'nowMs'>
  readonly retentionMs: number
  readonly countMax: number
}

/** Bounds the work of one request; a request adds one, so what has expired still goes faster than it comes. */
const purgeRowsMax = 64

/** One process at a time: the count is kept in memory, since counting rows takes longer the more there are. */
export function createNonceLedger({ store, clock, retentionMs, countMax }: NonceLedgerDeps): NonceLedger {
  let kept = countNonces(store.db)
  return {
    use: nonce => {
      const nowMs = clock.nowMs()
      const left = store.transact(tx => {
        const purged = deleteExpiredNonces(tx, { usedAtOrBeforeMs: nowMs - retentionMs, limit: purgeRowsMax })
        // Asked before the room: a reused nonce is a reused nonce, full or not.
        const isUsed = hasNonce(tx, nonce)
        const isFull = kept - purged >= countMax
        if (!isUsed && !isFull && !insertNonce(tx, { nonce, nowMs })) {
          throw new Error('invariant broken: a nonce came between in one transaction')
        }
        return { purged, isUsed, isFull }
      })
      kept += (left.isUsed || left.isFull ? 0 : 1) - left.purged
      if (left.isUsed) throw new Fault('conflict', 'This nonce was used before; draw a new one.')
      if (left.isFull) throw new Fault('attestation_unavailable', 'No further nonces can be taken at present.')
    },
  }
}
