// Records usage that gateway VMs have signed, each row once. Effects: the store.
//
// A batch counts if it continues the last recorded batch and is signed by the VM's verified receipt key. The rows are
// written first, by id, then the VM's position. After a crash in between, the same rows are written again, which
// changes nothing.

import { createPublicKey, verify } from 'node:crypto'
import { fromBase64Url, fromHex, toHex } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { UsageBatch, UsageRow } from '../../contract/vm/enclave-responses.ts'
import { usageBytes, usageMessage } from '../../contract/vm/usage-batch.ts'
import type { LedgerDb } from '../../store/db.ts'
import { advanceBooks, findGatewayVm } from '../../store/ledger/gateway-vm.query.ts'
import { tokensOfRow } from './row.ts'
import type { UsageRecord } from './types.ts'

export type VmUsageLedgerDeps = {
  readonly ledger: LedgerDb
  /**
   * Writes rows, each once by its id; logs those that can never be written. Throws if the store is not writable now.
   */
  readonly write: (rows: readonly UsageRow[]) => void
  readonly log: Logger
}

export class VmUsageLedger {
  readonly #deps: VmUsageLedgerDeps

  constructor(deps: VmUsageLedgerDeps) {
    this.#deps = deps
  }

  /** Returns the number of rows of a VM's usage that are recorded. */
  booked(vmId: string): number {
    return findGatewayVm(this.#deps.ledger, vmId)?.booked ?? 0
  }

  /**
   * Records a batch, once. Throws Fault channel.refused if it is not the next batch, or not signed by the verified key.
   */
  take(vmId: string, batch: UsageBatch): void {
    const { ledger, write } = this.#deps
    const gateway = findGatewayVm(ledger, vmId)
    if (gateway === null || gateway.receiptKey === null) throw refused(vmId, 'it has not been verified')
    const to = batch.from + batch.rows.length
    if (to <= gateway.booked) return
    if (batch.from !== gateway.booked || batch.before !== gateway.bookedDigest) {
      throw refused(vmId, `its batch begins at row ${batch.from}; ${gateway.booked} rows are booked`)
    }
    const before = fromHex(batch.before) ?? new Uint8Array(0)
    const digest = new Uint8Array(Bun.CryptoHasher.hash('sha256', usageBytes(before, batch.rows)))
    if (toHex(digest) !== batch.digest) throw refused(vmId, 'its rows do not match its digest')
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: gateway.receiptKey }, format: 'jwk' })
    const signature = fromBase64Url(batch.signature) ?? new Uint8Array(0)
    if (!verify(null, usageMessage(digest), key, signature)) throw refused(vmId, 'its receipt key has not signed it')
    write(batch.rows)
    advanceBooks(ledger, { vmId, from: batch.from, to, digest: batch.digest })
  }
}

function refused(vmId: string, what: string): Fault {
  return new Fault('channel.refused', `usage of VM ${vmId}: ${what}`)
}

/** Returns the record of one request's usage from the row of a gateway VM. */
export function usageRecordOf(row: UsageRow): UsageRecord {
  const {
    promptTokens: _,
    completionTokens: _2,
    cachedTokens: _3,
    organizationId,
    keyPrefix,
    instanceId,
    endUser,
    tags,
    ...record
  } = row
  const labels =
    endUser === undefined && tags === undefined ? {} : { labels: { endUser: endUser ?? null, tags: tags ?? null } }
  return {
    ...record,
    caller: { organizationId, keyPrefix, instanceId },
    tokens: tokensOfRow(row),
    ...labels,
  }
}
