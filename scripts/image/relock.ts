// Writes a new package lock: the one place where versions are chosen. Runs apt over private state; the host's is untouched. Effects.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ImageFault } from './image-fault.ts'
import type { Mirrors } from './mirror.ts'
import type { LockedPackage, PackagesLock } from './packages-lock.ts'
import type { Recipe, TreeRecipe } from './recipe.ts'
import { runTool } from './tool.ts'

const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Resolves the recipe's packages against its suite as the mirror has it now. `workDir` must be empty. */
export async function resolveLock(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<PackagesLock> {
  const apt = await privateApt(recipe, suiteSources(recipe.suite, mirrors), join(workDir, 'root'))
  await apt('apt-get', ['update'])
  // mmdebstrap brings what is essential; apt counts itself as such, but nothing in a guest installs packages.
  const essential = '?and(?essential,?not(?exact-name(apt)))'
  const simulated = await apt('apt-get', ['--simulate', 'install', essential, ...recipe.packages])
  const chosen = [...simulated.matchAll(/^Inst (\S+) \((\S+) /gm)].map(match => ({
    name: match[1] ?? '',
    version: match[2] ?? '',
    role: 'root' as const,
  }))
  const kernel = await apt('apt-cache', ['show', '--no-all-versions', recipe.kernelMetapackage])
  const [, name, version] = /^Depends: (linux-image-\S+) \(= ([^)]+)\)/m.exec(kernel) ?? []
  if (name === undefined || version === undefined) {
    throw new ImageFault('recipe_invalid', `${recipe.kernelMetapackage} names no kernel`)
  }
  const entries = [...chosen, { name, version, role: 'kernel' as const }]
  const shown = await apt('apt-cache', ['show', ...entries.map(entry => `${entry.name}=${entry.version}`)])
  const paragraphs = new Map(
    shown.split(/\n\n+/).map(text => [`${field(text, 'Package')}=${field(text, 'Version')}`, text]),
  )
  const packages = entries.map(entry => describe(entry, paragraphs.get(`${entry.name}=${entry.version}`) ?? ''))
  packages.push(await resolveFirmware(recipe, mirrors, join(workDir, 'firmware')))
  packages.sort((a, b) => (a.name < b.name ? -1 : 1))
  return { schemaVersion: 1, suite: recipe.suite, architecture: recipe.architecture, packages }
}

/** The listed packages of a tree, each in the suite's newest version; nothing further is resolved. `workDir` must be empty. */
export async function resolveTreeLock(recipe: TreeRecipe, mirrors: Mirrors, workDir: string): Promise<PackagesLock> {
  const sources = treeSources(recipe.suite, mirrors)
  const apt = await privateApt(recipe, sources, join(workDir, 'root'))
  await apt('apt-get', ['update'])
  const packages: LockedPackage[] = []
  for (const name of recipe.packages.toSorted()) {
    const shown = await apt('apt-cache', ['show', '--no-all-versions', name])
    packages.push(describe({ name, version: field(shown, 'Version'), role: 'root' }, shown))
  }
  return { schemaVersion: 1, suite: recipe.suite, architecture: recipe.architecture, packages }
}

// Testing has no updates suite of its own, and its index on a mirror may be past its time; what is taken is pinned by digest from here on.
function treeSources(suite: string, mirrors: Mirrors): string[] {
  return suite === 'testing' ? [source(mirrors.debian, suite, 'check-valid-until=no')] : suiteSources(suite, mirrors)
}

/** Out of a suite of its own, so that nothing else is taken from there. */
async function resolveFirmware(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<LockedPackage> {
  const { package: name, suite } = recipe.firmware
  // Testing's index on a mirror may be past its time; what is taken is pinned by digest from here on.
  const apt = await privateApt(recipe, [source(mirrors.debian, suite, 'check-valid-until=no')], workDir)
  await apt('apt-get', ['update'])
  const shown = await apt('apt-cache', ['show', '--no-all-versions', name])
  return describe({ name, version: field(shown, 'Version'), role: 'firmware' }, shown)
}

function suiteSources(suite: string, mirrors: Mirrors): string[] {
  const { debian, 'debian-security': security } = mirrors
  return [source(debian, suite), source(debian, `${suite}-updates`), source(security, `${suite}-security`)]
}

function source(mirror: string | null, suite: string, option = ''): string {
  if (mirror === null) throw new ImageFault('mirror_unknown', 'no apt source has Debian')
  return `deb [signed-by=${keyring}${option && ` ${option}`}] ${mirror} ${suite} main`
}

/** Lines that say what a new lock changes, for people. */
export function lockChanges(before: PackagesLock | null, after: PackagesLock): string[] {
  const old = new Map(before?.packages.map(entry => [entry.name, entry.version]))
  const lines = after.packages
    .filter(entry => old.get(entry.name) !== entry.version)
    .map(entry => `${entry.name}: ${old.get(entry.name) ?? 'none'} -> ${entry.version}`)
  const kept = new Set(after.packages.map(entry => entry.name))
  return [...lines, ...[...old.keys()].filter(name => !kept.has(name)).map(name => `${name}: removed`)]
}

type Apt = (command: 'apt-get' | 'apt-cache', args: readonly string[]) => Promise<string>

async function privateApt(
  recipe: Pick<Recipe, 'architecture'>,
  sources: readonly string[],
  workDir: string,
): Promise<Apt> {
  await mkdir(join(workDir, 'lists', 'partial'), { recursive: true })
  await mkdir(join(workDir, 'cache', 'archives', 'partial'), { recursive: true })
  await writeFile(join(workDir, 'sources.list'), `${sources.join('\n')}\n`)
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
  return (command, args) => runTool([command, ...options, ...args], { timeoutMs: 300_000, inheritEnv: true })
}

function describe(entry: Pick<LockedPackage, 'name' | 'version' | 'role'>, shown: string): LockedPackage {
  const file = field(shown, 'Filename')
  const archive = file.startsWith('pool/updates/') ? 'debian-security' : 'debian'
  return { ...entry, archive, file, sizeBytes: Number(field(shown, 'Size')), sha256: field(shown, 'SHA256') }
}

function field(paragraph: string, name: string): string {
  return new RegExp(`^${name}: (.+)$`, 'm').exec(paragraph)?.[1] ?? ''
}
