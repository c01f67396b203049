// Which nonces have been used. Each can be used once, across restarts, and is kept as long as the configuration says. Effects: the store.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { LedgerStore } from '../../store/db.ts'
import { countNonces, deleteExpiredNonces, hasNonce, insertNonce } from '../../store/ledger/nonce.query.ts'

export type NonceLedger = {
  /**
   * Marks the nonce as used; it is on disk when this returns. Faults: conflict when it was used before,
   * attestation_unavailable when the ledger is full: no nonce is deleted before its time.
   */
  readonly use: (nonce: Uint8Array) => void
}

export type NonceLedgerDeps = {
  readonly store: LedgerStore
  readonly clock: Pick<Clock, 'nowMs'>
  readonly retentionMs: number
  readonly countMax: number
}

/** Expired nonces that one request deletes. More than the one that it adds, so that the ledger shrinks. */
const purgeRowsMax = 64

/** For one process at a time: the count is kept in memory, because counting rows takes longer the more there are. */
export function createNonceLedger({ store, clock, retentionMs, countMax }: NonceLedgerDeps): NonceLedger {
  let kept = countNonces(store.db)
  return {
    use: nonce => {
      const nowMs = clock.nowMs()
      const result = store.transact(tx => {
        const purged = deleteExpiredNonces(tx, { usedAtOrBeforeMs: nowMs - retentionMs, limit: purgeRowsMax })
        // A nonce that was used before is a conflict even when the ledger is full.
        const isUsed = hasNonce(tx, nonce)
        const isFull = kept - purged >= countMax
        if (!isUsed && !isFull && !insertNonce(tx, { nonce, nowMs })) {
          throw new Error('invariant broken: the nonce was inserted by another writer within this transaction')
        }
        return { purged, isUsed, isFull }
      })
      kept += (result.isUsed || result.isFull ? 0 : 1) - result.purged
      if (result.isUsed) throw new Fault('conflict', 'This nonce was used before; draw a new one.')
      if (result.isFull) throw new Fault('attestation_unavailable', 'No further nonces can be taken at present.')
    },
  }
}
