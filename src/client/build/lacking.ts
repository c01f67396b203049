// Finds files that a source's manifests need but the client would not send: locks, vendored packages and modules,
// packages of the same tree, submodules. Effects: reads files of the source.

import { existsSync, lstatSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { parse } from 'smol-toml'
import { resultOr } from '../../base/result-or.ts'
import { modulesBytesMax, submodulesIn } from '../../linux/source/gitmodules.ts'
import { InputFault } from '../../terminal/exit.ts'
import { oneLine } from '../../terminal/render.ts'

export type Lacking = {
  /** Path relative to the source. */
  readonly path: string
  readonly why: string
  /** Whether the build fails without it. */
  readonly isNeeded: boolean
  /** `include`: --include would send it. `submodule`: it has no files here. `outside`: it is not below the source. */
  readonly remedy: 'include' | 'submodule' | 'outside'
}

const LOCKS: Readonly<Record<string, readonly string[]>> = {
  'Cargo.toml': ['Cargo.lock'],
  'flake.nix': ['flake.lock'],
  'go.mod': ['go.sum'],
  'package.json': ['package-lock.json', 'pnpm-lock.yaml'],
}
const fileBytesMax = 4 * 1024 * 1024
const submodulesMax = 1000

type Source = {
  readonly directory: string
  /** Files that the client sends. */
  readonly paths: ReadonlySet<string>
  /** Directories that contain these files. */
  readonly directories: ReadonlySet<string>
  /** Project directory; `.` is the source's root. */
  readonly projectDir: string
}

/**
 * Finds the files that `paths` lacks. A null `projectDir` is the source's root. `hasGoProxy`: Go modules can be
 * fetched.
 */
export function findLacking(
  directory: string,
  paths: readonly string[],
  projectDir: string | null,
  { hasGoProxy = false } = {},
): Lacking[] {
  const directories = new Set<string>()
  for (const path of paths) {
    for (let at = dirname(path); at !== '.' && !directories.has(at); at = dirname(at)) directories.add(at)
  }
  const source = { directory, paths: new Set(paths), directories, projectDir: normalize(projectDir ?? '.') }
  const submodules = missingSubmodules(source)
  const found = [
    ...missingLocks(source),
    ...missingVendored(source),
    ...missingModules(source, hasGoProxy),
    ...missingPackages(source, submodules),
  ]
  const unnamed = submodules.filter(path => !found.some(lacking => lacking.path === path))
  const why = 'a submodule that has no files here'
  const all = [...found, ...unnamed.map(path => ({ path, why, isNeeded: false, remedy: 'submodule' }) as const)]
  return [...new Map(all.map(lacking => [lacking.path, lacking])).values()]
}

/** Throws Fault invalid_request if the build would fail without one of them. */
export function refuseLacking(lacking: readonly Lacking[]): void {
  const needed = lacking.filter(({ isNeeded }) => isNeeded)
  if (needed.length === 0) return
  const includes = needed.filter(({ remedy }) => remedy === 'include').map(({ path }) => `--include ${quoted(path)}`)
  const remedies = [
    ...(includes.length === 0 ? [] : [`send it: ${includes.join(' ')}`]),
    ...(needed.some(({ remedy }) => remedy === 'submodule') ? ['run `git submodule update --init --recursive`'] : []),
    ...(needed.some(({ remedy }) => remedy === 'outside')
      ? ['name a directory that contains it, and --project-dir']
      : []),
  ]
  throw new InputFault(`the build needs what would not be sent: ${lackingText(needed)}`, {
    param: 'source',
    remedy: remedies.join('; '),
  })
}

export function lackingText(lacking: readonly Lacking[]): string {
  return lacking.map(({ path, why }) => `${oneLine(path)} (${oneLine(why)})`).join(', ')
}

function quoted(path: string): string {
  return /^[A-Za-z0-9_./@+-]+$/.test(path) ? path : `'${oneLine(path).replaceAll("'", "'\\''")}'`
}

/** Finds locks on disk, beside a manifest that is sent. */
function missingLocks({ directory, paths, projectDir }: Source): Lacking[] {
  // cargo uses the lock at a workspace's root, which is above its members.
  const above: string[] = []
  for (let at = projectDir; ; at = dirname(at)) {
    above.push(at)
    if (at === '.') break
  }
  // If another toolchain's lock is sent, the build uses that one.
  const locks = Object.values(LOCKS).flat()
  const hasLock = above.some(at => locks.some(lock => paths.has(normalize(`${at}/${lock}`))))
  return [...paths].flatMap(path => {
    const dir = dirname(path)
    const isNeeded = above.includes(dir) && !hasLock
    return (LOCKS[path.slice(path.lastIndexOf('/') + 1)] ?? []).flatMap((lock): Lacking[] => {
      const at = normalize(`${dir}/${lock}`)
      if (paths.has(at) || !existsSync(join(directory, at))) return []
      return [{ path: at, why: `${path} needs it, and git ignores it`, isNeeded, remedy: 'include' }]
    })
  })
}

/** Finds directories of vendored packages in cargo's configuration that have an unsent file on disk. */
function missingVendored(source: Source): Lacking[] {
  const { directory, paths } = source
  const configs = [...paths].filter(path => /(?:^|\/)\.cargo\/config(?:\.toml)?$/.test(path))
  return configs.flatMap(config => {
    const sources = Object.values(Object(Reflect.get(readToml(directory, config), 'source')))
    const named = sources
      .map(value => Reflect.get(Object(value), 'directory'))
      .filter(value => typeof value === 'string')
    return named.flatMap((name): Lacking[] => {
      const path = normalize(join(dirname(dirname(config)), name)).replace(/\/$/, '')
      if (isOutside(path)) return [{ path: name, why: outsideText(config), isNeeded: false, remedy: 'outside' }]
      const file = unsentFile(source, path)
      if (file === null) return []
      const why = `${config} names it, and git ignores ${file === path ? 'it' : file}`
      return [{ path, why, isNeeded: true, remedy: 'include' } as const]
    })
  })
}

/** Finds vendored Go modules: all of them, or the packages listed in `vendor/modules.txt`. */
function missingModules({ directory, paths, directories, projectDir }: Source, hasGoProxy: boolean): Lacking[] {
  const manifests = [...paths].filter(path => path === 'go.mod' || path.endsWith('/go.mod'))
  return manifests.flatMap((manifest): Lacking[] => {
    const vendor = normalize(`${dirname(manifest)}/vendor`)
    const listing = `${vendor}/modules.txt`
    if (!existsSync(join(directory, listing))) return []
    const isProject = dirname(manifest) === projectDir
    if (!paths.has(listing)) {
      const why = `${manifest} has its modules there, and git ignores it`
      return [{ path: vendor, why, isNeeded: isProject && !hasGoProxy, remedy: 'include' }]
    }
    // If the list exists, go takes every package from `vendor`.
    const lines = readText(directory, listing).split('\n')
    const packages = lines
      .filter(line => line !== '' && !line.startsWith('#') && !line.includes('..'))
      .map(line => `${vendor}/${line}`)
    const missing = packages.find(path => !directories.has(path) && existsSync(join(directory, path)))
    if (missing === undefined) return []
    return [
      { path: vendor, why: `${listing} names ${missing}, and git ignores it`, isNeeded: isProject, remedy: 'include' },
    ]
  })
}

/**
 * Returns the directory itself if none of it is sent, or an unsent file that a package lists. Null if nothing is
 * missing.
 */
function unsentFile({ directory, paths, directories }: Source, path: string): string | null {
  if (!existsSync(join(directory, path))) return null
  if (!directories.has(path)) return path
  for (const listing of paths) {
    if (!listing.startsWith(`${path}/`) || !listing.endsWith('/.cargo-checksum.json')) continue
    const files = resultOr(() => Object.keys(JSON.parse(readText(directory, listing)).files), [])
    const missing = files.map(file => `${dirname(listing)}/${file}`).find(file => !paths.has(file))
    if (missing !== undefined && existsSync(join(directory, missing))) return missing
  }
  return null
}

/** Finds packages of the same tree that a manifest names and that are not sent. */
function missingPackages(source: Source, submodules: readonly string[]): Lacking[] {
  const { directory, paths, projectDir } = source
  const manifests = [...paths].filter(path => path === 'Cargo.toml' || path.endsWith('/Cargo.toml'))
  return manifests.flatMap(manifest => {
    const dir = dirname(manifest)
    const isNeeded = dir === projectDir
    return packagePaths(readToml(directory, manifest)).flatMap((name): Lacking[] => {
      const path = normalize(join(dir, name)).replace(/\/$/, '')
      if (isOutside(path)) return [{ path: name, why: outsideText(manifest), isNeeded, remedy: 'outside' }]
      const submodule = submodules.find(at => path === at || path.startsWith(`${at}/`))
      if (submodule !== undefined) {
        const why = `a submodule that has no files here, and that ${manifest} needs`
        return [{ path: submodule, why, isNeeded, remedy: 'submodule' }]
      }
      const own = normalize(`${path}/Cargo.toml`)
      if (paths.has(own) || !existsSync(join(directory, own))) return []
      return [{ path, why: `${manifest} needs it, and git ignores it`, isNeeded, remedy: 'include' }]
    })
  })
}

/** Returns every `path` of a dependency, patch or replacement, and the workspace members that are not patterns. */
function packagePaths(manifest: object): string[] {
  const members: unknown = Reflect.get(Object(Reflect.get(manifest, 'workspace')), 'members')
  const names = Array.isArray(members) ? members.filter(member => typeof member === 'string') : []
  return [...names.filter(name => !/[*?[]/.test(name)), ...dependencyPaths(manifest, 0)]
}

/**
 * Returns the paths of dependencies. `level`: 0 outside of such a table; 1 in it, where each key is a name; 2 and above
 * in a package's own table.
 */
function dependencyPaths(table: object, level: number): string[] {
  return Object.entries(table).flatMap(([key, value]) => {
    if (level > 1 && key === 'path' && typeof value === 'string') return [value]
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return []
    const isWithin = level > 0 || /dependencies$|^patch$|^replace$/.test(key)
    return dependencyPaths(value, isWithin ? level + 1 : 0)
  })
}

/** Returns submodules without files here, at most 1000. */
function missingSubmodules({ directory, paths, directories }: Source): string[] {
  const lists = [...paths].filter(path => path === '.gitmodules' || path.endsWith('/.gitmodules'))
  const missing = lists.flatMap(list =>
    submodulesIn(readText(directory, list, modulesBytesMax), submodulesMax)
      .map(({ path }) => normalize(join(dirname(list), path)))
      .filter(path => !directories.has(path) && !isOutside(path)),
  )
  return missing.slice(0, submodulesMax)
}

function isOutside(path: string): boolean {
  return path.startsWith('/') || path === '..' || path.startsWith('../')
}

function outsideText(manifest: string): string {
  return `${manifest} names it, and it is outside of the source`
}

/** Parses TOML. Returns an empty table if the file is invalid, which the build itself reports. */
function readToml(directory: string, path: string): object {
  return resultOr(() => parse(readText(directory, path)), {})
}

/** Returns the file's text; '' if it is too large or not a file. */
function readText(directory: string, path: string, bytesMax = fileBytesMax): string {
  const stat = lstatSync(join(directory, path), { throwIfNoEntry: false })
  return stat?.isFile() === true && stat.size <= bytesMax ? readFileSync(join(directory, path), 'utf8') : ''
}
