// Whether the database is whole. Pure.

import { REMEDIES } from '../../base/remedies.ts'
import { type Check, fail, pass, skip, warn } from './check.ts'

export type DatabaseFacts =
  /** No file, or an empty one. `leftovers`: what an appliance with records has left. */
  | { readonly kind: 'none'; readonly path: string; readonly leftovers: readonly string[] }
  | { readonly kind: 'unread'; readonly path: string; readonly reason: string }
  | {
      readonly kind: 'read'
      readonly path: string
      readonly sizeBytes: number
      /** The first damage; null if none was found. */
      readonly problem: string | null
      /** Tables that there was no time for. */
      readonly unchecked: readonly string[]
      readonly schema: number
    }

/** `schemaNewest`: of this executable. */
export function databaseCheck(facts: DatabaseFacts, schemaNewest: number): Check {
  const name = 'database'
  const { path } = facts
  if (facts.kind === 'unread') return skip(name, `${path}: ${facts.reason}`)
  if (facts.kind === 'none') {
    if (facts.leftovers.length === 0) return skip(name, `${path} is made by the first start`)
    const detail = `${path} has no records, and beside it are keys of an appliance: ${facts.leftovers.join(', ')}`
    return fail(name, detail, REMEDIES['store.missing'])
  }
  if (facts.problem !== null) return fail(name, `${path}: ${facts.problem}`, REMEDIES['store.corrupt'])
  const { schema, unchecked } = facts
  if (schema > schemaNewest) {
    const detail = `${path} has schema ${schema}, this executable supports up to ${schemaNewest}`
    return fail(name, detail, REMEDIES['store.newer'])
  }
  if (unchecked.length > 0) {
    const detail = `${path}: no damage found, but there was no time for ${unchecked.join(', ')}`
    return warn(name, detail, 'run doctor again when the disk is less busy')
  }
  return pass(name, `whole, schema ${schema}, ${Math.ceil(facts.sizeBytes / 1_048_576)} MiB`)
}
