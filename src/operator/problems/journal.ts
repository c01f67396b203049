// Reads from the journal of this host events that need attention for a while, and problems that were open when the
// former daemon ended. Each entry is read once. Effects: reads the store.

import type { AlertReceiver } from '../../contract/admin/alerts.ts'
import { type FoundProblem, PROBLEM_NAMES, PROBLEM_SEVERITIES, problemKey } from '../../contract/admin/problems.ts'
import type { Store } from '../../store/db.ts'
import { type KindEvent, prepareEventsOfKinds } from '../../store/ledger/event.query.ts'
import type { JournalFacts } from './problems.plan.ts'

const TABLE_RESTORED = 'nft.restored'
const AUTHORITY_REPLACED = 'tls.authority_replaced'
export const PROBLEM_BEGAN = 'problem.began'
export const PROBLEM_ENDED = 'problem.ended'
/** A message that a receiver took; the detail has the lists `began` and `resolved`. */
export const ALERT_SENT = 'alert.sent'

/** Problems by their key, with the time at which each began. */
export type OpenProblems = ReadonlyMap<string, OpenProblem>
export type OpenProblem = Omit<FoundProblem, 'remedy' | 'sinceMs'> & { readonly sinceMs: number }

export class ProblemJournal {
  readonly #read: (afterId: number) => KindEvent[]
  #lastId = 0
  #tableRestoredMs: number | null = null
  #authorityReplacedMs: number | null = null
  readonly #open = new Map<string, OpenProblem>()
  readonly #notified = new Map<string, Map<string, OpenProblem>>()

  constructor(store: Pick<Store, 'ledger'>) {
    const kinds = [TABLE_RESTORED, AUTHORITY_REPLACED, PROBLEM_BEGAN, PROBLEM_ENDED, ALERT_SENT]
    this.#read = prepareEventsOfKinds(store.ledger.db, kinds)
  }

  facts(): JournalFacts {
    this.#follow()
    return { tableRestoredMs: this.#tableRestoredMs, authorityReplacedMs: this.#authorityReplacedMs }
  }

  /** Returns the problems that began and have not ended. */
  open(): OpenProblems {
    this.#follow()
    return this.#open
  }

  /** Returns the problems that a receiver was notified of, without their end. */
  notified(receiver: AlertReceiver): OpenProblems {
    this.#follow()
    return this.#notified.get(receiver) ?? new Map()
  }

  #follow(): void {
    for (const event of this.#read(this.#lastId)) {
      this.#lastId = event.id
      this.#note(event)
    }
  }

  #note({ kind, atMs, detail }: KindEvent): void {
    if (kind === TABLE_RESTORED) this.#tableRestoredMs = atMs
    else if (kind === AUTHORITY_REPLACED) this.#authorityReplacedMs = atMs
    else if (kind === PROBLEM_BEGAN || kind === PROBLEM_ENDED) this.#noteProblem(kind, JSON.parse(detail), atMs)
    else if (kind === ALERT_SENT) this.#noteSent(JSON.parse(detail), atMs)
  }

  #noteSent({ receiver, began, resolved }: Record<string, unknown>, atMs: number): void {
    if (typeof receiver !== 'string') return
    const known = this.#notified.get(receiver) ?? new Map<string, OpenProblem>()
    this.#notified.set(receiver, known)
    for (const problem of problemsIn(resolved, atMs)) known.delete(problemKey(problem))
    for (const problem of problemsIn(began, atMs)) known.set(problemKey(problem), problem)
  }

  #noteProblem(kind: string, detail: unknown, atMs: number): void {
    const problem = problemIn(detail, atMs)
    // An earlier or later release may know other problems.
    if (problem === null) return
    if (kind === PROBLEM_BEGAN) this.#open.set(problemKey(problem), problem)
    else this.#open.delete(problemKey(problem))
  }
}

/** Null if the entry names no problem of this release. */
function problemIn(entry: unknown, atMs: number): OpenProblem | null {
  const { name, subject, severity, since, detail }: Record<string, unknown> = Object(entry)
  const known = PROBLEM_NAMES.find(word => word === name)
  const level = PROBLEM_SEVERITIES.find(word => word === severity)
  if (known === undefined || level === undefined || typeof detail !== 'string') return null
  const sinceMs = typeof since === 'string' ? Date.parse(since) : atMs
  return { name: known, subject: typeof subject === 'string' ? subject : null, severity: level, detail, sinceMs }
}

function problemsIn(list: unknown, atMs: number): OpenProblem[] {
  return Array.isArray(list) ? list.flatMap(entry => problemIn(entry, atMs) ?? []) : []
}
