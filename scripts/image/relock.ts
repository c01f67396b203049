// Writes a new package lock: the one place where versions are chosen. Runs apt over private state; the host's is untouched. Effects.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ImageFault } from './image-fault.ts'
import type { Mirrors } from './mirror.ts'
import type { LockedPackage, PackagesLock } from './packages-lock.ts'
import type { Recipe } from './recipe.ts'
import { runTool } from './tool.ts'

const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Resolves the recipe's packages against its suite as the mirror has it now. `workDir` must be empty. */
export async function resolveLock(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<PackagesLock> {
  const apt = await privateApt(recipe, mirrors, workDir)
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
  packages.sort((a, b) => (a.name < b.name ? -1 : 1))
  return { schemaVersion: 1, suite: recipe.suite, architecture: recipe.architecture, packages }
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

async function privateApt(recipe: Recipe, mirrors: Mirrors, workDir: string): Promise<Apt> {
  const { debian, 'debian-security': security } = mirrors
  if (debian === null || security === null) throw new ImageFault('mirror_unknown', 'no apt source has Debian')
  const lines = [
    `deb [signed-by=${keyring}] ${debian} ${recipe.suite} main`,
    `deb [signed-by=${keyring}] ${debian} ${recipe.suite}-updates main`,
    `deb [signed-by=${keyring}] ${security} ${recipe.suite}-security main`,
  ]
  await mkdir(join(workDir, 'lists', 'partial'), { recursive: true })
  await mkdir(join(workDir, 'cache', 'archives', 'partial'), { recursive: true })
  await writeFile(join(workDir, 'sources.list'), `${lines.join('\n')}\n`)
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
