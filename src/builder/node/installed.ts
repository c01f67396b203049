// Compares the packages in node_modules after an install with the lock. Effects: reads files that no other process
// writes.
//
// The install runs before any code of the project or of a package. Everything in node_modules comes from files that
// this builder compared with the lock. No later program can write to it, except an install script to its own package.

import * as fs from 'node:fs'
import { packageUrl } from '../../attest/provenance/packages.ts'
import type { LockedPackage } from '../../attest/provenance/record.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { readBounded } from '../project.ts'
import { isPackageName, isVersion, type NpmLock, type NpmPackage, shown } from './lock.ts'
import { parsedRecord, scriptsOf } from './manifest.codec.ts'

export type InstalledPackage = {
  /** Directory relative to node_modules. */
  readonly place: string
  readonly name: string
  readonly version: string
  /** Path of the package whose file contains this one; null if it has its own file. */
  readonly bundledIn: string | null
  /** Names of its install scripts, in order. */
  readonly scripts: readonly string[]
}

const placesMax = 100_000
const installScripts = ['preinstall', 'install', 'postinstall'] as const

/** Returns the packages below a node_modules that npm created. */
export async function installedByNpm(nodeModules: string, lock: NpmLock): Promise<InstalledPackage[]> {
  const locked = new Set(lock.packages.map(({ key }) => key.slice('node_modules/'.length)))
  return await installedIn(nodeModules, [''], place => locked.has(place))
}

/** Returns the packages in the virtual store of a node_modules that pnpm created. */
export async function installedByPnpm(nodeModules: string): Promise<InstalledPackage[]> {
  const store = `${nodeModules}/.pnpm`
  const names = fs.existsSync(store) ? directoriesIn(store).filter(name => name !== 'node_modules') : []
  const roots = names.map(name => `.pnpm/${name}/node_modules`)
  return await installedIn(nodeModules, roots, place => /^\.pnpm\/[^/]+\/node_modules\/(?:@[^/]+\/)?[^/]+$/.test(place))
}

/**
 * Returns packages. `isOwn`: whether the package at this path has its own file. Failures `build_failed`,
 * `limit_exceeded`.
 */
async function installedIn(
  nodeModules: string,
  roots: readonly string[],
  isOwn: (place: string) => boolean,
): Promise<InstalledPackage[]> {
  const found: InstalledPackage[] = []
  const left = roots.map(root => ({ root, around: null as { place: string; bundles: boolean } | null }))
  for (let at = left.pop(); at !== undefined; at = left.pop()) {
    const { root, around } = at
    const base = root === '' ? nodeModules : `${nodeModules}/${root}`
    const names = directoriesIn(base).flatMap(name =>
      name.startsWith('@') ? directoriesIn(`${base}/${name}`).map(inner => `${name}/${inner}`) : [name],
    )
    for (const name of names.filter(name => !name.startsWith('.'))) {
      refuseUnless(found.length < placesMax, 'limit_exceeded', () => `node_modules: more than ${placesMax} packages`)
      const place = root === '' ? name : `${root}/${name}`
      const manifest = await manifestAt(`${nodeModules}/${place}`, place)
      const isBundled = around !== null && (around.bundles || !isOwn(place))
      // A directory in a package's file that is not a package.
      if (manifest === null && isBundled) continue
      const { name: called, version } = manifest ?? {}
      refuseUnless(
        isPackageName(called) && isVersion(version),
        'build_failed',
        () => `node_modules/${place}: its package.json lacks a name or version`,
      )
      const bundledIn = isBundled ? around.place : null
      const own = scriptsOf(manifest ?? {})
      const scripts = isBundled ? [] : installScripts.filter(script => own[script] !== undefined)
      found.push({ place, name: called, version, bundledIn, scripts })
      const inner = `${place}/node_modules`
      if (!isDirectory(`${nodeModules}/${inner}`)) continue
      const bundles = manifest?.bundleDependencies ?? manifest?.bundledDependencies ?? false
      const outer = bundledIn === null ? { place, bundles: hasBundle(bundles) } : { place: bundledIn, bundles: true }
      left.push({ root: inner, around: outer })
    }
  }
  return found.sort((a, b) => (a.place < b.place ? -1 : 1))
}

const hasBundle = (value: unknown) => value === true || (Array.isArray(value) && value.length > 0)

function directoriesIn(path: string): string[] {
  const entries = fs.readdirSync(path, { withFileTypes: true })
  return entries.filter(entry => entry.isDirectory()).map(({ name }) => name)
}

