// Parses the output of `go list -json` and `go version -m`. Pure.

import { isRecord } from '../../base/json.ts'
import { BuildFailure } from '../failure.ts'

type ListedModule = {
  readonly path: string
  readonly version: string | null
  /** Directory of its files; null in a vendor directory. */
  readonly dir: string | null
  readonly isMain: boolean
}

export type ListedPackage = {
  readonly importPath: string
  readonly isMain: boolean
  readonly dir: string
  /** Null for a package of the standard library. */
  readonly module: ListedModule | null
  /** The module that replaces it; null if none does. */
  readonly replacement: ListedModule | null
  readonly imports: readonly string[]
  /** Name of its program; null for a library, and for a dependency. */
  readonly program: string | null
}

const packagesMax = 100_000

/**
 * Parses packages; null unless the output is a list of complete documents. Failure `source_invalid` for a package
 * without a module: go compiles it from vendor/, but neither its list of modules nor the program contains it.
 */
export function readGoList(text: string): readonly ListedPackage[] | null {
  const documents = text.split(/^\}$/m)
  if (documents.pop()?.trim() !== '' || documents.length > packagesMax) return null
  const packages: ListedPackage[] = []
  for (const document of documents) {
    const read = packageOf(parsedJson(`${document}}`))
    if (read === null) return null
    packages.push(read)
  }
  return packages
}

function packageOf(item: unknown): ListedPackage | null {
  if (!isRecord(item)) return null
  const { ImportPath: importPath, Dir: dir, Imports: imports = [] } = item
  // `unsafe` has a directory too.
  if (typeof importPath !== 'string' || typeof dir !== 'string') return null
  if (!Array.isArray(imports) || !imports.every(name => typeof name === 'string')) return null
  const [module, replacement] = item.Standard === true ? [null, null] : modulesOf(item.Module)
  if (item.Standard !== true && item.Module === undefined) throw withoutModule(importPath, dir)
  if (item.Standard !== true && module === null) return null
  const isMain = item.Name === 'main'
  const target = typeof item.Target === 'string' ? item.Target : importPath
  const program = isMain && item.DepOnly !== true ? (target.split('/').at(-1) ?? null) : null
  return { importPath, isMain, dir, module, replacement, imports, program }
}

function withoutModule(importPath: string, dir: string): BuildFailure {
  const [name, place] = [importPath, dir].map(text => JSON.stringify(text.slice(0, 300)))
  return new BuildFailure(
    'source_invalid',
    `vendor/modules.txt does not list the package ${name}, which go takes from ${place}; run \`go mod vendor\`, and send vendor/ with the source`,
  )
}

function modulesOf(item: unknown): [ListedModule | null, ListedModule | null] {
  const module = moduleOf(item)
  return [module, isRecord(item) && isRecord(item.Replace) ? moduleOf(item.Replace) : null]
}

function moduleOf(item: unknown): ListedModule | null {
  if (!isRecord(item) || typeof item.Path !== 'string') return null
  return {
    path: item.Path,
    version: typeof item.Version === 'string' ? item.Version : null,
    dir: typeof item.Dir === 'string' ? item.Dir : null,
    isMain: item.Main === true,
  }
}

export type Linked = {
  /** Names of the programs in the output. */
  readonly programs: readonly string[]
  /** `PATH VERSION` of each module in the programs, after its replacement; a directory has no version. */
  readonly modules: readonly string[]
}

export function readLinked(text: string): Linked {
  const programs: string[] = []
  const linked: string[] = []
  for (const line of text.split('\n')) {
    const [, program] = /^\/(?:.*\/)?([^/]+): go\S/.exec(line) ?? []
    if (program !== undefined) programs.push(program)
    const [, kind = '', path = '', version = ''] = /^\t(dep|=>)\t([^\t]+)\t?([^\t]*)/.exec(line) ?? []
    // The line after a replaced module names the linked one.
    if (kind === '=>') linked.pop()
    if (kind !== '') linked.push(`${path} ${version.replace('(devel)', '')}`.trim())
  }
  return { programs, modules: [...new Set(linked)] }
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
