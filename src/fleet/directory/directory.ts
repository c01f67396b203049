// The directory on one host of a fleet: changes go to PostgreSQL, and all reads use the local copy. Effects: statements
// to PostgreSQL, SQL on the host's database, timers.

import { pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { DirectoryDb, DirectoryStore, LocalDirectory } from '../../store/db.ts'
import { notTaken } from '../acting.ts'
import {
  directoryAway,
  maybeElsewhereMessage,
  maybeKeyMessage,
  notMemberMessage,
  reasonOf,
  sqlStateOf,
} from '../failures.ts'
import type { Announcement } from '../replica/announcement.codec.ts'
import { Outbox } from '../replica/outbox.ts'
import { Replica, type ReplicaDeps } from '../replica/replica.ts'
import { SampleLines } from '../replica/samples.ts'
import { AnnouncedVersions, createWake, type Wake } from './announced-versions.ts'
import { ChangeBatcher } from './change-batcher.ts'
import { Copy, type CopyContradiction, type CopyDeps, defaultWaits, type Synced } from './copy.ts'
import { fleetIdOf } from './feed.ts'
import { reportAll, restAfterReport } from './reports.ts'
import { reportSamples, SampleReads } from './samples.ts'
import { SumsReading, type UnreadSums } from './sums-reading.ts'

export type FleetDirectoryDeps = Pick<ReplicaDeps, 'adopt' | 'hostId'> &
  Omit<CopyDeps, 'replica'> & {
    readonly directory: LocalDirectory
    /** Interval between two reports of usage sums and of samples. */
    readonly sumsEveryMs?: number
    /** Interval between two comparisons of the copy with the directory. */
    readonly checkEveryMs?: number
  }

export type FleetDirectory = {
  /** Replaces the directory of a standalone host. */
  readonly store: DirectoryStore
  /** Signals that the directory has reached a version; null if there may be changes. Never throws, never waits. */
  readonly wake: (announcement: Announcement | null) => void
  readonly view: () => { readonly version: number; readonly timeline: number; readonly unreportedRows: number }
  /** Returns why the directory is unreadable: the first copy is incomplete. Null if it is readable. */
  readonly waitsFor: () => string | null
  /** Returns how the copy was wrong the last time; null if not within a day. */
  readonly contradiction: () => CopyContradiction | null
  /** Returns why sums of usage of other hosts have not been read for a minute; null if they were. */
  readonly unreadSums: () => UnreadSums | null
  /**
   * A host that is no member answers nothing from its copy, which lacks what happens since. Changes, reports and new
   * instances begin with the first true. `reported`: see Renewed; default null.
   */
  readonly setMember: (isMember: boolean, reported?: number | null) => void
  /** Changes and reports begin, although the directory's schema is too old to tell processes apart. */
  readonly setOlder: () => void
  /** Whether the fleet takes this process for the host; false before its first answer. */
  readonly isMember: () => boolean
  /** Whether the fleet has answered that this process is not the host: it must serve no clients. */
  readonly isShutOut: () => boolean
  readonly start: () => void
  readonly stop: () => Promise<void>
}

const SEEDING = new Error('the records of this host are still on their way into the directory')

/** Changes are also read at this interval, because a notification may be lost. */
const pollMs = 2_000
/** Poll interval while the database is unreachable. */
const pollAwayMs = 1_000
/** Maximum delay before an unannounced local change is reported. */
const reportMs = 1_000
/** Interval between two warnings about the same error. */
const refusedAgainMs = 60_000
/** Interval between two reports of usage sums and samples, because each writes a row for every used key or instance. */
const sumsEveryMs = 10_000
/** The copy is compared with the directory at this interval: checksums of all rows are some work for the server. */
const checkEveryMs = 3_600_000
/** Time until a comparison that failed is repeated. */
const checkAgainMs = 60_000
/** Egress of all instances is read at this interval, for answers without the database. */
const egressEveryMs = 60_000

/**
 * Opens the directory, and records local changes from now on. `fleetId`: the fleet that the host has a copy of. If
 * null, the database is queried for it until it responds. Fault `conflict` if the local records belong to another
 * fleet, or to none.
 */
export function openFleetDirectory(deps: FleetDirectoryDeps, fleetId: string | null): FleetDirectory {
  const { directory, hostId, postgres, clock, log } = deps
  const replica: Replica = new Replica({ ...deps, mayAdopt: () => membership.isMember() })
  if (fleetId === null) replica.refuseOwn()
  else replica.begin(fleetId)
  const outbox = new Outbox(directory, replica)
  const copy = new Copy({ ...deps, replica })
  const sums = new SumsReading({ ...deps, replica, outbox, copy })
  const changeBatcher = new ChangeBatcher({ postgres, hostId, replica, copy, clock, log })
  const stopping = new AbortController()
  const { signal } = stopping
  const versions = new AnnouncedVersions({ hostId, copy, clock, signal })
  const reports = createWake()
  let running: Promise<unknown> = Promise.resolve()

  const refreshSamples = openSampleReads(deps, replica)
  const hasSums = () => copy.sums.read() !== null
  const report = () =>
    reportAll({ postgres, outbox, hostId, writing: replica.isSeeding() ? 'wish' : 'report', hasSums }, signal)
  const repeating = { clock, log, signal }
  /** Cached, because every request checks it and a complete copy stays complete. */
  let isThere = false
  const waitsFor = () => {
    const waited = isThere ? null : waitOf(replica, copy)
    isThere = waited === null
    return waited
  }
  const reportDue = reportSums(deps, { report, outbox, waitsFor, refreshSamples, signal })
  const onMember = () => {
    const applied = replica.adoptWaiting()
    if (applied.instances.length > 0) deps.onApplied(applied)
    reports.wake()
    versions.wake.wake()
  }
  const { admit, admitChange, membership } = createAdmission({ waitsFor, replica, onMember })
  /** Not a refused copy. A first copy must be whole before the fleet takes this process. */
  const mayFollow = () => !membership.isShutOut() || waitsFor() !== null
  const sync = async (): Promise<Synced> => {
    if (replica.mark() === null || replica.isSeeding()) return { isChanged: false, isCurrent: true }
    return mayFollow() ? await copy.sync() : { isChanged: false, isCurrent: false }
  }
  const mayRead = () => mayFollow() && waitsFor() === null
  const follow = async () => {
    if (mayFollow()) await versions.read()
  }
  const readSums = async () => (mayRead() ? await sums.read() : undefined)
  const tasks: readonly RepeatedTask[] = [
    { wake: versions.wake, everyMs: pollMs, what: 'directory changes were not read', work: follow },
    { wake: createWake(), everyMs: pollMs, what: 'sums of usage were not read', work: readSums },
    checkTask(deps, { copy, sums, mayRead, signal }),
    reportTask(deps, { reports, report: reportDue, mayReport: membership.isMember, signal }),
  ]

  return {
    store: {
      db: directory.db,
      transact: work => {
        const result = directory.transact(work)
        reports.wake()
        return result
      },
      change: async work => {
        admitChange()
        return await changeBatcher.submit(work)
      },
      ...readsAfter(sync, directory.db),
      refreshSamples,
      admit,
    },
    wake: announcement => versions.announce(announcement),
    view: () => {
      const { version, timeline } = replica.mark() ?? { version: 0, timeline: 0 }
      return { version, timeline, unreportedRows: outbox.count() }
    },
    waitsFor,
    contradiction: () => copy.contradiction(),
    unreadSums: () => sums.unread(),
    ...membership,
    start: () => {
      running = beginOnceAnswered(deps, replica, signal)
        .then(() => finishSeeding(repeating, replica, report))
        .then(() => Promise.all(tasks.map(task => repeat(repeating, task))))
    },
    stop: async () => {
      stopping.abort()
      await running
    },
  }
}

type AdmissionDeps = {
  readonly waitsFor: () => string | null
  readonly replica: Pick<Replica, 'generation' | 'isSeeding'>
  /** Called when the fleet takes this process for the host. */
  readonly onMember: () => void
}

function createAdmission({ waitsFor, replica, onMember }: AdmissionDeps) {
  /** Null before the first answer: an outage must not keep a host from serving. */
  let isMember: boolean | null = null
  const set = (is: boolean) => {
    const isNew = is && isMember !== true
    if (isNew) onMember()
    isMember = is
  }
  const admit = () => {
    if (isMember === false) throw directoryAway(new Error('it has no lease as this host'), notMemberMessage)
    const waited = waitsFor()
    if (waited !== null) throw directoryAway(new Error(waited))
  }
  const membership: Pick<FleetDirectory, 'setMember' | 'setOlder' | 'isMember' | 'isShutOut'> = {
    setMember: (is, reported = null) => {
      if (is) {
        // The answer shows that the directory's schema has generations.
        replica.generation.begin()
        replica.generation.keep(reported)
      }
      set(is)
    },
    setOlder: () => set(true),
    isMember: () => isMember === true,
    isShutOut: () => isMember === false,
  }
  const admitChange = () => {
    admit()
    if (isMember !== true) throw directoryAway(notTaken())
    if (replica.isSeeding()) throw directoryAway(SEEDING)
  }
  return { admit, admitChange, membership }
}

/**
 * Reads after a sync, which never rejects. An object that a copy which is behind lacks is not said to be absent, nor a
 * key to be wrong.
 */
function readsAfter(sync: () => Promise<Synced>, db: DirectoryDb): Pick<DirectoryStore, 'read' | 'retryUnknownKey'> {
  return {
    read: async (caller, work) => {
      const { isChanged, isCurrent } = await sync()
      if (isChanged) caller?.assertAllowed(db)
      try {
        return await work(db)
      } catch (error) {
        const isAbsent = error instanceof Fault && error.code === 'not_found'
        throw isAbsent && !isCurrent ? directoryAway(error, maybeElsewhereMessage) : error
      }
    },
    retryUnknownKey: async work => {
      const isUnknown = (error: unknown) => error instanceof Fault && error.code === 'unauthenticated'
      try {
        return await work()
      } catch (error) {
        if (!isUnknown(error)) throw error
        const { isChanged, isCurrent } = await sync()
        const again = async () => (isChanged ? await work() : Promise.reject(error))
        return await again().catch((last: unknown) => {
          throw isUnknown(last) && !isCurrent ? directoryAway(last, maybeKeyMessage) : last
        })
      }
    },
  }
}

type SumsDeps = {
  readonly report: () => Promise<void>
  readonly outbox: Outbox
  readonly waitsFor: () => string | null
  readonly refreshSamples: DirectoryStore['refreshSamples']
  readonly signal: AbortSignal
}

/**
 * Reports changes, and at intervals the sums and samples that had changed when the interval ended. Reads egress, at
 * longer intervals.
 */
function reportSums(
  { directory, hostId, postgres, clock, sumsEveryMs: everyMs = sumsEveryMs }: FleetDirectoryDeps,
  { report, outbox, waitsFor, refreshSamples, signal }: SumsDeps,
): () => Promise<void> {
  const lines = new SampleLines(directory, hostId)
  let [dueMs, readMs] = [0, 0]
  return async () => {
    await report()
    if (clock.monotonicMs() < dueMs) return
    // At first, because a failure must not repeat it every second.
    dueMs = clock.monotonicMs() + everyMs
    const through = outbox.held()
    while (through !== null && !signal.aborted && outbox.release(through)) await report()
    await reportSamples({ postgres, lines, hostId }, signal)
    if (clock.monotonicMs() < readMs || waitsFor() !== null) return
    readMs = clock.monotonicMs() + egressEveryMs
    await refreshSamples('instance_egress', null)
  }
}

type CheckDeps = {
  readonly copy: Pick<Copy, 'check'>
  readonly sums: Pick<SumsReading, 'readAll'>
  readonly mayRead: () => boolean
  readonly signal: AbortSignal
}

/**
 * Compares the copy with the directory at the end of an interval, and reads all sums. Hosts that start together compare
 * in turn.
 */
export function checkTask(
  {
    hostId,
    clock,
    checkEveryMs: everyMs = checkEveryMs,
  }: Pick<FleetDirectoryDeps, 'hostId' | 'clock' | 'checkEveryMs'>,
  { copy, sums, mayRead, signal }: CheckDeps,
): RepeatedTask {
  let waitMs = (everyMs * Bun.hash.crc32(hostId)) / 2 ** 32
  const work = async () => {
    await pause(clock, waitMs, signal)
    waitMs = Math.min(everyMs, checkAgainMs)
    if (signal.aborted || !mayRead()) return
    // First, because the comparison may fail and copy everything.
    await sums.readAll()
    await copy.check(signal)
    waitMs = everyMs
  }
  return { wake: createWake(), everyMs: 0, what: 'the copy was not compared with the directory', work }
}

type ReportTaskDeps = {
  readonly reports: Wake
  readonly report: () => Promise<void>
  readonly mayReport: () => boolean
  readonly signal: AbortSignal
}

function reportTask(
  { clock }: FleetDirectoryDeps,
  { reports, report, mayReport, signal }: ReportTaskDeps,
): RepeatedTask {
  const work = async () => {
    const beganMs = clock.monotonicMs()
    if (mayReport()) await report()
    await pause(clock, restAfterReport(clock.monotonicMs() - beganMs), signal)
  }
  return { wake: reports, everyMs: reportMs, what: 'the directory did not take a report', work }
}

function openSampleReads(deps: FleetDirectoryDeps, replica: Replica): DirectoryStore['refreshSamples'] {
  const reads = new SampleReads({ ...deps, replica, freshMs: (deps.waits ?? defaultWaits).freshMs })
  return async (table, organizationId) => {
    if (replica.mark() !== null) await reads.refresh(table, organizationId)
  }
}

/** Returns why the directory is unreadable; null if it is readable. */
function waitOf(replica: Replica, copy: Copy): string | null {
  if (replica.mark() === null) return 'the database of the fleet, which has not answered since this host joined'
  const progress = replica.progress.read()
  if (replica.isSeeding() || (copy.mark().version > 0 && progress?.isFirst !== true)) return null
  return `the first copy of the directory: ${progress?.rowCount ?? 0} rows so far`
}

/** Begins the copy of a host without one, when the database responds. Never rejects. */
async function beginOnceAnswered(
  { postgres, clock, log }: FleetDirectoryDeps,
  replica: Replica,
  signal: AbortSignal,
): Promise<void> {
  while (replica.mark() === null && !signal.aborted) {
    try {
      replica.begin(await fleetIdOf(postgres))
    } catch (error) {
      log.debug('this host has no copy of the directory yet', { problem: reasonOf(error) })
      await pause(clock, pollAwayMs, signal)
    }
  }
}

/** Reports local changes made while the records were being copied; others do not see them before. Never rejects. */
async function finishSeeding(
  { clock, log, signal }: RepeatDeps,
  replica: Replica,
  report: () => Promise<void>,
): Promise<void> {
  while (replica.isSeeding() && !signal.aborted) {
    try {
      // The copy would remove records that the directory does not have yet.
      if (replica.mark()?.version === 0) throw new Error('fleet init was interrupted: run it again')
      await report()
      if (!signal.aborted) replica.endSeeding()
    } catch (error) {
      log.warn('the records of this host are not wholly in the directory yet', { problem: reasonOf(error) })
      await pause(clock, pollAwayMs, signal)
    }
  }
}

type RepeatDeps = Pick<FleetDirectoryDeps, 'clock' | 'log'> & { readonly signal: AbortSignal }

/** Runs `work` repeatedly, and retries after failures. Never rejects. */
async function repeat({ clock, log, signal }: RepeatDeps, { wake, everyMs, what, work }: RepeatedTask): Promise<void> {
  let lastProblem = ''
  let againMs = 0
  // Unlike an outage, an error of the server does not pass: log it at once, and every minute while it persists.
  const tell = (error: unknown) => {
    const problem = reasonOf(error)
    const isRefusal = sqlStateOf(error) !== null
    if (!isRefusal || (problem === lastProblem && clock.monotonicMs() < againMs)) return log.debug(what, { problem })
    lastProblem = problem
    againMs = clock.monotonicMs() + refusedAgainMs
    log.warn(what, { problem })
  }
  while (!signal.aborted) {
    try {
      await work()
      await wake.within(clock, everyMs, signal)
    } catch (error) {
      if (!signal.aborted) tell(error)
      await pause(clock, pollAwayMs, signal)
    }
  }
}

type RepeatedTask = {
  readonly wake: Wake
  readonly everyMs: number
  /** A failure in words. */
  readonly what: string
  readonly work: () => Promise<void>
}
