// Follows the problems of this host over time: since when each is there, one line in the log and the journal when it
// begins and when it ends. Effects: the log, the journal; sleeps.

import { type Clock, iso } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { harmlessLine } from '../../base/harmless.ts'
import type { Logger } from '../../base/log.ts'
import { sweep } from '../../base/work/sweep.ts'
import {
  criticalProblem,
  type FoundProblem,
  type HostProblem,
  PROBLEM_SEVERITIES,
  PROBLEMS,
  problemCountMax,
  problemKey,
} from '../../contract/admin/problems.ts'
import { type OpenProblem, type OpenProblems, PROBLEM_BEGAN, PROBLEM_ENDED } from './journal.ts'

export type ProblemWatchDeps = {
  readonly clock: Clock
  readonly log: Logger
  /** Writes an entry to the journal. Never throws. */
  readonly onEvent: (kind: string, detail: Record<string, unknown>) => void
  /** Returns the problems that were open when the former daemon ended. */
  readonly openBefore: () => OpenProblems
}

/** A problem that began, became critical, or ended. */
export type ProblemChange = { readonly kind: 'began' | 'worse' | 'ended'; readonly problem: HostProblem }

const lookEveryMs = 15_000
/** A problem is reported when this many looks in a row have found it: not while the daemon starts. */
const reportedLooks = 2
/** This many failed looks in a row are a problem themselves. */
const failuresToProblem = 3
/** A problem ends when it was absent for this long, so that one that comes and goes is one problem. */
const absentMs = 60_000

type Followed = {
  readonly sinceMs: number
  /** The newest form. */
  problem: HostProblem
  seenMs: number
  /** Looks in a row that have found it. */
  looks: number
  /** The severity that log and journal have; null before the first line. */
  reported: HostProblem['severity'] | null
}

export class ProblemWatch {
  readonly #deps: ProblemWatchDeps
  readonly #followed = new Map<string, Followed>()
  readonly #listeners: ((changes: readonly ProblemChange[]) => void)[] = []
  #hasReadJournal = false

  constructor(deps: ProblemWatchDeps) {
    this.#deps = deps
  }

  /** Called with the changes of each look that found some. */
  onChange(listener: (changes: readonly ProblemChange[]) => void): void {
    this.#listeners.push(listener)
  }

