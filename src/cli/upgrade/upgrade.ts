// strongroom upgrade: requests an upgrade and follows it; --resume finishes an interrupted one. Effects: those of
// src/upgrade and src/backup.

import { resolve } from 'node:path'
import { makeBackup } from '../../backup/backup.ts'
import { iso, systemClock } from '../../base/clock.ts'
import { loadConfig } from '../../config/load.ts'
import { readJournalFor } from '../../inference/metering/journal/copy.ts'
import { removeFile, removeTree } from '../../linux/files/removal.ts'
import { ensureDir } from '../../linux/files.ts'
import { lockFile } from '../../linux/lock.ts'
import { AdvisedFault, EXIT, InputFault } from '../../terminal/exit.ts'
import { countOption, required } from '../../terminal/options.ts'
import { dash, fields } from '../../terminal/render.ts'
import { arm, dropInPath, systemdHost, upgradeUnit } from '../../upgrade/host.driver.ts'
import {
  noteProgress,
  type Paths,
  type Progress,
  progressFrom,
  readEnd,
  readRecord,
  type UpgradeEnd,
  type UpgradeRecord,
  upgradePaths,
  writeRecord,
} from '../../upgrade/record.ts'
import { supervise } from '../../upgrade/supervise.ts'
import { type SealOptions, sealOf } from '../backup/seal-options.ts'
import type { Command, Run } from '../operator-run.ts'
import { openVmRouting } from '../vm-routing.ts'
import { checkPlace, prepare } from './prepare.driver.ts'

type UpgradeOptions = SealOptions & {
  backup?: string
  withoutBackup?: string
  wait: number
  dryRun?: boolean
  resume?: boolean
}

const waitSecondsDefault = 300
const waitSecondsMax = 86_400
const pollMs = 200
/** For stopping, copying, the doctor and dpkg, beside the wait for the new executable. */
const restMs = 1_800_000
/** Work that must succeed is tried again by the unit; then the person who waits is to know. */
const retriesShown = 3

export function addUpgrade(program: Command): void {
  program
    .command('upgrade')
    .description(
      'replace the executable of the service: make a backup, try the new one with a canary, then accept it; otherwise restore executable and database. VMs and their sessions continue',
    )
    .argument('[source]', 'the package strongroom_*.deb, or for an installation by hand the executable')
    .option('--backup <file>', 'make a backup in this file first')
    .option('--without-backup <reason>', 'make no backup, and record this reason')
    .option('--recipient <age1…>', 'seal the backup for this age recipient; repeatable', collected, [])
    .option('--recipients-file <file>', 'seal it for the age recipients in the file, one a line')
    .option('--passphrase-file <file>', 'seal it with the first line of the file instead')
    .option(
      '--wait <seconds>',
      'longest time until the new executable answers, with its migration',
      countOption(1, waitSecondsMax),
      waitSecondsDefault,
    )
    .option('--dry-run', 'check everything, change nothing')
    .option('--resume', 'end an interrupted upgrade: go back if it was not accepted, otherwise complete it')
    .examples(
      'strongroom upgrade ./strongroom_0.2.0_amd64.deb --backup /mnt/before.age --recipient age1…',
      'strongroom upgrade ./strongroom-new --without-backup "the nightly one is an hour old"',
      'strongroom upgrade --resume',
    )
    .runs(async (run, source: string | undefined, options: UpgradeOptions) => {
      if (options.resume === true) await resume(run)
      else await upgrade(run, resolve(required('source', source)), options)
    })
}

async function upgrade(run: Run, file: string, options: UpgradeOptions): Promise<void> {
  const makesBackup = backupOf(run, options)
  checkPlace(file)
  const paths = upgradePaths(run.stateDir)
  // The daemon and what it starts pass through to the candidate.
  ensureDir(paths.directory, { mode: 0o711 })
  // Held to the end: the work begins only right after an administrator has requested it.
  using _ = lockFile(paths.askerLock)
  refuseUnfinished(paths)
  const tell = (text: string) => run.hint(`${iso(Date.now())}  ${text}`)
  const record = await prepare({ file, paths, waitMs: options.wait * 1000, tell }).catch(error => {
    dropCandidate(paths)
    throw error
  })
  if (options.dryRun === true) {
    dropCandidate(paths)
    await run.result({ ok: true, from: record.from, to: record.to }, endText(run, record, 'would be upgraded'))
    return
  }
  await makesBackup(tell)
  writeRecord(paths, record)
  noteProgress(paths, {
    atMs: Date.now(),
    text: options.withoutBackup === undefined ? `backup: ${options.backup}` : `no backup: ${options.withoutBackup}`,
  })
  await arm(paths)
  await report(run, await follow(run, paths, record))
}

