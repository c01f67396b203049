// The packages of a build with Cargo, each with its origin. Pure.
//
// Cargo's view of a source is controlled by the source: it chooses manifests, settings and build scripts. Each package
// must therefore be in the lock, and its manifest must be in the source or in the files that this builder fetched. Only
// fetched packages get a registry's checksum or a commit.

import { packageUrl } from '../../attest/provenance/packages.ts'
import type { CratePlace, LockedPackage, PackageOrigin } from '../../attest/provenance/record.ts'
import { BuildFailure } from '../failure.ts'
import { places } from '../phase.ts'
import type { CargoLock, LockEntry } from './lock.codec.ts'
import { bareSource, type Resolve, type ResolvedPackage } from './metadata.codec.ts'

type Crate = Extract<LockedPackage, { kind: 'crate' }>

type PackageFacts = {
  readonly resolve: Resolve
  readonly lock: CargoLock
  /** SHA-256 of crate files by `REGISTRY/NAME-VERSION` below CARGO_HOME/registry; null if nothing was fetched. */
  readonly fetched: ReadonlyMap<string, string> | null
  /** Manifest path by package id, from the messages of the build. */
  readonly compiled: ReadonlyMap<string, string>
  /**
   * Returns the source's directory of a manifest (relative, links resolved), with its tree id; null if there is none.
   */
  readonly treeOf: (directory: string) => { readonly path: string; readonly sha256: string } | null
}

/**
 * Returns the packages, sorted by name and version. Failure `build_failed` for a package that is missing from the lock
 * or outside of source and fetch.
 */
export function cratesOf(facts: PackageFacts): { readonly packages: readonly Crate[]; readonly members: string[] } {
  const { resolve, compiled } = facts
  const known = new Set(resolve.packages.map(({ id }) => id))
  // Settings of the source, such as `--cfg`, can add packages to the build beyond the resolve.
  const added = [...compiled].flatMap(([id, manifestPath]) =>
    known.has(id) ? [] : [addedPackage(id, manifestPath, facts.lock)],
  )
  const found = [...resolve.packages, ...added].map(pkg => {
    const manifestPath = compiled.get(pkg.id) ?? pkg.manifestPath
    if (manifestPath !== pkg.manifestPath) throw elsewhere(`${pkg.name} ${pkg.version}`, manifestPath)
    const { origin, from } = placed(pkg, facts)
    const crate = { kind: 'crate', name: pkg.name, version: pkg.version, origin, from } as const
    return { id: pkg.id, url: packageUrl(crate), crate }
  })
  const urls = new Map(found.map(({ id, url }) => [id, url]))
  const urlsOf = (ids: readonly string[]) => ids.flatMap(id => urls.get(id) ?? []).sort()
  const packages = found.map(
    ({ id, crate }): Crate => ({
      ...crate,
      compiled: compiled.has(id),
      dependsOn: urlsOf(resolve.edges.get(id) ?? []),
    }),
  )
  const keyOf = ({ name, version }: Crate) => `${name} ${version}`
  packages.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
  return { packages, members: urlsOf(resolve.members) }
}

