// The list of an organization's records as JSON text, made of texts that are kept: a list is asked for often, and its records hardly change.
// Effects: reads the store.

import { present } from '../base/assert.ts'
import type { DirectoryDb } from '../store/db.ts'
import {
  type InstanceState,
  instanceById,
  listInstances,
  prepareInstanceStates,
} from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { toRecord } from './record.ts'

/** A record changes only when its status does, and no status comes twice (instance.machine), so id and status name its text. */
type Kept = { readonly states: string; readonly texts: ReadonlyMap<string, string>; readonly list: string }

/** So many rows are read one by one; more of them all at once. */
const singlesMax = 20
/** Of all organizations together. Beyond it, the list that was asked for the longest ago is made anew when it is asked for. */
const keptCharsMax = 64 * 1024 * 1024

export type RecordTexts = {
  /** `[record,…]`, oldest first. */
  readonly list: string
  /** What those of them run on that are not terminated, each once. */
  readonly platforms: readonly Instance['platform'][]
}

/** Returns them as they are now. */
export function createRecordTexts(db: DirectoryDb): (organizationId: string) => RecordTexts {
  const statesOf = prepareInstanceStates(db)
  const kept = new Map<string, Kept>()
  let keptChars = 0

  /** After a change they are a few; the first time, all. */
  const rowsOf = (organizationId: string, wanted: readonly InstanceState[]): Map<string, Instance> => {
    const rows =
      wanted.length > singlesMax
        ? listInstances(db, organizationId)
        : wanted.flatMap(({ id }) => instanceById(db, id) ?? [])
    return new Map(rows.map(row => [row.id, row]))
  }
  const forget = (organizationId: string) => {
    const before = kept.get(organizationId)
    if (before === undefined) return
    keptChars -= before.list.length
    kept.delete(organizationId)
  }
  const keep = (organizationId: string, made: Kept) => {
    forget(organizationId)
    kept.set(organizationId, made)
    keptChars += made.list.length
    for (const oldest of kept.keys()) {
      if (keptChars <= keptCharsMax) break
      forget(oldest)
    }
  }

  return organizationId => {
    const found = statesOf(organizationId)
    const names = found.map(({ id, status }) => `${id} ${status}`)
    const states = names.join()
    const living = found.filter(({ status }) => status !== 'terminated')
    const platforms = [...new Set(living.map(({ platform }) => platform))]
    const before = kept.get(organizationId)
    const list = before?.states === states ? before.list : null
    if (before !== undefined && list !== null) {
      keep(organizationId, before)
      return { list, platforms }
    }
    const rows = rowsOf(
      organizationId,
      found.filter((_, index) => !before?.texts.has(names[index] ?? '')),
    )
    const texts = new Map<string, string>()
    for (const [index, { id }] of found.entries()) {
      const name = present(names[index], 'every record has its name')
      const text = before?.texts.get(name)
      texts.set(name, text ?? JSON.stringify(toRecord(present(rows.get(id), 'no row goes within a turn'))))
    }
    const made = { states, texts, list: `[${[...texts.values()].join()}]` }
    keep(organizationId, made)
    return { list: made.list, platforms }
  }
}
