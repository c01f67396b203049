// This host's leases of budgets, stored so that they survive restarts and apply while the database is unreachable.
// Effects: SQL on the host's database.

import { type DirectoryStore, prepareRaw } from '../../store/db.ts'
import type { Amounts, BudgetLease, Scope } from './statements.ts'

export class StoredLeases {
  readonly #byName: Map<string, BudgetLease>
  readonly #sql

  constructor({ db }: Pick<DirectoryStore, 'db'>) {
    this.#sql = {
      set: prepareRaw(
        db,
        `INSERT INTO allowances VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (organization_id, key_prefix, month)
         DO UPDATE SET nano_usd = excluded.nano_usd, tokens = excluded.tokens`,
      ),
      remove: prepareRaw(db, 'DELETE FROM allowances WHERE organization_id = ?1 AND key_prefix = ?2 AND month = ?3'),
    }
    const all = prepareRaw<BudgetLease>(
      db,
      `SELECT organization_id AS organizationId, key_prefix AS keyPrefix, month, nano_usd AS nanoUsd, tokens
       FROM allowances ORDER BY organization_id, key_prefix, month`,
    )
    this.#byName = new Map(all.all().map(held => [scopeName(held), held]))
  }

  find(scope: Scope): BudgetLease | null {
    return this.#byName.get(scopeName(scope)) ?? null
  }

  get size(): number {
    return this.#byName.size
  }

  all(): BudgetLease[] {
    return [...this.#byName.values()]
  }

  /** Stores a lease, in the database first, so that memory never holds more than a restart would restore. */
  set({ organizationId, keyPrefix, month }: Scope, { nanoUsd, tokens }: Amounts): void {
    this.#sql.set.run(organizationId, keyPrefix, month, nanoUsd, tokens)
    const held = { organizationId, keyPrefix, month, nanoUsd, tokens }
    this.#byName.set(scopeName(held), held)
  }

  remove(scope: Scope): void {
    this.#byName.delete(scopeName(scope))
    this.#sql.remove.run(scope.organizationId, scope.keyPrefix, scope.month)
  }
}

/** Returns a unique text for each scope: ids contain no line breaks. */
export function scopeName({ organizationId, keyPrefix, month }: Scope): string {
  return `${month}\n${organizationId}\n${keyPrefix}`
}