function placed(pkg: ResolvedPackage, facts: PackageFacts): { origin: PackageOrigin; from: CratePlace } {
  const { lock, resolve, fetched } = facts
  const what = `${pkg.name} ${pkg.version}`
  const isSubstitute = resolve.substitutes.has(pkg.id)
  const named = (entry: LockEntry) => entry.name === pkg.name && entry.version === pkg.version
  const isOwn = lock.own.some(named)
  const place = placeOf(pkg.manifestPath)
  if (pkg.source === null) {
    const isLocked = lock.crates.some(named)
    if (!isOwn && !isLocked) throw lacks(what)
    const origin = isLocked && (isSubstitute || !isOwn) ? 'replaced' : isSubstitute ? 'patched' : 'path'
    return { origin, from: treePlace(what, pkg.manifestPath, place, facts) }
  }
  const entry = lock.crates.find(
    entry =>
      named(entry) &&
      isEntrySource(entry.source, pkg.source ?? '') &&
      // Cargo names a checkout by the first digits of its commit.
      (place.kind !== 'git' || (entry.pin.kind === 'git' && entry.pin.commit.startsWith(place.commit))),
  )
  if (entry === undefined) throw lacks(`${what} (${pkg.source})`)
  const { pin } = entry
  if (place.kind === 'tree') {
    return { origin: isSubstitute ? 'patched' : 'vendored', from: treePlace(what, pkg.manifestPath, place, facts) }
  }
  const origin = isSubstitute ? 'patched' : 'fetched'
  if (pin.kind === 'git' && place.kind === 'git' && fetched !== null) return { origin, from: pin }
  if (pin.kind === 'registry' && place.kind === 'registry') {
    const sum = fetched?.get(place.crate)
    if (sum === pin.sha256 && place.crate.endsWith(`/${pkg.name}-${pkg.version}`)) return { origin, from: pin }
    // Cargo unpacked it from a local registry, which must be in the source, because cargo can reach nothing else.
    const whole = facts.treeOf('')
    if (sum === undefined && whole !== null) return { origin: 'vendored', from: { kind: 'tree', ...whole } }
  }
  throw elsewhere(what, pkg.manifestPath)
}

type ManifestPlace =
  | { readonly kind: 'tree'; readonly directory: string }
  | { readonly kind: 'registry'; readonly crate: string }
  | { readonly kind: 'git'; readonly commit: string }
  | { readonly kind: 'elsewhere' }

/** Classifies a manifest's path. Cargo writes paths without `..`. */
function placeOf(manifestPath: string): ManifestPlace {
  if (!manifestPath.endsWith('/Cargo.toml') || manifestPath.split('/').includes('..')) return { kind: 'elsewhere' }
  const directory = manifestPath.slice(0, -'/Cargo.toml'.length)
  if (`${directory}/`.startsWith(`${places.source}/`))
    return { kind: 'tree', directory: directory.slice(places.source.length + 1) }
  const [registries, checkouts] = [`${places.cargo}/registry/src/`, `${places.cargo}/git/checkouts/`]
  if (directory.startsWith(registries)) return { kind: 'registry', crate: directory.slice(registries.length) }
  const [, commit = ''] = directory.startsWith(checkouts) ? directory.slice(checkouts.length).split('/') : []
  return /^[0-9a-f]{7,64}$/.test(commit) ? { kind: 'git', commit } : { kind: 'elsewhere' }
}

function treePlace(what: string, manifestPath: string, place: ManifestPlace, { treeOf }: PackageFacts): CratePlace {
  const tree = place.kind === 'tree' ? treeOf(place.directory) : null
  if (tree === null) throw elsewhere(what, manifestPath)
  return { kind: 'tree', ...tree }
}

/**
 * Compares sources. The lock percent-encodes a git source's query, other output of cargo does not; a package id has no
 * commit.
 */
function isEntrySource(locked: string, found: string): boolean {
  if (!locked.startsWith('git+')) return locked === found
  const commit = found.split('#')[1]
  return bareSource(locked) === bareSource(found) && (commit === undefined || locked.endsWith(`#${commit}`))
}

/** Builds a package from an id alone (cargo-pkgid(1)): `SOURCE#NAME@VERSION`. */
function addedPackage(id: string, manifestPath: string, lock: CargoLock): ResolvedPackage {
  const [, source = '', name = '', version = ''] = /^([^#]+)#([^@]+)@(.+)$/.exec(id) ?? []
  const isLocked = lock.crates.some(
    entry => entry.name === name && entry.version === version && isEntrySource(entry.source, source),
  )
  if (!isLocked) throw lacks(id.slice(0, 300))
  return { id, name, version, source, manifestPath, bins: [] }
}

function lacks(what: string): BuildFailure {
  return new BuildFailure(
    'build_failed',
    `cargo compiled the package ${what}, which Cargo.lock of the workspace lacks; run \`cargo update --workspace\``,
  )
}

function elsewhere(what: string, manifestPath: string): BuildFailure {
  return new BuildFailure(
    'build_failed',
    `cargo takes the package ${what} from ${JSON.stringify(manifestPath.slice(0, 300))}, which is neither in the source nor fetched by this service; add it to the source, or remove the cargo setting that points there`,
  )
}
