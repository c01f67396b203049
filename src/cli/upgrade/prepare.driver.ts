// All that stands against an upgrade is found here, before anything of the service is changed. Effects: reads the host,
// runs the candidate's commands, lays it ready in the upgrade's directory.

import { realpathSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { FaultCode } from '../../base/fault.ts'
import { databaseFile } from '../../host/state-files.ts'
import { diskSpace } from '../../linux/files/disk-space.ts'
import { isUnderSystemd } from '../../linux/process/scope.ts'
import { inspectDatabase } from '../../store/inspect.ts'
import { databaseBytes } from '../../store/snapshot.ts'
import { AdvisedFault } from '../../terminal/exit.ts'
import {
  type Candidate,
  collectCandidateFacts,
  configRefusal,
  layReady,
  packagesRefusal,
  takeOver,
  versionOf,
} from '../../upgrade/candidate.driver.ts'
import { type Refusal, roomRefusal, type Versioned, versionRefusal } from '../../upgrade/candidate.plan.ts'
import {
  digestOf,
  failedChecks,
  globalWords,
  installedPackage,
  installFile,
  servedCommand,
} from '../../upgrade/host.driver.ts'
import type { Paths, UpgradeRecord } from '../../upgrade/record.ts'
import { resolveStateDir } from '../state-dir.ts'

export type PrepareOptions = {
  readonly file: string
  readonly paths: Paths
  readonly waitMs: number
  readonly tell: (text: string) => Promise<void>
}

/** Nothing was changed is true of every refusal: the service, its files and its database are as they were. */
function refuse(code: FaultCode, { message, remedy }: Refusal): never {
  throw new AdvisedFault(code, `${message}; nothing was changed`, { remedy })
}

/** Checks whether an upgrade can run here. Faults: forbidden, host.unsupported. */
export function checkPlace(file: string): void {
  if (process.geteuid?.() !== 0)
    refuse('forbidden', { message: 'an upgrade needs root', remedy: 'run it with sudo, or as root' })
  if (isUnderSystemd()) return
  refuse('host.unsupported', {
    message: 'systemd does not run here, and the upgrade needs it to start the new executable and to go back',
    remedy: `stop the daemon, make a backup, replace its executable by ${file}, start it; \`strongroom downgrade\` is the way back (strongroom help upgrade)`,
  })
}

/** Prepares the upgrade and its files. Faults: those of a refusal; each states that nothing was changed. */
export async function prepare({ file, paths, waitMs, tell }: PrepareOptions): Promise<UpgradeRecord> {
  const served = await servedCommand()
  const config = optionOf(served.words, '--config')
  const servedDir = resolveStateDir({ path: optionOf(served.words, '--state-dir') ?? undefined, env: {} })
  if (servedDir !== paths.stateDir) {
    refuse('conflict', {
      message: `the service has the state directory ${servedDir}, not ${paths.stateDir}`,
      remedy: `give --state-dir ${servedDir}`,
    })
  }
  const words = globalWords(paths.stateDir, config)
  if (!served.isActive) {
    refuse('conflict', {
      message: 'the service does not run, so a failure of the upgrade could not be detected',
      remedy: 'systemctl start strongroom, wait until `strongroom status` answers, then try again',
    })
  }
  const own = realpathSync('/proc/self/exe')
  const path = realpathSync(served.path)
  if (digestOf(`/proc/${served.pid}/exe`) !== digestOf(path)) {
    refuse('conflict', {
      message: `the daemon does not run the executable at ${path}, which would be the way back`,
      remedy: 'systemctl restart strongroom, check that it serves, then try again',
    })
  }
  if (digestOf(own) !== digestOf(path)) {
    refuse('conflict', {
      message: `the service runs ${path}, and this is another executable`,
      remedy: `give the command to the executable that serves: ${path} upgrade ${file}`,
    })
  }
  const database = join(paths.stateDir, databaseFile)
  const room = roomRefusal({
    databaseBytes: databaseBytes(database),
    executableBytes: measureFile(file),
    freeBytes: diskSpace(paths.directory).freeBytes,
    where: paths.directory,
  })
  if (room !== null) refuse('host.disk_full', room)
  await tell('laying the new executable ready')
  takeOver(file, paths)
  const found = await collectCandidateFacts(paths.package)
  if ('message' in found) refuse('invalid_request', { ...found, message: `${file}: ${found.message}` })
  const target = await targetOf(file, found, path)
  await layReady(found, paths)
  const from = await versionOf(own)
  const to = await versionOf(paths.candidate)
  if ('message' in from) refuse('internal', from)
  if ('message' in to) refuse('invalid_request', { ...to, message: `${file}: ${to.message}` })
  checkVersions({
    file,
    from,
    to,
    schema: inspectDatabase(database).schema,
    isSame: digestOf(paths.candidate) === digestOf(own),
  })
  const unfit = await configRefusal(paths.candidate, words)
  if (unfit !== null) refuse('config.invalid', { ...unfit, message: `${file}: ${unfit.message}` })
  if (found.kind === 'package') {
    const packages = await packagesRefusal(paths.package)
    if (packages !== null) refuse('host.unsupported', { ...packages, message: `${file}: ${packages.message}` })
  }
  await tell('asking its doctor about this host')
  const failed = await failedChecks(paths.candidate, words)
  if (failed.length > 0) {
    refuse('host.unsupported', {
      message: `its doctor reports FAIL before the upgrade: ${failed.join('; ')}`,
      remedy: 'correct what `strongroom doctor` reports, then try again',
    })
  }
  installFile(own, paths.former)
  return { phase: 'prepared', from, to, target, serve: served.words, config, waitMs, reason: null }
}

function checkVersions(compared: {
  readonly file: string
  readonly from: Versioned
  readonly to: Versioned
  readonly schema: number
  readonly isSame: boolean
}): void {
  const order = Bun.semver.order(compared.to.version, compared.from.version)
  const refusal = versionRefusal({ ...compared, order })
  if (refusal !== null) refuse('conflict', { ...refusal, message: `${compared.file}: ${refusal.message}` })
}

/** dpkg's files are changed by dpkg alone. */
async function targetOf(
  file: string,
  { kind, package: fields }: Candidate,
  path: string,
): Promise<UpgradeRecord['target']> {
  const installed = await installedPackage()
  const isDpkgs = installed !== null && path.startsWith('/usr/lib/strongroom/')
  if (kind === 'executable' && isDpkgs) {
    refuse('conflict', {
      message: `${path} is of the package strongroom ${installed}, and ${file} is a bare executable`,
      remedy: 'give the package strongroom_*.deb',
    })
  }
  if (fields === null) return { kind: 'file', path }
  if (!isDpkgs) {
    refuse('conflict', {
      message: `the service runs ${path}, which is of no package, and ${file} is one`,
      remedy: 'give the bare executable; or change to the package: apt install it by hand, with a backup',
    })
  }
  return { kind: 'package', version: fields.version }
}

/** The value behind the last of an option's names in the words of a command line; null if it is not there. */
function optionOf(words: readonly string[], name: string): string | null {
  const at = words.lastIndexOf(name)
  return at === -1 ? null : (words[at + 1] ?? null)
}

function measureFile(file: string): number {
  const found = statSync(file, { throwIfNoEntry: false })
  if (found?.isFile() === true) return found.size
  refuse('invalid_request', { message: `${file} is no file`, remedy: 'check the path' })
}
