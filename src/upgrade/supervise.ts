// Carries an upgrade out, phase by phase, or ends one that was interrupted. The record is written before the next phase
// begins, and each phase may be done again. Effects: the upgrade's directory, the database while the service is
// stopped, a drop-in of the unit; the rest comes in.

import { existsSync, readdirSync, renameSync, rmdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { noteHostCommand } from '../host/host-commands.ts'
import { databaseFile } from '../host/state-files.ts'
import { removeFile, removeTree } from '../linux/files/removal.ts'
import { ensureDir, syncDirectory, syncFile, writeFileAtomic } from '../linux/files.ts'
import { lockFile } from '../linux/lock.ts'
import { snapshotDatabase } from '../store/snapshot.ts'
import { replaceDatabase } from '../store/way-back.ts'
import {
  noteProgress,
  type Paths,
  readEnd,
  readRecord,
  type UpgradeEnd,
  type UpgradeRecord,
  writeEnd,
  writeRecord,
} from './record.ts'
import { type Next, type Outcome, type Phase, UPGRADE_TABLE, type UpgradeEvent } from './upgrade.machine.ts'

/** The service and its executables. */
export type UpgradeHost = {
  /** Resolves once nothing of the service runs. VMs go on. */
  readonly stop: () => Promise<void>
  readonly start: () => Promise<void>
  /** Has systemd read its files again. */
  readonly reload: () => Promise<void>
  readonly service: () => Promise<ServiceState>
  /** Calls the daemon by this executable's own command; null if it does not answer. */
  readonly status: (executable: string) => Promise<{ readonly pid: number } | null>
  /** Checks that fail, by this executable's own doctor and its canary. */
  readonly doctor: (executable: string) => Promise<readonly string[]>
  /** Puts the candidate in its place. Safe to repeat. */
  readonly install: (record: UpgradeRecord) => Promise<void>
  /** Opens the routing of running VMs, for an earlier build whose table marks no packets. Never rejects. */
  readonly openRouting: () => Promise<void>
  /** The unit that ends an interrupted upgrade is not needed any more. */
  readonly disarm: () => Promise<void>
}

/** `restarts`: since it was started by us. */
export type ServiceState = { readonly pid: number; readonly isRunning: boolean; readonly restarts: number }

export type SuperviseDeps = {
  readonly paths: Paths
  /** The drop-in that makes the service start the candidate. */
  readonly dropIn: string
  readonly host: UpgradeHost
  readonly clock: Clock
  /** For the log. */
  readonly say: (text: string) => void
}

const pollMs = 200
/** For an executable that has served here before. */
const knownStartMs = 120_000

/**
 * Continues from the state in the record, to the end; null if there was nothing to do. Faults: conflict (another
 * process does it), and those of a phase that must be retried.
 */
export async function supervise(deps: SuperviseDeps): Promise<UpgradeEnd | null> {
  const { paths } = deps
  if (!existsSync(paths.directory)) return null
  using _ = lockFile(paths.lock)
  let record = readRecord(paths)
  if (record === null) {
    await tidy(deps)
    return readEnd(paths)
  }
  const isAsked = record.phase === 'prepared' && isHeld(paths.askerLock)
  let ended: Ended | null = isAsked ? null : { event: 'interrupted', reason: INTERRUPTED }
  for (;;) {
    ended ??= await workOf(deps, record)
    const next: Next | null = UPGRADE_TABLE[record.phase][ended.event]
    if (next === null) {
      noteProgress(paths, { atMs: deps.clock.nowMs(), text: `${ended.reason}; it is tried again`, isRetried: true })
      throw ended.fault ?? new Fault('internal', ended.reason ?? record.phase)
    }
    if (ended.event !== 'done' && !isDecided(record.phase)) {
      record = { ...record, reason: ended.reason }
      tell(deps, `${ended.reason}: going back to ${record.from.version}`)
    }
    if ('end' in next) return await finish(deps, record, next.end)
    record = { ...record, phase: next.phase }
    writeRecord(paths, record)
    ended = null
  }
}

type Ended = { readonly event: UpgradeEvent; readonly reason: string | null; readonly fault?: unknown }

const INTERRUPTED = 'the upgrade was interrupted'

function isDecided(phase: Phase): boolean {
  return phase === 'accepted' || phase === 'returning' || phase === 'returned'
}

async function workOf(deps: SuperviseDeps, record: UpgradeRecord): Promise<Ended> {
  try {
    await WORK[record.phase](deps, record)
    return { event: 'done', reason: null }
  } catch (error) {
    return { event: 'failed', reason: messageOf(error), fault: error }
  }
}

const WORK: Readonly<Record<Phase, (deps: SuperviseDeps, record: UpgradeRecord) => Promise<void>>> = {
  prepared: async () => {},
  switching: async deps => {
    const { paths, host } = deps
    tell(deps, 'stopping the service; VMs and their sessions go on')
    await host.stop()
    tell(deps, 'copying the database')
    copyDatabase(paths)
  },
  trial: async (deps, record) => {
    const { paths, host, dropIn } = deps
    tell(deps, `starting ${record.to.version} on trial: it answers, and accepts no change`)
    writeDropIn(dropIn, [paths.candidate, ...record.serve, '--trial'])
    await host.reload()
    await host.start()
    await answers(deps, paths.candidate, record.waitMs)
    tell(deps, 'it answers; checking the host with it, and booting a canary')
    const failed = await host.doctor(paths.candidate)
    if (failed.length > 0) throw new Fault('host.unsupported', `its doctor reports FAIL: ${failed.join('; ')}`)
  },
  accepted: async (deps, record) => {
    const { paths, host, dropIn } = deps
    tell(deps, `${record.to.version} is accepted and serves; putting it in its place`)
    await host.install(record)
    removeDropIn(dropIn)
    await host.reload()
    await host.stop()
    await host.start()
    await answers(deps, paths.candidate, knownStartMs)
  },
  returning: async deps => {
    await putDatabaseBack(deps)
    await deps.host.openRouting()
  },
  returned: async (deps, record) => {
    const { paths, host, dropIn } = deps
    // A boot before the switch was undone has started the new executable once more, which migrated again.
    if (existsSync(dropIn)) await putDatabaseBack(deps)
    tell(deps, `the database is the former one; starting ${record.from.version}`)
    removeDropIn(dropIn)
    await host.reload()
    await host.start()
    await answers(deps, paths.former, knownStartMs)
  },
}

/**
 * Only while the switch is on the disk: then the new executable alone has served, and accepted nothing. Without it the
 * former one may have served since, also after a boot.
 */
async function putDatabaseBack({ paths, host, dropIn }: SuperviseDeps): Promise<void> {
  await host.stop()
  if (existsSync(dropIn)) replaceDatabase(join(paths.stateDir, databaseFile), paths.database)
}

/** Waits until the daemon that systemd has started answers. */
async function answers({ host, clock }: SuperviseDeps, executable: string, waitMs: number): Promise<void> {
  const endMs = clock.monotonicMs() + waitMs
  for (;;) {
    const { pid, isRunning, restarts } = await host.service()
    if (!isRunning || restarts > 0)
      throw new Fault('host.command_failed', 'the executable ended at its start (journalctl --unit=strongroom)')
    const status = await host.status(executable)
    if (status !== null && status.pid === pid) return
    if (clock.monotonicMs() >= endMs)
      throw new Fault('host.command_timeout', `the executable did not answer within ${Math.round(waitMs / 1000)} s`)
    await clock.sleep(pollMs)
  }
}

/** SQLite writes the second beside the first. */
function partialsOf(database: string): string[] {
  return [`${database}.partial`, `${database}.partial-journal`]
}

/** Complete or absent. There is no other writer, because the service is stopped. */
function copyDatabase({ stateDir, database, directory }: Paths): void {
  const partial = `${database}.partial`
  for (const path of partialsOf(database)) removeFile(path)
  snapshotDatabase(join(stateDir, databaseFile), partial)
  syncFile(partial)
  renameSync(partial, database)
  syncDirectory(directory)
}

async function finish(deps: SuperviseDeps, record: UpgradeRecord, outcome: Outcome): Promise<UpgradeEnd> {
  const { paths } = deps
  writeEnd(paths, record, outcome)
  const facts = {
    from: record.from.version,
    to: record.to.version,
    ...(record.reason === null ? {} : { reason: record.reason.slice(0, 500) }),
  }
  // Killed before the record is gone, this happens once more: two entries are better than none.
  const result = outcome === 'upgraded' ? 'ok' : outcome
  noteHostCommand(paths.stateDir, { operation: 'upgrade', arguments: facts, result }, deps.clock.nowMs())
  tell(deps, WORDS[outcome](record))
  removeFile(paths.record)
  syncDirectory(paths.directory)
  await tidy(deps)
  return { outcome, reason: record.reason, from: record.from, to: record.to }
}

const WORDS: Readonly<Record<Outcome, (record: UpgradeRecord) => string>> = {
  upgraded: ({ to }) => `upgraded to ${to.version}`,
  returned: ({ from }) => `${from.version} serves again, with its database`,
  abandoned: ({ from }) => `nothing was changed; ${from.version} serves`,
}

/** The former executable stays: it is the way back. */
async function tidy({ paths, host }: SuperviseDeps): Promise<void> {
  const { candidate, database, record } = paths
  const leftovers = [candidate, paths.package, database, ...partialsOf(database), `${record}.tmp`]
  for (const path of leftovers) removeTree(path)
  await host.disarm()
}

function tell({ paths, clock, say }: SuperviseDeps, text: string): void {
  say(text)
  noteProgress(paths, { atMs: clock.nowMs(), text })
}

/** One file of systemd.unit(5) over the unit's own: the switch, on the disk before the service starts. */
function writeDropIn(path: string, words: readonly string[]): void {
  ensureDir(dirname(path), { mode: 0o755 })
  syncDirectory(dirname(dirname(path)))
  writeFileAtomic(path, `[Service]\nExecStart=\nExecStart=${words.map(quoted).join(' ')}\n`, { mode: 0o644 })
}

function removeDropIn(path: string): void {
  if (!existsSync(dirname(path))) return
  removeFile(path)
  syncDirectory(dirname(path))
  // Others have drop-ins beside ours.
  if (readdirSync(dirname(path)).length === 0) rmdirSync(dirname(path))
}

/** For systemd's own reading of a command line (systemd.service(5)). */
function quoted(word: string): string {
  const escaped = word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%').replaceAll('$', '$$$$')
  return `"${escaped}"`
}

function isHeld(path: string): boolean {
  try {
    lockFile(path).release()
    return false
  } catch (error) {
    if (error instanceof Fault && error.code === 'conflict') return true
    throw error
  }
}
