// Looks at a file that is to be upgraded to, and lays it ready in the upgrade's directory. Effects: reads the file,
// runs it, dpkg-deb and apt-get; writes that directory.

import { chmodSync, closeSync, copyFileSync, openSync, readdirSync, readSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { Fault, messageOf, wrapFault } from '../base/fault.ts'
import { run } from '../linux/command.ts'
import { removeTree } from '../linux/files/removal.ts'
import { ensureDir, syncDirectory, syncFile } from '../linux/files.ts'
import {
  type Kind,
  kindOf,
  missingPackages,
  type PackageFields,
  packageRefusal,
  type Refusal,
  type Versioned,
  versionedOf,
} from './candidate.plan.ts'
import { outputBytesMax } from './host.driver.ts'
import type { Paths } from './record.ts'

export type Candidate = { readonly kind: Kind; readonly bytes: number; readonly package: PackageFields | null }

const headBytes = 64
const commandTimeoutMs = 60_000

/**
 * Copies the file, so that it cannot change after its check. Leftovers of an earlier upgrade go. Fault internal: it
 * cannot be read.
 */
export function takeOver(file: string, paths: Paths): void {
  for (const path of [paths.candidate, paths.package, paths.database, paths.progress, paths.end]) removeTree(path)
  try {
    copyFileSync(file, paths.package)
    chmodSync(paths.package, 0o600)
    syncFile(paths.package)
  } catch (error) {
    throw wrapFault(error, `copy ${file}`)
  }
}

/** Looks at the file alone. */
export async function collectCandidateFacts(file: string): Promise<Candidate | Refusal> {
  const head = new Uint8Array(headBytes)
  try {
    const fd = openSync(file, 'r')
    try {
      readSync(fd, head)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    return { message: `it cannot be read: ${messageOf(error)}`, remedy: 'check the path' }
  }
  const kind = kindOf(head)
  if (typeof kind !== 'string') return kind
  const bytes = statSync(file).size
  if (kind === 'executable') return { kind, bytes, package: null }
  const field = async (name: string) => (await command(['dpkg-deb', '--field', file, name])).trim()
  const fields = {
    name: await field('Package'),
    version: await field('Version'),
    architecture: await field('Architecture'),
  }
  return packageRefusal(fields) ?? { kind, bytes, package: fields }
}

/** Lays the executable of the copied file ready. Faults: host.*, internal. */
export async function layReady({ kind }: Candidate, paths: Paths): Promise<void> {
  if (kind === 'executable') renameSync(paths.package, paths.candidate)
  else {
    const unpacked = join(paths.directory, 'unpacked')
    removeTree(unpacked)
    ensureDir(unpacked, { mode: 0o700 })
    try {
      await command(['dpkg-deb', '--extract', paths.package, unpacked])
      renameSync(executableIn(join(unpacked, 'usr/lib/strongroom')), paths.candidate)
    } finally {
      removeTree(unpacked)
    }
  }
  chmodSync(paths.candidate, 0o755)
  syncFile(paths.candidate)
  syncDirectory(paths.directory)
}

/** `current` is a link to the one directory that holds it. */
function executableIn(lib: string): string {
  const [found] = readdirSync(lib, { withFileTypes: true }).filter(entry => entry.isDirectory())
  if (found === undefined) throw new Fault('internal', 'the package has no executable in usr/lib/strongroom')
  return join(lib, found.name, 'strongroom')
}

/** The candidate's own answer to `version`. */
export async function versionOf(executable: string): Promise<Versioned | Refusal> {
  try {
    const found = versionedOf(await command([executable, 'version', '--json']))
    if (found !== null) return found
    return { message: 'it runs, and is no strongroom that can be upgraded to', remedy: 'give a release of strongroom' }
  } catch (error) {
    return {
      message: `it does not run: ${messageOf(error)}`,
      remedy: 'compare its SHA-256 with that of the release; the state directory must not be mounted noexec',
    }
  }
}

/** The candidate's own verdict on the configuration; null if it accepts it. */
export async function configRefusal(executable: string, words: readonly string[]): Promise<Refusal | null> {
  try {
    await command([executable, 'config', 'check', ...words])
    return null
  } catch (error) {
    return {
      message: `it does not take the configuration: ${messageOf(error)}`,
      remedy: 'correct the named fields; `config check` of the new executable finds them without an upgrade',
    }
  }
}

/** Packages that the new one needs and this host lacks. */
export async function packagesRefusal(file: string): Promise<Refusal | null> {
  const simulated = await command(['apt-get', '--simulate', '--no-install-recommends', 'install', file])
  const missing = missingPackages(simulated)
  if (missing.length === 0) return null
  return {
    message: `it needs packages that are not installed: ${missing.join(', ')}`,
    remedy: `apt install ${missing.join(' ')}`,
  }
}

async function command(argv: readonly string[]): Promise<string> {
  return (await run(argv, { timeoutMs: commandTimeoutMs, outputBytesMax })).stdout
}