function isDirectory(path: string): boolean {
  return fs.lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

async function manifestAt(dir: string, place: string): Promise<Readonly<Record<string, unknown>> | null> {
  const path = `${dir}/package.json`
  if (fs.lstatSync(path, { throwIfNoEntry: false })?.isFile() !== true) return null
  return parsedRecord(await readBounded(path, `node_modules/${place}/package.json`))
}

type NpmRecord = Extract<LockedPackage, { kind: 'npm-package' }>

/**
 * Returns the packages of the evidence, sorted. `keyOf`: key of the lock for a package with its own file; `ran`:
 * paths whose install scripts ran. Failure `build_failed` if the lock and node_modules differ.
 */
export function recordsOf(
  lock: NpmLock,
  installed: readonly InstalledPackage[],
  keyOf: (pkg: InstalledPackage) => string,
  ran: ReadonlySet<string>,
): NpmRecord[] {
  const locked = new Map(lock.packages.map(pkg => [pkg.key, pkg]))
  const ownerOf = new Map<string, NpmPackage>()
  const scripted = new Set<string>()
  for (const pkg of installed) {
    if (pkg.bundledIn !== null) continue
    const owner = locked.get(keyOf(pkg))
    if (owner === undefined || owner.name !== pkg.name || !isSameVersion(owner.version, pkg.version))
      throw new BuildFailure(
        'build_failed',
        `node_modules/${pkg.place} is ${pkg.name} ${pkg.version}, and the lock has ${owner === undefined ? 'no such package' : `${owner.name} ${owner.version}`} there; lock again`,
      )
    ownerOf.set(pkg.place, owner)
    if (ran.has(pkg.place)) scripted.add(owner.key)
  }
  const present = new Set([...ownerOf.values()].map(({ key }) => key))
  const missing = lock.packages.find(({ key, isOptional }) => !isOptional && !present.has(key))
  if (missing !== undefined)
    throw new BuildFailure(
      'build_failed',
      `the install left out ${shown(missing.key)}, which the lock requires; delete the lock and node_modules, and lock again`,
    )
  const urlOf = (key: string) => urlOfPackage(locked.get(key) ?? null)
  const bundledIn = Map.groupBy(
    installed.filter(pkg => pkg.bundledIn !== null),
    pkg => ownerOf.get(pkg.bundledIn ?? '')?.key,
  )
  const own = lock.packages
    .filter(({ key }) => present.has(key))
    .map(({ key, name, version, sha512, dependsOn }): NpmRecord => {
      const needs = dependsOn.filter(other => present.has(other)).map(urlOf)
      const from = { kind: 'file', sha512, bundledIn: null } as const
      const bundled = (bundledIn.get(key) ?? []).map(pkg => packageUrl(bundledRecord(pkg, { name, version, sha512 })))
      const base = { kind: 'npm-package', name, version, origin: 'fetched', from } as const
      return { ...base, ranScripts: scripted.has(key), dependsOn: [...needs, ...bundled] }
    })
  const bundled = installed.flatMap(pkg => {
    const owner = pkg.bundledIn === null ? undefined : ownerOf.get(pkg.bundledIn)
    return owner === undefined ? [] : [bundledRecord(pkg, owner)]
  })
  return merged([...own, ...bundled])
}

export function urlOfPackage(pkg: Pick<NpmPackage, 'name' | 'version' | 'sha512'> | null): string {
  if (pkg === null) throw new Error('invariant broken: a key of the lock without its package')
  const from = { kind: 'file', sha512: pkg.sha512, bundledIn: null } as const
  return packageUrl({ kind: 'npm-package', name: pkg.name, version: pkg.version, from })
}

function bundledRecord(
  { name, version }: InstalledPackage,
  owner: Pick<NpmPackage, 'name' | 'version' | 'sha512'>,
): NpmRecord {
  const from = { kind: 'file', sha512: owner.sha512, bundledIn: `${owner.name}@${owner.version}` } as const
  return { kind: 'npm-package', name, version, origin: 'fetched', from, ranScripts: false, dependsOn: [] }
}

/** Returns one package for each package URL, sorted, with all dependencies. */
function merged(records: readonly NpmRecord[]): NpmRecord[] {
  const found = new Map<string, NpmRecord>()
  for (const record of records) {
    const url = packageUrl(record)
    const before = found.get(url)
    const ranScripts = record.ranScripts || before?.ranScripts === true
    const dependsOn = [...new Set([...(before?.dependsOn ?? []), ...record.dependsOn])].sort()
    found.set(url, { ...record, ranScripts, dependsOn })
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, record]) => record)
}

/** Compares versions without build metadata, which npm omits in some places. */
function isSameVersion(a: string, b: string): boolean {
  return a.replace(/\+.*$/, '') === b.replace(/\+.*$/, '')
}
