// Bytes of their VM's egress cap that answers of published ports may use, and have used. Effects: a fact in the ledger.

import { type Static, Type } from '@sinclair/typebox'
import { checked } from '../../../contract/check.ts'
import type { LedgerStore } from '../../../store/db.ts'
import { readMeta, swapMeta } from '../../../store/ledger/meta.query.ts'

const fact = 'published_allowances'
const Bytes = Type.Integer({ minimum: 0 })
/** By VM. Limit 0: its owner publishes no port any more. */
const Allowances = Type.Record(Type.String(), Type.Object({ limitBytes: Bytes, usedBytes: Bytes }))

/** The count of a VM outlives `unpublish` and restarts, so that neither renews an allowance. */
export class PublishedAllowances {
  readonly #db: LedgerStore['db']
  #byVm: Static<typeof Allowances>
  #isStored = true

  constructor({ db }: Pick<LedgerStore, 'db'>) {
    this.#db = db
    const what = { what: 'the allowances of published ports', code: 'internal' } as const
    this.#byVm = checked(Allowances, JSON.parse(readMeta(db, fact) ?? '{}'), what)
  }

  of(vmId: string): { readonly limitBytes: number; readonly usedBytes: number } | undefined {
    return this.#byVm[vmId]
  }

  /** Returns whether it was another one. Throws if the database does. */
  set(vmId: string, limitBytes: number): boolean {
    const { limitBytes: before = 0, usedBytes = 0 } = this.#byVm[vmId] ?? {}
    if (before === limitBytes) return false
    this.#keep({ ...this.#byVm, [vmId]: { limitBytes, usedBytes } })
    return true
  }

  /** In memory; `store` follows. */
  noteUsed(vmId: string, usedBytes: number): void {
    const before = this.#byVm[vmId]
    if (before === undefined || usedBytes <= before.usedBytes) return
    this.#byVm[vmId] = { ...before, usedBytes }
    this.#isStored = false
  }

  /** Stores what was noted, and forgets VMs that are not among these. Throws if the database does. */
  store(vmIds: ReadonlySet<string>): void {
    const entries = Object.entries(this.#byVm)
    const kept = entries.filter(([vmId]) => vmIds.has(vmId))
    if (!this.#isStored || kept.length < entries.length) this.#keep(Object.fromEntries(kept))
  }

  #keep(byVm: Static<typeof Allowances>): void {
    swapMeta(this.#db, fact, JSON.stringify(byVm))
    this.#byVm = byVm
    this.#isStored = true
  }
}
