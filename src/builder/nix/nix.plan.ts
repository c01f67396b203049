// Nix's command lines, environment and output (nix.dev/manual/nix/2.26). Pure.

import type { LockedPackage } from '../../attest/provenance/record.ts'
import { fromBase64, fromHex, toHex } from '../../base/bytes.ts'
import { isRecord } from '../../base/json.ts'
import { places, plainEnvironment } from '../phase.ts'
import { gitEnvironment } from '../source/clone.plan.ts'

export const nixPlace = '/nix'
/** Constant on every machine, because derivations see it as NIX_BUILD_CORES. */
const cores = 4

const OPTIONS = {
  'extra-experimental-features': 'nix-command flakes',
  substitute: 'false',
  substituters: '',
  builders: '',
  sandbox: 'true',
  'sandbox-fallback': 'false',
  // Nix guarantees this shell to every derivation, but Debian's Nix has none built in. It is static, so it needs
  // nothing else.
  'sandbox-paths': '/bin/sh=/usr/bin/busybox',
  // The same user owns the store and builds; in the sandbox a derivation only has its inputs.
  'build-users-group': '',
  // A flake's own settings could choose programs that run outside of the sandbox (post-build-hook).
  'accept-flake-config': 'false',
  'use-registries': 'false',
  'flake-registry': '',
  'require-sigs': 'true',
  'max-jobs': '1',
  cores: String(cores),
  'warn-dirty': 'false',
} as const satisfies Record<string, string>

/** Returns a program of Nix with the settings of every run; `other` overrides some of them. */
export function nixProgram(
  program: 'nix' | 'nix-store' | 'nix-prefetch-url' | 'nix-hash',
  other: Readonly<Record<string, string>>,
  argv: readonly string[],
): string[] {
  const options = Object.entries({ ...OPTIONS, ...other }).flatMap(([name, value]) => ['--option', name, value])
  return [program, ...options, ...argv]
}

function nix(...argv: readonly string[]): string[] {
  return nixProgram('nix', {}, argv)
}

/** Fails if the lock does not match the flake. With --no-write-lock-file, Nix would use another lock in memory. */
export const lockedArgv = ['--no-update-lock-file'] as const

/** Returns the reference. `output` is null for the flake's default package. */
export function flakeReference(flake: string, output: string | null): string {
  return `path:${flake}${output === null ? '' : `#${output}`}`
}

export function nixBuildArgv(reference: string): string[] {
  return nix('build', '--no-link', '--json', '--offline', '--print-build-logs', ...lockedArgv, reference)
}

/** Shows these derivations, and with `recursive` all their inputs. Before 2.9 the command had another name. */
export function nixShowArgv(
  drvPaths: readonly string[],
  { name, recursive }: { readonly name: 'new' | 'old'; readonly recursive: boolean },
): string[] {
  return nix(
    '--offline',
    ...(name === 'new' ? ['derivation', 'show'] : ['show-derivation']),
    ...(recursive ? ['--recursive'] : []),
    ...drvPaths,
  )
}

/** Compares each path of the store with the hash that Nix recorded when it made or fetched the path. */
export function nixVerifyArgv(): string[] {
  return nix('--offline', 'store', 'verify', '--all', '--no-trust')
}

/** Lists every path in the store with its hash. */
export function nixStoreListArgv(): string[] {
  return nix('--offline', 'path-info', '--all', '--json')
}

/** Removes these paths from the store. */
export function nixDeleteArgv(paths: readonly string[]): string[] {
  return nixProgram('nix-store', {}, ['--delete', ...paths])
}

/** Prints each hash in hexadecimal, one per line. All have the kind of the first. */
export function nixHashArgv(fetches: readonly NixFetch[]): string[] {
  const [first] = fetches
  const flat = first?.outputHashMode === 'flat' ? ['--flat'] : []
  const paths = fetches.flatMap(({ outPath }) => outPath ?? [])
  return nixProgram('nix-hash', {}, ['--type', first?.hash.algorithm ?? 'sha256', ...flat, ...paths])
}

/** Adds the lock's inputs to the store, each with its narHash. */
export function nixFetchArgv(flake: string): string[] {
  return nixProgram('nix', { 'max-jobs': '0' }, ['flake', 'archive', ...lockedArgv, `path:${flake}`])
}

export function nixEnvironment(path: string): Record<string, string> {
  return {
    ...plainEnvironment,
    PATH: path,
    NIX_CONF_DIR: '/build/home',
    NIX_USER_CONF_FILES: '',
    NIX_REMOTE: 'local',
    NIX_PATH: '',
  }
}

