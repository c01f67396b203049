// An organization's list of records as JSON text, built from cached texts, because lists are read often and records
// rarely change. Effects: reads the store.

import { present } from '../base/assert.ts'
import { createSerial } from '../base/work/serial.ts'
import type { DirectoryDb } from '../store/db.ts'
import {
  type InstanceState,
  instancesByIds,
  prepareInstanceStates,
  prepareRecordsMark,
  type RecordsMark,
} from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { toRecord } from './record.ts'

/**
 * Cached texts. A record changes only with its status, and no status repeats (instance.machine), so id and status
 * identify its text; in a fleet a delete may arrive before the change to ready. Texts are UTF-8, so that a list of
 * megabytes is copied instead of encoded at once.
 */
type Texts = ReadonlyMap<string, Uint8Array>

type CachedRecordTexts = RecordTexts & {
  readonly mark: RecordsMark
  readonly texts: Texts
}

/** Number of texts built before other work runs: milliseconds with keys of the largest size. */
const textsPerTurn = 25
/** After this many rounds of concurrent changes the rest is built at once. No share: turns of one list. */
const roundsMax = 8
/** Limit for all organizations together. Beyond it, the least recently read list is evicted. */
const keptBytesMax = 64 * 1024 * 1024

export type RecordTexts = {
  /** `[record,…]`, oldest first, as UTF-8. Do not modify it. */
  readonly list: Uint8Array
  /** Distinct platforms of instances that are not terminated. */
  readonly platforms: readonly Instance['platform'][]
}

/** The current records, and the name of each one's text. */
type RecordRows = {
  readonly states: readonly InstanceState[]
  readonly names: readonly string[]
  readonly mark: RecordsMark
}

export class RecordLists {
  readonly #db: DirectoryDb
  readonly #markOf: ReturnType<typeof prepareRecordsMark>
  readonly #statesOf: (organizationId: string) => InstanceState[]
  readonly #nextTurn: () => Promise<void>
  readonly #kept = new Map<string, CachedRecordTexts>()
  #keptBytes = 0
  /** Serializes building long lists: several would take one long turn and hold all their texts in memory. */
  readonly #long = createSerial()

  constructor(db: DirectoryDb, nextTurn: () => Promise<void> = immediate) {
    this.#db = db
    this.#markOf = prepareRecordsMark(db)
    this.#statesOf = prepareInstanceStates(db)
    this.#nextTurn = nextTurn
  }

  /**
   * Returns the records at the time it resolves. A list with few missing texts is built at once; a long one takes
   * turns.
   */
  async of(organizationId: string): Promise<RecordTexts> {
    return this.#madeNow(organizationId) ?? (await this.#long.run(() => this.#inTurns(organizationId)))
  }

  #madeNow(organizationId: string): RecordTexts | null {
    const before = this.#kept.get(organizationId)
    if (before !== undefined) {
      const { mark, isSame } = this.#markOf(organizationId, before.mark)
      if (isSame) return this.#keep(organizationId, { ...before, mark })
    }
    const found = this.#find(organizationId)
    if (missing(found, before?.texts).length > textsPerTurn) return null
    return this.#assemble(organizationId, found, before?.texts ?? new Map())
  }

  async #inTurns(organizationId: string): Promise<RecordTexts> {
    // A caller that waited for the same list finds it complete.
    const soon = this.#madeNow(organizationId)
    if (soon !== null) return soon
    const texts = new Map(this.#kept.get(organizationId)?.texts)
    for (let round = 0; round < roundsMax; round += 1) {
      const wanted = missing(this.#find(organizationId), texts)
      if (wanted.length <= textsPerTurn) break
      for (let at = 0; at < wanted.length; at += textsPerTurn) {
        this.#addTexts(wanted.slice(at, at + textsPerTurn), texts)
        await this.#nextTurn()
      }
    }
    return this.#assemble(organizationId, this.#find(organizationId), texts)
  }

  #find(organizationId: string): RecordRows {
    const { mark } = this.#markOf(organizationId, null)
    const states = this.#statesOf(organizationId)
    const names = states.map(nameOf)
    return { states, names, mark }
  }

  /** Adds the texts of instances that still exist. */
  #addTexts(wanted: readonly InstanceState[], texts: Map<string, Uint8Array>): void {
    for (const row of instancesByIds(
      this.#db,
      wanted.map(({ id }) => id),
    )) {
      texts.set(nameOf(row), Buffer.from(JSON.stringify(toRecord(row))))
    }
  }

  /** Assembles the list without a pause after reading the states, so that no row changes or disappears in between. */
  #assemble(organizationId: string, found: RecordRows, known: Texts): RecordTexts {
    const added = new Map<string, Uint8Array>()
    this.#addTexts(missing(found, known), added)
    const texts = new Map(
      found.names.map(name => [name, present(added.get(name) ?? known.get(name), 'every record has its text')]),
    )
    const living = found.states.filter(({ status }) => status !== 'terminated')
    const platforms = [...new Set(living.map(({ platform }) => platform))]
    const list = listOf([...texts.values()])
    return this.#keep(organizationId, { mark: found.mark, texts, list, platforms })
  }

  #keep(organizationId: string, made: CachedRecordTexts): RecordTexts {
    this.#forget(organizationId)
    this.#kept.set(organizationId, made)
    this.#keptBytes += made.list.length
    for (const oldest of this.#kept.keys()) {
      if (this.#keptBytes <= keptBytesMax) break
      this.#forget(oldest)
    }
    return made
  }

  #forget(organizationId: string): void {
    const before = this.#kept.get(organizationId)
    if (before === undefined) return
    this.#keptBytes -= before.list.length
    this.#kept.delete(organizationId)
  }
}

/** Joins texts to the JSON of an array. */
function listOf(texts: readonly Uint8Array[]): Uint8Array {
  const comma = Buffer.from(',')
  const parts = texts.flatMap((text, index) => (index === 0 ? [text] : [comma, text]))
  return Buffer.concat([Buffer.from('['), ...parts, Buffer.from(']')])
}

function nameOf({ id, status, readyAtMs }: Pick<InstanceState, 'id' | 'status' | 'readyAtMs'>): string {
  return readyAtMs === null ? `${id} ${status}` : `${id} ${status} ready`
}

function missing({ states, names }: RecordRows, texts: Texts | undefined): InstanceState[] {
  return texts === undefined ? [...states] : states.filter((_, index) => !texts.has(names[index] ?? ''))
}

/** Resolves after pending socket events. */
function immediate(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
