// The output of `cargo metadata --format-version 1` (doc.rust-lang.org/cargo/commands/cargo-metadata.html). Pure.

import { isRecord } from '../../base/json.ts'
import { packagesMax } from './lock.codec.ts'

export type ResolvedPackage = {
  readonly id: string
  readonly name: string
  readonly version: string
  /**
   * Source in the form of Cargo.lock, except for the encoding of a git source's query; null for a package in a
   * directory.
   */
  readonly source: string | null
  readonly manifestPath: string
  /** Names of its programs. */
  readonly bins: readonly string[]
}

export type Resolve = {
  readonly workspaceRoot: string
  /** Ids of the packages that a build without further options compiles. */
  readonly members: readonly string[]
  /** Ids of all packages of the workspace. */
  readonly workspace: readonly string[]
  readonly packages: readonly ResolvedPackage[]
  /** By package id, the ids of its dependencies, except those that only tests, examples and benchmarks need. */
  readonly edges: ReadonlyMap<string, readonly string[]>
  /** Ids of packages from another source than a dependent's manifest declares. */
  readonly substitutes: ReadonlySet<string>
}

type Declared = { readonly name: string; readonly source: string | null }

/** Parses the output. Null for anything but exactly one document, because cargo prints nothing else. */
export function readMetadata(text: string): Resolve | null {
  let document: unknown
  try {
    document = JSON.parse(text)
  } catch {
    return null
  }
  if (!isRecord(document) || document.version !== 1 || !isRecord(document.resolve)) return null
  const { workspace_root: workspaceRoot, packages: given } = document
  const members = textsOf(document.workspace_default_members ?? document.workspace_members)
  const workspace = textsOf(document.workspace_members)
  const { nodes } = document.resolve
  if (typeof workspaceRoot !== 'string' || members === null || workspace === null) return null
  if (!Array.isArray(given) || given.length > packagesMax || !Array.isArray(nodes)) return null
  const packages = new Map<string, ResolvedPackage>()
  const declared = new Map<string, readonly Declared[]>()
  for (const item of given) {
    const read = packageOf(item)
    if (read === null) return null
    packages.set(read.id, read)
    const dependencies = declaredOf(item)
    if (dependencies === null) return null
    declared.set(read.id, dependencies)
  }
  const edges = new Map<string, readonly string[]>()
  const substitutes = new Set<string>()
  for (const node of nodes) {
    if (!isRecord(node) || typeof node.id !== 'string' || !Array.isArray(node.deps)) return null
    const needed: string[] = []
    for (const dep of node.deps) {
      const target = isRecord(dep) && typeof dep.pkg === 'string' ? packages.get(dep.pkg) : undefined
      if (target === undefined || !isRecord(dep)) return null
      if (isForMoreThanTests(dep.dep_kinds)) needed.push(target.id)
      const named = declared.get(node.id)?.filter(({ name }) => name === target.name) ?? []
      // One dependent that declares another source is enough to make the package a substitute.
      if (named.length > 0 && !named.some(({ source }) => isSameSource(source, target.source)))
        substitutes.add(target.id)
    }
    edges.set(node.id, needed)
  }
  return { workspaceRoot, members, workspace, packages: [...packages.values()], edges, substitutes }
}

function packageOf(item: unknown): ResolvedPackage | null {
  if (!isRecord(item)) return null
  const { id, name, version, source, manifest_path: manifestPath } = item
  if (typeof id !== 'string' || typeof name !== 'string' || typeof version !== 'string') return null
  if (typeof manifestPath !== 'string' || (typeof source !== 'string' && source !== null)) return null
  const targets = Array.isArray(item.targets) ? item.targets.filter(isRecord) : []
  const bins = targets.flatMap(({ kind, name }) =>
    Array.isArray(kind) && kind.includes('bin') && typeof name === 'string' ? [name] : [],
  )
  return { id, name, version, source, manifestPath, bins }
}

function declaredOf(item: unknown): readonly Declared[] | null {
  if (!isRecord(item) || !Array.isArray(item.dependencies)) return null
  const declared: Declared[] = []
  for (const dependency of item.dependencies) {
    if (!isRecord(dependency) || typeof dependency.name !== 'string') return null
    const { name, source } = dependency
    declared.push({ name, source: typeof source === 'string' ? source : null })
  }
  return declared
}

function isForMoreThanTests(kinds: unknown): boolean {
  return !Array.isArray(kinds) || kinds.some(kind => !isRecord(kind) || kind.kind !== 'dev')
}

/** Compares a registry by its whole address, a repository by its address without query and commit. */
export function isSameSource(declared: string | null, found: string | null): boolean {
  if (declared === null || found === null) return declared === found
  return bareSource(declared) === bareSource(found)
}

export function bareSource(source: string): string {
  return source.startsWith('git+') ? (source.split(/[?#]/)[0] ?? '') : source
}

function textsOf(value: unknown): readonly string[] | null {
  return Array.isArray(value) && value.every(item => typeof item === 'string') ? value : null
}