/** Returns the environment. The git program fetches git inputs, with the settings of the build's own clone. */
export function nixFetchEnvironment(path: string, proxy: string): Record<string, string> {
  return { ...nixEnvironment(path), ...gitEnvironment(proxy), NIX_SSL_CERT_FILE: places.ca }
}

export type Built = { readonly drvPath: string; readonly outputs: readonly string[] }

/** Parses the output of `nix build --json`; null if it is malformed. */
export function readBuilt(text: string): readonly Built[] | null {
  const answer = jsonOf(text)
  if (!Array.isArray(answer)) return null
  const built: Built[] = []
  for (const derivation of answer) {
    if (!isRecord(derivation) || typeof derivation.drvPath !== 'string' || !isRecord(derivation.outputs)) return null
    const outputs = Object.values(derivation.outputs)
    if (!outputs.every(path => typeof path === 'string' && storePathPattern.test(path))) return null
    if (!storePathPattern.test(derivation.drvPath)) return null
    built.push({ drvPath: derivation.drvPath, outputs: outputs.filter(path => typeof path === 'string') })
  }
  return built
}

export const storePathPattern = /^\/nix\/store\/[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+._?=-]+$/

/** A fixed output, with the data for fetching it. */
export type NixFetch = Extract<LockedPackage, { kind: 'nix-fetch' }> & {
  readonly urls: readonly string[]
  /** Null if Nix does not report it. */
  readonly outPath: string | null
}

/** Returns the name in a store path, because a derivation's attributes could contain another one. */
export function storeName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1).replace(/^[0-9a-z]{32}-/, '')
}

export type Derivations = {
  readonly drvPaths: ReadonlySet<string>
  readonly fetches: readonly NixFetch[]
}

/** Returns the fixed outputs in the store: those that no build needed were never fetched. */
export function realisedFetches(
  { fetches }: Pick<Derivations, 'fetches'>,
  storePaths: ReadonlySet<string>,
): readonly NixFetch[] {
  return fetches.filter(({ outPath }) => outPath === null || storePaths.has(outPath))
}

/** Parses the output of `nix show-derivation`; null if it is malformed. */
export function readDerivations(text: string): Derivations | null {
  const answer = jsonOf(text)
  if (!isRecord(answer)) return null
  const fetches: NixFetch[] = []
  for (const [drvPath, derivation] of Object.entries(answer).sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (!isRecord(derivation) || !isRecord(derivation.outputs)) return null
    const env = attributesOf(derivation.env)
    for (const output of Object.values(derivation.outputs)) {
      if (!isRecord(output) || typeof output.hash !== 'string') continue
      const hash = hashOf(output.hash, String(output.hashAlgo ?? ''))
      if (hash === null) continue
      const file = drvPath.slice(drvPath.lastIndexOf('/') + 1)
      const mode = String(output.hashAlgo ?? '').startsWith('r:') || output.method === 'nar' ? 'recursive' : 'flat'
      fetches.push({
        kind: 'nix-fetch',
        name: typeof output.path === 'string' ? storeName(output.path) : typeof env.name === 'string' ? env.name : file,
        drvPath: file,
        outputHashMode: mode,
        hash,
        url: typeof env.url === 'string' && env.url !== '' ? env.url : null,
        urls: urlsOf(env.url, env.urls),
        outPath: typeof output.path === 'string' ? output.path : null,
      })
    }
  }
  return { drvPaths: new Set(Object.keys(answer)), fetches }
}

/** Returns the attributes. With `__structuredAttrs` they are JSON in one of them. */
function attributesOf(env: unknown): Record<string, unknown> {
  const plain = isRecord(env) ? env : {}
  const structured = typeof plain.__json === 'string' ? jsonOf(plain.__json) : null
  return { ...plain, ...(isRecord(structured) ? structured : {}) }
}

function urlsOf(...values: readonly unknown[]): string[] {
  const words = values.flat().flatMap(value => (typeof value === 'string' ? value.split(/\s+/) : []))
  return [...new Set(words.filter(word => word !== ''))]
}

function hashOf(text: string, algorithm: string): { algorithm: 'sha256' | 'sha512'; hex: string } | null {
  const name = algorithm.replace(/^r:/, '')
  const known = (['sha256', 'sha512'] as const).find(kind => kind === name || text.startsWith(`${kind}-`))
  if (known === undefined) return null
  const sizeBytes = known === 'sha256' ? 32 : 64
  const bytes = text.includes('-') ? fromBase64(text.slice(text.indexOf('-') + 1)) : fromHex(text)
  return bytes?.length === sizeBytes ? { algorithm: known, hex: toHex(bytes) } : null
}

export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
