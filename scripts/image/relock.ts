// Writes a new package lock: the one place where versions are chosen. Runs apt over private state; the host's is
// untouched. Effects.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ImageFault } from './image-fault.ts'
import type { Mirrors } from './mirror.ts'
import type { LockedPackage, PackagesLock } from './packages-lock.ts'
import type { EnclaveRecipe, MachineRecipe, Recipe } from './recipe.ts'
import { type Release, readRelease } from './release.ts'
import { runTool } from './tool.ts'

const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'
const aptTimeoutMs = 300_000

/** A lock before it is written: its releases still say until when they hold. */
export type ResolvedLock = Omit<PackagesLock, 'releases'> & { readonly releases: readonly Release[] }

/** Chooses versions as the mirror has them now. `workDir` must be empty. Throws release_refused. */
export async function resolveLock(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<ResolvedLock> {
  const apts = new Apts(recipe, mirrors, workDir)
  const packages = recipe.kind === 'machine' ? await machinePackages(recipe, apts) : await enclavePackages(recipe, apts)
  const firmware = await apts.of([recipe.firmware.suite])
  packages.push(await newestOf(firmware, recipe.firmware.package, 'firmware'))
  packages.sort((a, b) => (a.name < b.name ? -1 : 1))
  const { suite, architecture } = recipe
  return { schemaVersion: 1, suite, architecture, releases: apts.releases(), packages }
}

/** The recipe's packages and all they depend on. */
async function machinePackages(recipe: MachineRecipe, apts: Apts): Promise<LockedPackage[]> {
  const { suite: main, backports = [] } = recipe
  const apt = await apts.of([...updatedSuites(main), ...(backports.length > 0 ? [`${main}-backports`] : [])])
  const wanted = recipe.packages.map(name => (backports.includes(name) ? `${name}/${main}-backports` : name))
  // mmdebstrap brings essential packages. apt counts itself among them; here the recipe decides about it.
  const essential = '?and(?essential,?not(?exact-name(apt)))'
  const simulated = await apt.run('apt-get', ['--simulate', 'install', essential, ...wanted])
  const chosen = [...simulated.matchAll(/^Inst (\S+) \((\S+) /gm)].map(match => ({
    name: match[1] ?? '',
    version: match[2] ?? '',
    role: 'root' as const,
  }))
  const shown = await apt.run('apt-cache', ['show', ...chosen.map(entry => `${entry.name}=${entry.version}`)])
  const paragraphs = new Map(
    shown.split(/\n\n+/).map(text => [`${field(text, 'Package')}=${field(text, 'Version')}`, text]),
  )
  const packages = chosen.map(entry => describe(entry, paragraphs.get(`${entry.name}=${entry.version}`) ?? ''))
  return [...packages, await kernelOf(apt, recipe.kernelMetapackage)]
}

/** The listed packages, each in the suite's newest version, and the kernel of its own suite; no dependencies. */
async function enclavePackages(recipe: EnclaveRecipe, apts: Apts): Promise<LockedPackage[]> {
  const apt = await apts.of(updatedSuites(recipe.suite))
  const packages: LockedPackage[] = []
  for (const name of recipe.packages) packages.push(await newestOf(apt, name, 'root'))
  for (const name of recipe.initrdPackages) packages.push(await newestOf(apt, name, 'initrd'))
  const { metapackage, suite } = recipe.kernel
  packages.push(await kernelOf(await apts.of(updatedSuites(suite)), metapackage))
  return packages
}

async function newestOf(apt: Apt, name: string, role: LockedPackage['role']): Promise<LockedPackage> {
  const shown = await apt.run('apt-cache', ['show', '--no-all-versions', name])
  return describe({ name, version: field(shown, 'Version'), role }, shown)
}

async function kernelOf(apt: Apt, metapackage: string): Promise<LockedPackage> {
  const meta = await apt.run('apt-cache', ['show', '--no-all-versions', metapackage])
  const [, name, version] = /^Depends: (linux-image-\S+) \(= ([^)]+)\)/m.exec(meta) ?? []
  if (name === undefined || version === undefined) {
    throw new ImageFault('recipe_invalid', `${metapackage} names no kernel`)
  }
  const shown = await apt.run('apt-cache', ['show', `${name}=${version}`])
  return describe({ name, version, role: 'kernel' }, shown)
}

/** Testing has no updates suite of its own. */
export function updatedSuites(suite: string): string[] {
  return suite === 'testing' ? [suite] : [suite, `${suite}-updates`, `${suite}-security`]
}

/** One apt for each set of suites, so that nothing is taken from a suite that was not meant. */
class Apts {
  readonly #recipe: Recipe
  readonly #mirrors: Mirrors
  readonly #workDir: string
  readonly #made = new Map<string, Apt>()

  constructor(recipe: Recipe, mirrors: Mirrors, workDir: string) {
    this.#recipe = recipe
    this.#mirrors = mirrors
    this.#workDir = workDir
  }

  async of(suites: readonly string[]): Promise<Apt> {
    const name = suites.join('+')
    const made = this.#made.get(name)
    if (made !== undefined) return made
    const sources = suites.map(suite => sourceOf(suite, this.#mirrors))
    const apt = await privateApt(this.#recipe, sources, join(this.#workDir, name))
    this.#made.set(name, apt)
    return apt
  }

  /** Releases of all sources, in the order of the requests. */
  releases(): Release[] {
    return [...this.#made.values()].flatMap(apt => apt.releases)
  }
}

type Source = { readonly archive: LockedPackage['archive']; readonly suite: string; readonly line: string }

export function sourceOf(suite: string, mirrors: Mirrors): Source {
  const archive = suite.endsWith('-security') ? 'debian-security' : 'debian'
  const mirror = mirrors[archive]
  if (mirror === null) throw new ImageFault('mirror_unknown', `no apt source has ${archive}`)
  // A mirror's index of testing may have expired. The report says so, and an index older than the lock's is refused.
  const option = suite === 'testing' ? ' check-valid-until=no' : ''
  return { archive, suite, line: `deb [signed-by=${keyring}${option}] ${mirror} ${suite} main` }
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

export type Apt = {
  readonly run: (command: 'apt-get' | 'apt-cache', args: readonly string[]) => Promise<string>
  /** Releases of the sources, in their order. */
  readonly releases: readonly Release[]
}

/** apt over these sources and nothing of the host's, its lists fetched. */
export async function privateApt(
  recipe: Pick<Recipe, 'architecture'>,
  sources: readonly Source[],
  workDir: string,
  timeoutMs = aptTimeoutMs,
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
  const run: Apt['run'] = (command, args) => runTool([command, ...options, ...args], { timeoutMs, inheritEnv: true })
  await run('apt-get', ['update'])
  return { run, releases: await Promise.all(sources.map(from => releaseOf(from, join(workDir, 'lists')))) }
}

/** apt keeps only verified lists; `apt-get update` may succeed although a source failed. */
async function releaseOf({ archive, suite }: Source, listsDir: string): Promise<Release> {
  const names = (await readdir(listsDir)).filter(name => new RegExp(`_dists_${suite}_(In)?Release$`).test(name))
  const [name] = names
  if (name === undefined || names.length > 1) {
    throw new ImageFault('release_refused', `${archive} ${suite}: ${names.length} Release files that apt has verified`)
  }
  return readRelease(await readFile(join(listsDir, name), 'utf8'), { archive, suite })
}

export function describe(entry: Pick<LockedPackage, 'name' | 'version' | 'role'>, shown: string): LockedPackage {
  const file = field(shown, 'Filename')
  const archive = file.startsWith('pool/updates/') ? 'debian-security' : 'debian'
  return { ...entry, archive, file, sizeBytes: Number(field(shown, 'Size')), sha256: field(shown, 'SHA256') }
}

export function field(paragraph: string, name: string): string {
  return new RegExp(`^${name}: (.+)$`, 'm').exec(paragraph)?.[1] ?? ''
}
