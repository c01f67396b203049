// Packages of npm as a registry serves them, and locks of both forms, written here and not by the
// code under test. Pure.

import { createHash } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import { tarOf } from '../../../scripts/rigs/archive-bytes.ts'
import type { SourceFiles } from '../../../scripts/rigs/build/sources.ts'

export type NpmFiles = {
  readonly name: string
  readonly version: string
  /** The package's file, a tar.gz. */
  readonly bytes: Uint8Array
}

/** `manifest`: members of package.json beside name and version. */
export function npmPackage(
  name: string,
  version: string,
  files: SourceFiles = {},
  manifest: Readonly<Record<string, unknown>> = {},
): NpmFiles {
  const entries = { 'package.json': JSON.stringify({ name, version, ...manifest }), ...files }
  const tar = tarOf(Object.entries(entries).map(([path, content]) => ({ name: `package/${path}`, content })))
  return { name, version, bytes: gzipSync(tar) }
}

/** Puts a package where a registry below `/npm` of its host has it. */
export function servePackage(into: Map<string, Uint8Array>, { name, version, bytes }: NpmFiles): void {
  into.set(`/npm/${name}/-/${name.replace(/^.*\//, '')}-${version}.tgz`, bytes)
}

export const integrity = ({ bytes }: NpmFiles) => `sha512-${createHash('sha512').update(bytes).digest('base64')}`
export const hexSha512 = ({ bytes }: NpmFiles) => createHash('sha512').update(bytes).digest('hex')
export const sha1Integrity = ({ bytes }: NpmFiles) => `sha1-${createHash('sha1').update(bytes).digest('base64')}`

/** An entry of package-lock.json. */
export function lockEntry(pkg: NpmFiles, more: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  const file = `${pkg.name.replace(/^.*\//, '')}-${pkg.version}.tgz`
  const resolved = `https://registry.example/${pkg.name}/-/${file}`
  return { version: pkg.version, resolved, integrity: integrity(pkg), ...more }
}

/**
 * A package.json and its package-lock.json. `packages`: entries by their places below node_modules.
 */
export function npmProject(
  manifest: Readonly<Record<string, unknown>>,
  packages: Readonly<Record<string, unknown>>,
  { lockfileVersion = 3 as unknown, root = manifest, prefix = 'node_modules/' } = {},
): SourceFiles {
  const { scripts: _, overrides: __, ...locked } = root
  const entries = Object.entries(packages).map(([place, entry]) => [`${prefix}${place}`, entry])
  const lock = {
    name: 'tool',
    lockfileVersion,
    requires: true,
    packages: { '': locked, ...Object.fromEntries(entries) },
  }
  return { 'package.json': JSON.stringify(manifest), 'package-lock.json': JSON.stringify(lock) }
}

/**
 * A package.json and its pnpm-lock.yaml, as pnpm writes it. `packages` and `snapshots`: text below
 * these names.
 */
export function pnpmProject(
  manifest: Readonly<Record<string, unknown>>,
  lock: {
    readonly importers?: string
    readonly packages?: string
    readonly snapshots?: string
    readonly more?: string
  },
): SourceFiles {
  const parts = [
    "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\n",
    lock.more ?? '',
    `importers:\n\n  .:${lock.importers ?? ' {}\n'}`,
    lock.packages === undefined ? '' : `packages:\n\n${lock.packages}`,
    lock.snapshots === undefined ? '' : `snapshots:\n\n${lock.snapshots}`,
  ]
  return { 'package.json': JSON.stringify(manifest), 'pnpm-lock.yaml': parts.filter(part => part !== '').join('\n') }
}
