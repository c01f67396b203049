// QEMU as Debian's suites have it, each with its libraries in a directory of its own. Effects: apt over private lists,
// downloads into the images' cache, and unpacks beside it.

import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import { mkdtemp, rename, rm, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { downloadPath, fetchPackages } from '../../image/downloads.ts'
import { machineMirrors } from '../../image/mirror.ts'
import type { LockedPackage } from '../../image/packages-lock.ts'
import { describe, field, privateApt, sourceOf, updatedSuites } from '../../image/relock.ts'
import { runTool } from '../../image/tool.ts'

/** Stable, its backports, and testing. */
export const QEMU_SUITES = ['trixie', 'trixie-backports', 'testing'] as const
export type QemuSuite = (typeof QEMU_SUITES)[number]

export type DebianQemu = {
  /** Without Debian's epoch. */
  readonly version: string
  readonly tree: string
}

/** Trees named `SUITE_VERSION`; a tree's time is when its suite was last looked at. */
const kept = join(process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom', 'qemus')
/** One suite has 40 MB of packages, and 160 MB unpacked. A suite's version changes every few weeks. */
const keptMsMax = 30 * 24 * 3_600_000
const stepTimeoutMs = 60_000
const downloads = join(kept, '..', 'downloads')

/** Returns what is kept of the suite; null if nothing is. */
export function keptQemu(suite: QemuSuite): DebianQemu | null {
  const [newest] = treesOf(suite).toSorted((a, b) => statSync(b.tree).mtimeMs - statSync(a.tree).mtimeMs)
  return newest ?? null
}

function treesOf(suite: QemuSuite): DebianQemu[] {
  const names = existsSync(kept) ? readdirSync(kept) : []
  return names
    .filter(name => name.startsWith(`${suite}_`))
    .map(name => ({ version: name.slice(suite.length + 1), tree: join(kept, name) }))
}

/**
 * Fetches the suite's QEMU if none is kept, or if the suite was last looked at a month ago. Returns why it failed; null
 * if all went well. Starts nothing after `untilMs`; packages that have come by then are kept for the next call.
 */
export async function fetchQemu(suite: QemuSuite, untilMs: number): Promise<string | null> {
  const before = keptQemu(suite)
  if (before !== null && Date.now() - statSync(before.tree).mtimeMs < keptMsMax) return null
  const work = await mkdtemp('/tmp/qemu-suite-')
  try {
    await unpack(suite, await packagesOf(suite, work, untilMs), untilMs)
    return null
  } catch (error) {
    return `cannot fetch QEMU of ${suite}: ${String(error).slice(0, 500)}`
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}

function checkTime(untilMs: number): void {
  if (Date.now() > untilMs) throw new Error('no time left')
}

/** Matches QEMU, its data, option ROMs and libraries, but no programs that only an installation needs. */
const LOADED = /^(?:qemu-system-(?:x86|common|data)|seabios|ipxe-qemu|zlib1g|lib(?!systemd-shared|pam-|c-gconv).*)$/

async function packagesOf(suite: QemuSuite, work: string, untilMs: number): Promise<LockedPackage[]> {
  checkTime(untilMs)
  const mirrors = await machineMirrors()
  const suites = suite === 'trixie-backports' ? [...updatedSuites('trixie'), suite] : updatedSuites(suite)
  const sources = suites.map(name => sourceOf(name, mirrors))
  const apt = await privateApt({ architecture: 'amd64' }, sources, work, stepTimeoutMs)
  const install = ['--simulate', '--target-release', suite, 'install', 'qemu-system-x86']
  const chosen = [...(await apt.run('apt-get', install)).matchAll(/^Inst (\S+) \((\S+) /gm)]
    .map(([, name = '', version = '']) => ({ name, version, role: 'root' as const }))
    .filter(({ name }) => LOADED.test(name))
  const shown = await apt.run('apt-cache', ['show', ...chosen.map(({ name, version }) => `${name}=${version}`)])
  const paragraphs = shown.split(/\n\n+/)
  return chosen.map(entry => {
    const isIt = (text: string) => field(text, 'Package') === entry.name && field(text, 'Version') === entry.version
    return describe(entry, paragraphs.find(isIt) ?? '')
  })
}

async function unpack(suite: QemuSuite, packages: readonly LockedPackage[], untilMs: number): Promise<void> {
  const version = packages.find(({ name }) => name === 'qemu-system-x86')?.version.replace(/^\d+:/, '')
  if (version === undefined) throw new Error('the suite has no qemu-system-x86')
  const tree = join(kept, `${suite}_${version}`)
  if (!existsSync(tree)) {
    mkdirSync(kept, { recursive: true })
    const partial = await mkdtemp(join(kept, '.partial-'))
    try {
      for (const entry of packages) {
        checkTime(untilMs)
        await fetchPackages(downloads, [entry], machineMirrors, stepTimeoutMs)
        const path = downloadPath(downloads, entry.sha256)
        await runTool(['dpkg-deb', '--extract', path, partial], { timeoutMs: stepTimeoutMs })
      }
      await rename(partial, tree)
    } finally {
      await rm(partial, { recursive: true, force: true })
    }
  }
  await utimes(tree, new Date(), new Date())
  for (const old of treesOf(suite)) if (old.version !== version) await rm(old.tree, { recursive: true, force: true })
}