function dropCandidate(paths: Paths): void {
  for (const path of [paths.candidate, paths.package]) removeTree(path)
}

type MakesBackup = (tell: (text: string) => Promise<void>) => Promise<void>

/** Checked before anything else is looked at. Faults: InputFault. */
function backupOf(run: Run, { backup, withoutBackup, ...seal }: UpgradeOptions): MakesBackup {
  if (withoutBackup !== undefined) {
    if (backup === undefined && withoutBackup.trim() !== '') return async () => {}
    throw new InputFault('--without-backup takes a reason, and no --backup beside it', {
      param: 'without-backup',
      remedy: 'say in a few words why none is needed, or give --backup FILE',
    })
  }
  const file = required('backup', backup)
  const sealed = sealOf(seal)
  return async tell => {
    await tell(`making the backup ${file}`)
    await makeBackup(resolve(file), {
      stateDir: run.stateDir,
      loaded: await run.config(),
      seal: sealed,
      isSigned: true,
      nowMs: Date.now(),
      readJournal: readJournalFor,
    })
  }
}

function refuseUnfinished(paths: Paths): void {
  const unfinished = readRecord(paths)
  if (unfinished === null) return
  if (unfinished.phase === 'prepared') {
    // The command that asked has died before anything began, or the work would hold its lock.
    using _ = lockFile(paths.lock)
    removeFile(paths.record)
    return
  }
  throw new AdvisedFault('conflict', `an upgrade to ${unfinished.to.version} is not ended: ${unfinished.phase}`, {
    remedy: `see systemctl status ${upgradeUnit}; \`strongroom upgrade --resume\` ends it`,
  })
}

async function resume(run: Run): Promise<void> {
  const paths = upgradePaths(run.stateDir)
  checkPlace('the new executable')
  const config = readRecord(paths)?.config ?? null
  const say = (text: string) => void run.hint(text)
  const load = () => (config === null ? run.config() : loadConfig({ path: config, env: run.io.env }))
  const host = { ...systemdHost(paths, config), openRouting: () => openVmRouting(load, say) }
  const ended = await supervise({ paths, dropIn: dropInPath, host, clock: systemClock, say })
  if (ended === null) {
    await run.result({ outcome: null }, 'no upgrade is under way\n')
    return
  }
  await run.result(ended, endText(run, ended, ended.outcome))
}

/** Prints what the unit does, until it has ended. Fault host.command_failed: it is not ended by itself. */
async function follow(run: Run, paths: Paths, record: UpgradeRecord): Promise<UpgradeEnd> {
  const endMs = systemClock.monotonicMs() + record.waitMs + restMs
  let shown: Progress[] = []
  for (;;) {
    const isOver = readRecord(paths) === null
    const more = progressFrom(paths, shown.length)
    for (const { atMs, text } of more) await run.hint(`${iso(atMs)}  ${text}`)
    shown = [...shown, ...more]
    const end = isOver ? readEnd(paths) : null
    if (end !== null) return end
    const failed = shown.filter(({ isRetried }) => isRetried === true)
    if (failed.length >= retriesShown || systemClock.monotonicMs() > endMs) throw unfinished(paths, failed.at(-1)?.text)
    await systemClock.sleep(pollMs)
  }
}

function unfinished(paths: Paths, why = 'it takes too long'): AdvisedFault {
  const phase = readRecord(paths)?.phase ?? 'ended'
  const state =
    phase === 'accepted'
      ? 'the new executable serves, from the upgrade directory, and accepts changes'
      : 'the former executable is to come back, and no change is accepted until then'
  return new AdvisedFault('host.command_failed', `the upgrade is not ended (${phase}): ${why}; ${state}`, {
    remedy: `mend it (journalctl --unit=${upgradeUnit}); the unit tries again by itself, \`strongroom upgrade --resume\` at once`,
  })
}

async function report(run: Run, end: UpgradeEnd): Promise<void> {
  await run.result(end, endText(run, end, end.outcome))
  if (end.outcome !== 'upgraded') run.exitWith(EXIT.failed)
}

function endText(run: Run, { from, to, reason }: Pick<UpgradeEnd, 'from' | 'to' | 'reason'>, outcome: string): string {
  return fields(run.paint, [
    ['outcome', outcome],
    ['from', `${from.version}, schema ${from.schema}`],
    ['to', `${to.version}, schema ${to.schema}`],
    ['reason', dash(reason)],
  ])
}

function collected(value: string, before: string[]): string[] {
  return [...before, value]
}
