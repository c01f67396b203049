// Packages of a registry in package-lock.json and pnpm-lock.yaml, each with its SHA-512. Pure.

import { fromBase64, toHex } from '../../base/bytes.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'

/** One package file of a lock. */
export type NpmPackage = {
  /** The place in node_modules of package-lock.json, or NAME@VERSION of pnpm-lock.yaml. */
  readonly key: string
  readonly name: string
  readonly version: string
  /** SHA-512 of the package's file, in hexadecimal. */
  readonly sha512: string
  /** Whether the package may be missing after an install. */
  readonly isOptional: boolean
  /** Whether its `os`, `cpu` and `libc` include the builder. */
  readonly isForBuilder: boolean
  /** Keys of its dependencies, including those that were not installed. */
  readonly dependsOn: readonly string[]
}

export type NpmLock = {
  readonly packages: readonly NpmPackage[]
  /** Keys of the project's own dependencies. */
  readonly direct: readonly string[]
  /** The lock that the install reads: as parsed here, without settings of the project. */
  readonly installLock: object
  /** `pnpm.overrides` of the manifest that the install reads. */
  readonly overrides: unknown
}

export const packagesMax = 50_000

const namePattern = /^(?:@[A-Za-z0-9_~-][A-Za-z0-9._~-]*\/)?[A-Za-z0-9_~-][A-Za-z0-9._~-]*$/
const versionPattern = /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/
const charsMax = 214

export const isPackageName = (text: unknown): text is string =>
  typeof text === 'string' && text.length <= charsMax && namePattern.test(text)

export const isVersion = (text: unknown): text is string =>
  typeof text === 'string' && text.length <= charsMax && versionPattern.test(text)

/** Returns the path of a package's file in every npm registry, below the registry's address. */
export function tarballPath({ name, version }: Pick<NpmPackage, 'name' | 'version'>): string {
  return `${name}/-/${name.slice(name.indexOf('/') + 1)}-${version.replace(/\+.*$/, '')}.tgz`
}

/**
 * Returns the only SHA-512 in an integrity value, in hexadecimal. Failure `source_invalid`, which names the package.
 */
export function sha512Of(lock: string, key: string, integrity: unknown): string {
  const remedy = 'delete the lock and node_modules, and lock again with a current registry'
  refuseUnless(
    typeof integrity === 'string' && integrity !== '',
    'source_invalid',
    () => `${lock}: ${shown(key)} has no integrity, so its file cannot be checked; ${remedy}`,
  )
  const hashes = integrity.split(/\s+/).map(hash => /^sha512-([A-Za-z0-9+/]{86}==)(?:\?\S*)?$/.exec(hash)?.[1])
  const found = [...new Set(hashes.filter(hash => hash !== undefined))]
  const bytes = found.length === 1 ? fromBase64(found[0] ?? '') : null
  refuseUnless(
    bytes !== null,
    'source_invalid',
    () => `${lock}: the integrity of ${shown(key)} is ${shown(integrity)}, but must be one sha512 hash; ${remedy}`,
  )
  return toHex(bytes)
}

export function integrityOf({ sha512 }: Pick<NpmPackage, 'sha512'>): string {
  return `sha512-${Buffer.from(sha512, 'hex').toString('base64')}`
}

/** Reports whether `os`, `cpu` and `libc` of a package include the builder, like npm (docs.npmjs.com, package.json). */
export function isForBuilder(limits: { readonly os?: unknown; readonly cpu?: unknown; readonly libc?: unknown }) {
  return allows(limits.os, 'linux') && allows(limits.cpu, 'x64') && allows(limits.libc, 'glibc')
}

function allows(list: unknown, value: string): boolean {
  const words = (Array.isArray(list) ? list : [list]).filter(word => typeof word === 'string' && word !== 'any')
  if (words.includes(`!${value}`)) return false
  const wanted = words.filter(word => !word.startsWith('!'))
  return wanted.length === 0 || wanted.includes(value)
}

/** Reports whether this is a registry's address of the package's file. */
export function isRegistryAddress(address: string, pkg: Pick<NpmPackage, 'name' | 'version'>): boolean {
  if (!URL.canParse(address)) return false
  const { protocol, pathname } = new URL(address)
  const path = decodeURIComponent(pathname.replaceAll(/%(?!2[fFbB]|40)/g, '%25'))
  // Some locks keep the build metadata of a version in the file's name.
  const whole = tarballPath(pkg).replace(/-[^/]*\.tgz$/, `-${pkg.version}.tgz`)
  return /^https?:$/.test(protocol) && [tarballPath(pkg), whole].some(wanted => path.endsWith(`/${wanted}`))
}

export function invalidLock(lock: string, problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `${lock}: ${problem}`)
}

export function shown(text: string): string {
  return JSON.stringify(text.slice(0, 200))
}

/** Returns those members that exist. */
export function pick(fields: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.flatMap(name => (fields[name] === undefined ? [] : [[name, fields[name]]])))
}
