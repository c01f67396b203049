// Which nonces have been used. Each can be used once, across restarts, and is kept as long as the configuration says. Effects: the store.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { LedgerStore } from '../../store/db.ts'
import { countNonces, deleteExpiredNonces, hasNonce, insertNonce } from '../../store/ledger/nonce.query.ts'
import type { NonceQuota, Refusal } from '../types.ts'

export type NonceLedger = {
  /**
   * Marks the nonce as used by a client at this address; it is on disk when this returns. Faults: conflict when it was used before,
   * rate_limited (QuotaFault) when the networks of the address have had their part, attestation_unavailable when the ledger is full: no nonce
   * is deleted before its time.
   */
  readonly use: (nonce: Uint8Array, address: string) => void
}

/** Fault rate_limited: the client's networks have had their part of the nonces, for so long. */
export class QuotaFault extends Fault {
  readonly retryAfterSeconds: number

  constructor({ message, retryAfterSeconds }: Refusal) {
    super('rate_limited', message)
    this.retryAfterSeconds = retryAfterSeconds
  }
}

export type NonceLedgerDeps = {
  readonly store: LedgerStore
  readonly clock: Pick<Clock, 'nowMs'>
  /** Keeps one client from filling the ledger. */
  readonly quota: NonceQuota
  readonly retentionMs: number
  readonly countMax: number
}

/** Expired nonces that one request deletes. More than the one that it adds, so that the ledger shrinks. */
const purgeRowsMax = 64

/** For one process at a time: the count is kept in memory, because counting rows takes longer the more there are. */
export function createNonceLedger({ store, clock, quota, retentionMs, countMax }: NonceLedgerDeps): NonceLedger {
  let kept = countNonces(store.db)
  return {
    use: (nonce, address) => {
      const nowMs = clock.nowMs()
      const refusal = quota.refusal(address)
      const result = store.transact(tx => {
        const purged = deleteExpiredNonces(tx, { usedAtOrBeforeMs: nowMs - retentionMs, limit: purgeRowsMax })
        // A nonce that was used before is a conflict, whether or not there would be room for it.
        const isUsed = hasNonce(tx, nonce)
        const isFull = kept - purged >= countMax
        const isTaken = !isUsed && !isFull && refusal === null
        if (isTaken && !insertNonce(tx, { nonce, nowMs })) {
          throw new Error('invariant broken: the nonce was inserted by another writer within this transaction')
        }
        return { purged, isUsed, isFull, isTaken }
      })
      kept += (result.isTaken ? 1 : 0) - result.purged
      if (result.isTaken) quota.take(address)
      if (result.isUsed) throw new Fault('conflict', 'This nonce was used before; draw a new one.')
      if (refusal !== null) throw new QuotaFault(refusal)
      if (result.isFull) throw new Fault('attestation_unavailable', 'No further nonces can be taken at present.')
    },
  }
}
