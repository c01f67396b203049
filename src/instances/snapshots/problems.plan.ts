// Problems of snapshots, for the operator's list: no room, none before an end, unreadable records, a port in use. Pure.

import { dayMs } from '../../base/time.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'

/** Ends by idleness without a snapshot, since one was kept before an end. */
export type FailedEnds = {
  readonly count: number
  readonly sinceMs: number
  readonly lastMs: number
  /** Reason of the last one. */
  readonly reason: string
}

export type SnapshotFacts = {
  readonly bytes: number
  readonly bytesMax: number
  /** Null if it cannot be read; the problem `disk` has the reason. */
  readonly freeBytes: number | null
  readonly freeBytesMin: number
  /** Null if there are none. */
  readonly failedEnds: FailedEnds | null
  /** Instances with records that cannot be read. */
  readonly unreadable: readonly string[]
  /** Why VMs cannot connect; null if nothing is known. */
  readonly listenProblem: string | null
}

/** From here on the room for all snapshots is nearly used up. */
const fullRatio = 0.95
/** How long ends without a snapshot stay a problem if no further one is due. */
const failedShownMs = dayMs

export function snapshotProblems(facts: SnapshotFacts, nowMs: number): FoundProblem[] {
  const { failedEnds, unreadable, listenProblem } = facts
  const room = roomWords(facts)
  return [
    ...(room === null ? [] : [warning('room', room)]),
    ...(failedEnds === null || nowMs - failedEnds.lastMs > failedShownMs
      ? []
      : [
          warning('ends', {
            sinceMs: failedEnds.sinceMs,
            detail: `${failedEnds.count} instances ended by idleness without a snapshot; the last one: ${failedEnds.reason}`,
            remedy: 'correct what the reason names; it ends with the next snapshot before an end, or after a day',
          }),
        ]),
    ...(unreadable.length === 0
      ? []
      : [
          warning('unreadable', {
            detail: `snapshots of ${unreadable.length} instances cannot be read, the first of ${unreadable[0]}`,
            remedy:
              'the log has each path and reason; correct the cause, then `systemctl restart strongroom` reads them again',
          }),
        ]),
    ...(listenProblem === null
      ? []
      : [
          warning('port', {
            detail: `VMs cannot hand over snapshots: ${listenProblem}`,
            remedy: 'free the port, or choose another one in snapshots.port; the daemon tries again by itself',
          }),
        ]),
  ]
}

type Words = Pick<FoundProblem, 'detail' | 'remedy'>

const IDLE_ENDS = 'instances whose idle time is over wait for a day, and then end without a snapshot'

/** Null if there is room. The disk counts first: a higher sum of all snapshots gives it no room. */
function roomWords({ bytes, bytesMax, freeBytes, freeBytesMin }: SnapshotFacts): Words | null {
  const free = gib(freeBytesMin)
  if (freeBytes !== null && freeBytes < freeBytesMin)
    return {
      detail: `no snapshot is taken: ${sizeText(freeBytes)} are free on the disk of the state directory, less than snapshots.gib_free_min (${free})`,
      remedy: `free space on the disk of the state directory until ${free} GiB are free${orLower(freeBytes)}; until then ${IDLE_ENDS}`,
    }
  if (bytes < bytesMax * fullRatio) return null
  return {
    detail: `the room for snapshots is nearly used up: ${gib(bytes)} of ${gib(bytesMax)} GiB (snapshots.gib_max)`,
    remedy: `raise snapshots.gib_max and restart the service (VMs continue), or have owners remove snapshots (strongroom snapshot rm); once it is used up, ${IDLE_ENDS}`,
  }
}

/** With less than 1 GiB free, a lower limit would let snapshots use up the disk. */
function orLower(freeBytes: number): string {
  return freeBytes < 2 ** 30
    ? ' (the problem disk ends earlier, once 1024 MiB are free)'
    : `, or lower snapshots.gib_free_min to at most ${(Math.floor((freeBytes / 2 ** 30) * 10) / 10).toFixed(1)} and restart the service (VMs continue)`
}

/** Below 1 GiB in the unit of the problem `disk`. */
function sizeText(bytes: number): string {
  return bytes < 2 ** 30 ? `${Math.floor(bytes / 2 ** 20)} MiB` : `${gib(bytes)} GiB`
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1)
}

function warning(subject: string, words: Words & { readonly sinceMs?: number }): FoundProblem {
  return { name: 'snapshots', subject, severity: 'warning', sinceMs: null, ...words }
}
