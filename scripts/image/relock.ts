// Writes a new package lock: the one place where versions are chosen. Runs apt over private state; the host's is untouched. Effects.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ImageFault } from './image-fault.ts'
import type { Mirrors } from './mirror.ts'
import type { LockedPackage, PackagesLock } from './packages-lock.ts'
import type { Recipe, TreeRecipe } from './recipe.ts'
import { type Release, readRelease } from './release.ts'
import { runTool } from './tool.ts'

const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** A lock before it is written: its releases still say until when they hold. */
export type ResolvedLock = Omit<PackagesLock, 'releases'> & { readonly releases: readonly Release[] }

/** Resolves the recipe's packages against its suite as the mirror has it now. `workDir` must be empty. Throws release_refused. */
export async function resolveLock(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<ResolvedLock> {
  const { suite: main, backports = [] } = recipe
  const sources = suiteSources(main, mirrors)
  if (backports.length > 0) sources.push(source('debian', `${main}-backports`, mirrors))
  const apt = await privateApt(recipe, sources, join(workDir, 'root'))
  const wanted = recipe.packages.map(name => (backports.includes(name) ? `${name}/${main}-backports` : name))
  // mmdebstrap brings what is essential; apt counts itself as such, but whether it is in a guest is the recipe's to say.
  const essential = '?and(?essential,?not(?exact-name(apt)))'
  const simulated = await apt.run('apt-get', ['--simulate', 'install', essential, ...wanted])
  const chosen = [...simulated.matchAll(/^Inst (\S+) \((\S+) /gm)].map(match => ({
    name: match[1] ?? '',
    version: match[2] ?? '',
    role: 'root' as const,
  }))
  const kernel = await apt.run('apt-cache', ['show', '--no-all-versions', recipe.kernelMetapackage])
  const [, name, version] = /^Depends: (linux-image-\S+) \(= ([^)]+)\)/m.exec(kernel) ?? []
  if (name === undefined || version === undefined) {
    throw new ImageFault('recipe_invalid', `${recipe.kernelMetapackage} names no kernel`)
  }
  const entries = [...chosen, { name, version, role: 'kernel' as const }]
  const shown = await apt.run('apt-cache', ['show', ...entries.map(entry => `${entry.name}=${entry.version}`)])
  const paragraphs = new Map(
    shown.split(/\n\n+/).map(text => [`${field(text, 'Package')}=${field(text, 'Version')}`, text]),
  )
  const packages = entries.map(entry => describe(entry, paragraphs.get(`${entry.name}=${entry.version}`) ?? ''))
  const firmware = await resolveFirmware(recipe, mirrors, join(workDir, 'firmware'))
  packages.push(firmware.package)
  packages.sort((a, b) => (a.name < b.name ? -1 : 1))
  const releases = [...apt.releases, ...firmware.releases]
  return { schemaVersion: 1, suite: recipe.suite, architecture: recipe.architecture, releases, packages }
}

/** The listed packages of a tree, each in the suite's newest version; nothing further is resolved. `workDir` must be empty. Throws release_refused. */
export async function resolveTreeLock(recipe: TreeRecipe, mirrors: Mirrors, workDir: string): Promise<ResolvedLock> {
  const sources = treeSources(recipe.suite, mirrors)
  const apt = await privateApt(recipe, sources, join(workDir, 'root'))
  const packages: LockedPackage[] = []
  for (const name of recipe.packages.toSorted()) {
    const shown = await apt.run('apt-cache', ['show', '--no-all-versions', name])
    packages.push(describe({ name, version: field(shown, 'Version'), role: 'root' }, shown))
  }
  const { suite, architecture } = recipe
  return { schemaVersion: 1, suite, architecture, releases: [...apt.releases], packages }
}

// Testing has no updates suite of its own.
function treeSources(suite: string, mirrors: Mirrors): Source[] {
  return suite === 'testing' ? [testing(mirrors)] : suiteSources(suite, mirrors)
}

type Firmware = { readonly package: LockedPackage; readonly releases: readonly Release[] }

/** Out of a suite of its own, so that nothing else is taken from there. */
async function resolveFirmware(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<Firmware> {
  const { package: name, suite } = recipe.firmware
  const from = suite === 'testing' ? testing(mirrors) : source('debian', suite, mirrors)
  const apt = await privateApt(recipe, [from], workDir)
  const shown = await apt.run('apt-cache', ['show', '--no-all-versions', name])
  return {
    package: describe({ name, version: field(shown, 'Version'), role: 'firmware' }, shown),
    releases: apt.releases,
  }
}

type Source = { readonly archive: LockedPackage['archive']; readonly suite: string; readonly line: string }

function suiteSources(suite: string, mirrors: Mirrors): Source[] {
  return [
    source('debian', suite, mirrors),
    source('debian', `${suite}-updates`, mirrors),
    source('debian-security', `${suite}-security`, mirrors),
  ]
}

// Its index on a mirror may be past its time. That is said aloud, and one older than the lock's is refused, so that nobody goes back by it.
function testing(mirrors: Mirrors): Source {
  return source('debian', 'testing', mirrors, 'check-valid-until=no')
}

function source(archive: Source['archive'], suite: string, mirrors: Mirrors, option = ''): Source {
  const mirror = mirrors[archive]
  if (mirror === null) throw new ImageFault('mirror_unknown', `no apt source has ${archive}`)
  return { archive, suite, line: `deb [signed-by=${keyring}${option && ` ${option}`}] ${mirror} ${suite} main` }
}

/** Lines that say what a new lock changes, for people. */
export function lockChanges(
  before: Pick<PackagesLock, 'packages'> | null,
  after: Pick<PackagesLock, 'packages'>,
): string[] {
  const old = new Map(before?.packages.map(entry => [entry.name, entry.version]))
  const lines = after.packages
    .filter(entry => old.get(entry.name) !== entry.version)
    .map(entry => `${entry.name}: ${old.get(entry.name) ?? 'none'} -> ${entry.version}`)
  const kept = new Set(after.packages.map(entry => entry.name))
  return [...lines, ...[...old.keys()].filter(name => !kept.has(name)).map(name => `${name}: removed`)]
}

type Apt = {
  readonly run: (command: 'apt-get' | 'apt-cache', args: readonly string[]) => Promise<string>
  /** Of the sources, in their order. */
  readonly releases: readonly Release[]
}

/** apt over these sources and nothing of the host's, its lists fetched. */
async function privateApt(
  recipe: Pick<Recipe, 'architecture'>,
  sources: readonly Source[],
  workDir: string,
): Promise<Apt> {
  await mkdir(join(workDir, 'lists', 'partial'), { recursive: true })
  await mkdir(join(workDir, 'cache', 'archives', 'partial'), { recursive: true })
  await writeFile(join(workDir, 'sources.list'), `${sources.map(({ line }) => line).join('\n')}\n`)
  await writeFile(join(workDir, 'status'), '')
  const settings = {
    'Dir::Etc::sourcelist': join(workDir, 'sources.list'),
    'Dir::Etc::sourceparts': '/dev/null',
    'Dir::Etc::preferences': '/dev/null',
    'Dir::Etc::preferencesparts': '/dev/null',
    'Dir::State': workDir,
    'Dir::State::lists': join(workDir, 'lists'),
    'Dir::State::status': join(workDir, 'status'),
    'Dir::Cache': join(workDir, 'cache'),
    'APT::Architecture': recipe.architecture,
    'APT::Default-Release': '',
    'APT::Install-Recommends': 'false',
    'APT::Sandbox::User': 'root',
    'Acquire::Languages': 'none',
  }
  const options = Object.entries(settings).flatMap(([key, value]) => ['--option', `${key}=${value}`])
  const run: Apt['run'] = (command, args) =>
    runTool([command, ...options, ...args], { timeoutMs: 300_000, inheritEnv: true })
  await run('apt-get', ['update'])
  return { run, releases: await Promise.all(sources.map(from => releaseOf(from, join(workDir, 'lists')))) }
}

/** apt keeps what it has verified only; where a source failed, `apt-get update` may still end well, with its lists left out. */
async function releaseOf({ archive, suite }: Source, listsDir: string): Promise<Release> {
  const names = (await readdir(listsDir)).filter(name => new RegExp(`_dists_${suite}_(In)?Release$`).test(name))
  const [name] = names
  if (name === undefined || names.length > 1) {
    throw new ImageFault('release_refused', `${archive} ${suite}: ${names.length} Release files that apt has verified`)
  }
  return readRelease(await readFile(join(listsDir, name), 'utf8'), { archive, suite })
}

function describe(entry: Pick<LockedPackage, 'name' | 'version' | 'role'>, shown: string): LockedPackage {
  const file = field(shown, 'Filename')
  const archive = file.startsWith('pool/updates/') ? 'debian-security' : 'debian'
  return { ...entry, archive, file, sizeBytes: Number(field(shown, 'Size')), sha256: field(shown, 'SHA256') }
}

function field(paragraph: string, name: string): string {
  return new RegExp(`^${name}: (.+)$`, 'm').exec(paragraph)?.[1] ?? ''
}
