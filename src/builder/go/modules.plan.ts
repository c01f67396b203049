// The modules of a build with Go, each with its origin, from the directories that go compiles. Pure.
//
// A module gets a hash of go.sum only if its packages are in the module cache, where this builder compared every file.
// Claims in go.mod and vendor/modules.txt about code in the source are ignored.

import { packageUrl } from '../../attest/provenance/packages.ts'
import type { LockedPackage } from '../../attest/provenance/record.ts'
import { BuildFailure } from '../failure.ts'
import { places } from '../phase.ts'
import { cachedPlace, goPlaces } from './go.plan.ts'
import type { Linked, ListedPackage } from './list.codec.ts'
import { unescaped } from './sum.codec.ts'

type GoModule = Extract<LockedPackage, { kind: 'go-module' }>

export type GoFacts = {
  readonly packages: readonly ListedPackage[]
  /** Directory of the main module in the source; '' is its root. */
  readonly projectDir: string
  /** Hash of each module in the cache, in hexadecimal, by its directory relative to the cache. */
  readonly fetched: ReadonlyMap<string, string>
  /** Returns a directory of the source (relative, links resolved), with its tree id; null if it has none. */
  readonly treeOf: (directory: string) => { readonly path: string; readonly sha256: string } | null
}

/** Returns the modules, sorted by name. Failure `build_failed` for a package outside of source and modules. */
export function modulesOf(facts: GoFacts): { readonly packages: readonly GoModule[]; readonly members: string[] } {
  const own = facts.packages.filter(pkg => pkg.module !== null)
  const found = new Map<string, GoModule>()
  const urlOf = new Map<string, string>()
  for (const pkg of own) {
    const module = moduleOf(pkg, facts)
    const url = packageUrl(module)
    urlOf.set(pkg.importPath, url)
    found.set(url, module)
  }
  const needs = new Map<string, Set<string>>()
  for (const pkg of own) {
    const from = urlOf.get(pkg.importPath) ?? ''
    for (const name of pkg.imports) {
      const to = urlOf.get(name)
      if (to !== undefined && to !== from) needs.set(from, (needs.get(from) ?? new Set()).add(to))
    }
  }
  const packages = [...found].map(([url, module]) => ({ ...module, dependsOn: [...(needs.get(url) ?? [])].sort() }))
  packages.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
  return { packages, members: packages.filter(({ origin }) => origin === 'path').map(packageUrl) }
}

/** Returns the programs that a build produces. Failure `build_failed` for two with the same name. */
export function programsOf(packages: readonly ListedPackage[]): readonly string[] {
  const makers = new Map<string, string>()
  for (const { program, importPath } of packages) {
    if (program === null) continue
    const other = makers.get(program)
    if (other !== undefined)
      throw new BuildFailure(
        'build_failed',
        `two packages produce the same program, ${program}: ${other} and ${importPath}; rename one, or select its module with project_dir`,
      )
    makers.set(program, importPath)
  }
  return [...makers.keys()].sort()
}

/**
 * Throws `build_failed` for a module that the linker lists and go list does not, and for a program without information.
 */
export function checkLinked(linked: Linked, packages: readonly ListedPackage[]): void {
  const unnamed = programsOf(packages).find(program => !linked.programs.includes(program))
  if (unnamed !== undefined)
    throw new BuildFailure('build_failed', `\`go version -m\` names no modules of the program ${unnamed}`)
  const listed = new Set(
    packages.flatMap(({ module, replacement }) => {
      const { path, version } = replacement ?? module ?? {}
      return path === undefined ? [] : [`${path} ${version ?? ''}`.trim()]
    }),
  )
  const unknown = linked.modules.find(name => !listed.has(name))
  if (unknown !== undefined)
    throw new BuildFailure('build_failed', `go linked the module ${unknown}, which \`go list\` does not name`)
}

const keyOf = ({ name, version }: GoModule) => `${name} ${version ?? ''}`

function moduleOf(pkg: ListedPackage, facts: GoFacts): GoModule {
  const { dir, module, replacement } = pkg
  if (module === null) throw new Error('invariant broken: a package of the standard library has no module')
  const used = replacement ?? module
  const replaces = replacement === null ? null : `${module.path}${module.version === null ? '' : `@${module.version}`}`
  const common = { kind: 'go-module', dependsOn: [], replaces } as const
  if (`${dir}/`.startsWith(`${goPlaces.modules}/`)) {
    const place = cachedPlace(dir)
    const h1 = facts.fetched.get(place)
    const [path = '', version = ''] = place.split('@').map(part => unescaped(part) ?? '')
    if (h1 === undefined || path !== used.path || version !== used.version) throw elsewhere(pkg)
    const origin = replacement === null ? 'fetched' : 'replaced'
    return { ...common, name: path, version, origin, from: { kind: 'module', h1 } }
  }
  if (!`${dir}/`.startsWith(`${places.source}/`) || dir.split('/').includes('..')) throw elsewhere(pkg)
  const root = facts.projectDir === '' ? places.source : `${places.source}/${facts.projectDir}`
  const vendor = `${root}/vendor/${module.path}`
  if (!module.isMain && `${dir}/`.startsWith(`${vendor}/`)) {
    const tree = treeAt(pkg, vendor, facts)
    // A replacement without a version is a directory, whose path is not a module's name.
    const name = used.version === null ? module.path : used.path
    const origin = replacement === null ? 'vendored' : 'replaced'
    return { ...common, name, version: used.version, origin, from: tree }
  }
  if (used.dir === null || !`${dir}/`.startsWith(`${used.dir}/`)) throw elsewhere(pkg)
  const from = treeAt(pkg, used.dir, facts)
  return { ...common, name: module.path, version: null, origin: module.isMain ? 'path' : 'replaced', from }
}

function treeAt(pkg: ListedPackage, directory: string, { treeOf }: GoFacts) {
  if (!`${directory}/`.startsWith(`${places.source}/`)) throw elsewhere(pkg)
  const tree = treeOf(directory.slice(places.source.length + 1))
  if (tree === null) throw elsewhere(pkg)
  return { kind: 'tree', ...tree } as const
}

function elsewhere({ importPath, dir }: ListedPackage): BuildFailure {
  return new BuildFailure(
    'build_failed',
    `go takes the package ${JSON.stringify(importPath.slice(0, 300))} from ${JSON.stringify(dir.slice(0, 300))}, which is neither in the source nor a module that this service compared with go.sum; add it to the source, or remove the \`replace\` in go.mod that points there`,
  )
}