  /** Returns these problems with their beginning and effect, the critical ones first, the oldest of each first. */
  dated(found: readonly FoundProblem[]): HostProblem[] {
    this.#readJournal()
    const nowMs = this.#deps.clock.nowMs()
    const all = new Map<string, HostProblem>()
    for (const problem of found) {
      const key = problemKey(problem)
      // The source that comes first is closer to the cause.
      if (!all.has(key)) all.set(key, this.#follow(key, problem, nowMs))
    }
    return [...all.values()].toSorted(compare).slice(0, problemCountMax)
  }

  /** Returns the problems that log and journal have, those that have just gone included. */
  reported(): HostProblem[] {
    this.#readJournal()
    return [...this.#followed.values()].flatMap(({ problem, reported }) => (reported === null ? [] : [problem]))
  }

  /** Looks every 15 s until the signal is aborted. `list` uses `dated`. Never rejects. */
  async run(list: () => readonly HostProblem[], signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#deps
    let failures = 0
    await sweep({ clock, intervalMs: lookEveryMs, signal }, () => {
      try {
        this.look(list)
        failures = 0
      } catch (error) {
        if (signal.aborted) return
        log.error('the problems of this host were not looked at', { error })
        failures += 1
        if (failures >= failuresToProblem) this.#noteUnknown(error)
      }
    })
  }

  /** Looks once, and reports what has changed since the last look. */
  look(list: () => readonly HostProblem[]): void {
    const present = list()
    const nowMs = this.#deps.clock.nowMs()
    const isPresent = new Set(present.map(problemKey))
    const changes = present.flatMap(problem => this.#noteBegin(problem))
    for (const [key, followed] of this.#followed) {
      if (isPresent.has(key)) continue
      followed.looks = 0
      // A clock that was set back does not prolong a problem.
      if (nowMs >= followed.seenMs && nowMs - followed.seenMs < absentMs) continue
      this.#followed.delete(key)
      if (followed.reported === null) continue
      this.#noteEnd(key, followed)
      changes.push({ kind: 'ended', problem: followed.problem })
    }
    if (changes.length > 0) for (const listener of this.#listeners) listener(changes)
  }

  /** Reports that the list itself cannot be made. Other problems neither begin nor end until it can. */
  #noteUnknown(error: unknown): void {
    const detail = `the status of this host cannot be made: ${harmlessLine(messageOf(error))}`
    const remedy = 'see journalctl --unit=strongroom for the cause, and `strongroom help 3am`'
    const found = criticalProblem({ name: 'status_unknown', detail, remedy })
    const key = problemKey(found)
    const problem = this.#follow(key, found, this.#deps.clock.nowMs())
    const followed = this.#followed.get(key)
    if (followed !== undefined) followed.looks = reportedLooks
    const changes = this.#noteBegin(problem)
    if (changes.length > 0) for (const listener of this.#listeners) listener(changes)
  }

  #follow(key: string, { sinceMs, ...found }: FoundProblem, nowMs: number): HostProblem {
    const known = this.#followed.get(key)
    const since = iso(sinceMs ?? known?.sinceMs ?? nowMs)
    const problem: HostProblem = { ...found, since, affects: PROBLEMS[found.name] }
    if (known === undefined) {
      if (this.#followed.size < followedMax)
        this.#followed.set(key, { sinceMs: sinceMs ?? nowMs, problem, seenMs: nowMs, looks: 0, reported: null })
    } else Object.assign(known, { problem, seenMs: nowMs })
    return problem
  }

  #noteBegin(problem: HostProblem): ProblemChange[] {
    const key = problemKey(problem)
    const followed = this.#followed.get(key)
    if (followed === undefined) return []
    followed.looks += 1
    if (followed.looks < reportedLooks || rank(followed.reported) <= rank(problem.severity)) return []
    const { log, onEvent } = this.#deps
    const { name, subject, severity, since, detail, affects, remedy } = problem
    const kind = followed.reported === null ? 'began' : 'worse'
    followed.reported = severity
    const write = severity === 'critical' ? log.error : log.warn
    write(`problem ${key}: ${detail}`, { problem: key, severity, since, affects, remedy })
    if (kind === 'began') onEvent(PROBLEM_BEGAN, { name, subject, severity, since, detail })
    return [{ kind, problem }]
  }

  #noteEnd(key: string, { sinceMs, problem: { name, subject, severity, detail } }: Followed): void {
    const { log, onEvent } = this.#deps
    log.info(`problem ${key} has ended`, { problem: key, since: iso(sinceMs) })
    onEvent(PROBLEM_ENDED, { name, subject, severity, detail })
  }

  /** Problems that continue over a restart keep their beginning and get no second line. */
  #readJournal(): void {
    if (this.#hasReadJournal) return
    this.#hasReadJournal = true
    const nowMs = this.#deps.clock.nowMs()
    for (const [key, open] of this.#deps.openBefore()) {
      const { sinceMs, severity: reported } = open
      this.#followed.set(key, { sinceMs, problem: formerProblem(open), seenMs: nowMs, looks: 0, reported })
    }
  }
}

/** No share: problems of this host. */
const followedMax = 2 * problemCountMax

/** Returns a problem in the form of the journal, without its remedy. */
export function formerProblem({ sinceMs, ...open }: OpenProblem): HostProblem {
  return { ...open, since: iso(sinceMs), affects: PROBLEMS[open.name], remedy: '' }
}

/** 0 is the most severe. */
function rank(severity: HostProblem['severity'] | null): number {
  return severity === null ? PROBLEM_SEVERITIES.length : PROBLEM_SEVERITIES.indexOf(severity)
}

function compare(left: HostProblem, right: HostProblem): number {
  return rank(left.severity) - rank(right.severity) || Date.parse(left.since) - Date.parse(right.since)
}
