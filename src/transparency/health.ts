// Checks whether the transparency log does what clients that pin it rely on: entries are written, shown, and cosigned
// while they are young enough. Pure except for reading the log.

import { dayMs, hourMs, minuteMs } from '../base/time.ts'
import type { TransparencyLog } from './log.ts'
import type { Witness, Witnesses } from './witnesses.ts'

export type WatchedLog = {
  readonly log: Pick<TransparencyLog, 'head' | 'shown' | 'entries' | 'cosignatures' | 'failure'>
  readonly named: readonly Witness[]
  readonly witnesses: Pick<Witnesses, 'problem' | 'failingSinceMs'>
}

export type LogState = {
  readonly size: number
  readonly shown: number
  /** When the newest entry was written; null if there is none. */
  readonly lastEntryMs: number | null
  /** When the oldest entry that is not shown was written; null if all are. */
  readonly waitingSinceMs: number | null
  /** Why the newest try to write failed; null if it did not. */
  readonly failure: { readonly atMs: number; readonly reason: string } | null
  readonly witnesses: readonly WitnessState[]
}

type WitnessState = {
  readonly name: string
  /** False if cosignatures are added by hand. */
  readonly isAsked: boolean
  readonly cosignedMs: number | null
  readonly failingSinceMs: number | null
  readonly problem: string | null
}

export type LogProblem = {
  /** Null for the log as a whole. */
  readonly witness: string | null
  /** Clients with pins on the log refuse something. */
  readonly severe: boolean
  readonly detail: string
  readonly remedy: string
}

/** Longer than this is no hiccup. A person who cosigns by hand has a day. */
const patienceMs = { asked: 10 * minuteMs, byHand: dayMs }
/** A witness is called again after twelve hours; by hand, two days are left before clients refuse the tree. */
const quietMs = { asked: 36 * hourMs, byHand: 5 * dayMs }
/** Clients refuse a tree that was witnessed longer ago, unless they say otherwise. */
const staleMs = 7 * dayMs

export function logState({ log, named, witnesses }: WatchedLog): LogState {
  const size = log.head()?.size ?? 0
  const shown = log.shown()
  const cosigned = new Map(log.cosignatures().map(row => [row.witness, row.atMs]))
  return {
    size,
    shown,
    lastEntryMs: size === 0 ? null : (log.entries(size - 1, 1)[0]?.atMs ?? null),
    waitingSinceMs: shown === size ? null : (log.entries(shown, 1)[0]?.atMs ?? null),
    failure: log.failure(),
    witnesses: named.map(({ key: { name }, url }) => ({
      name,
      isAsked: url !== null,
      cosignedMs: cosigned.get(name) ?? null,
      failingSinceMs: witnesses.failingSinceMs(name),
      problem: witnesses.problem(name),
    })),
  }
}

/** In the order in which an operator would mend them. */
export function logProblems(state: LogState, nowMs: number): LogProblem[] {
  const { failure, witnesses } = state
  const written: LogProblem[] =
    failure === null
      ? []
      : [
          {
            witness: null,
            severe: true,
            detail: `no entry can be written since ${iso(failure.atMs)}: ${failure.reason}`,
            remedy:
              'make room on the disk of the state directory: nothing new is launched or handed out until then; a log that is full needs another host',
          },
        ]
  return [...written, ...treeProblems(state, nowMs), ...witnesses.flatMap(witness => witnessProblems(witness, nowMs))]
}

function treeProblems({ size, shown, waitingSinceMs, witnesses }: LogState, nowMs: number): LogProblem[] {
  const patience = witnesses.some(({ isAsked }) => isAsked) ? patienceMs.asked : patienceMs.byHand
  if (waitingSinceMs !== null && nowMs - waitingSinceMs > patience) {
    const detail = `${size - shown} entries wait for a witness since ${iso(waitingSinceMs)}: clients with --in-log refuse what they are of`
    return [{ witness: null, severe: true, detail, remedy: WITNESS_REMEDY }]
  }
  const newestMs = Math.max(...witnesses.map(({ cosignedMs }) => cosignedMs ?? 0))
  if (witnesses.length === 0 || newestMs === 0 || nowMs - newestMs <= staleMs) return []
  const detail = `no witness has cosigned since ${iso(newestMs)}: clients refuse a tree that is older than seven days`
  return [{ witness: null, severe: true, detail, remedy: WITNESS_REMEDY }]
}

function witnessProblems(
  { name, isAsked, cosignedMs, failingSinceMs, problem }: WitnessState,
  nowMs: number,
): LogProblem[] {
  const remedy = isAsked ? WITNESS_REMEDY : HAND_REMEDY
  const found = (detail: string): LogProblem[] => [{ witness: name, severe: false, detail, remedy }]
  if (failingSinceMs !== null && nowMs - failingSinceMs > patienceMs.asked)
    return found(`it fails since ${iso(failingSinceMs)}: ${problem ?? ''}`)
  const quiet = isAsked ? quietMs.asked : quietMs.byHand
  if (cosignedMs !== null) return nowMs - cosignedMs > quiet ? found(`it has cosigned last ${iso(cosignedMs)}`) : []
  return isAsked ? [] : found('it has cosigned nothing yet')
}

const WITNESS_REMEDY =
  'see strongroom log status; mend the way to the witness, ask who runs it, or name another one in log.witnesses'
const HAND_REMEDY =
  'have it cosign the note of strongroom log status --json, and hand the result to strongroom log cosign'

function iso(ms: number): string {
  return new Date(ms).toISOString()
}
