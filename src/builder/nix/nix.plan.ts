// Nix's command lines and environment, and its answers (nix.dev/manual/nix/2.26). Pure.

import type { LockedPackage } from '../../attest/provenance/record.ts'
import { fromBase64, fromHex, toHex } from '../../base/bytes.ts'
import { isRecord } from '../../base/json.ts'
import { places, plainEnvironment } from '../phase.ts'
import { gitEnvironment } from '../source/clone.plan.ts'

export const nixPlace = '/nix'
/** The same on every machine: derivations see it as NIX_BUILD_CORES. */
const cores = 4

const OPTIONS = {
  'extra-experimental-features': 'nix-command flakes',
  substitute: 'false',
  substituters: '',
  builders: '',
  sandbox: 'true',
  'sandbox-fallback': 'false',
  // Nix promises this shell to every derivation; Debian's Nix has none built in. Static, so it needs nothing else.
  'sandbox-paths': '/bin/sh=/usr/bin/busybox',
  // The same user owns the store and builds; in the sandbox a derivation has only its inputs.
  'build-users-group': '',
  // A flake's own settings would choose programs that run outside the sandbox (post-build-hook).
  'accept-flake-config': 'false',
  'use-registries': 'false',
  'flake-registry': '',
  'require-sigs': 'true',
  'max-jobs': '1',
  cores: String(cores),
  'warn-dirty': 'false',
} as const satisfies Record<string, string>

/** A program of Nix with the settings of every run; `other` replaces some of them. */
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

/** Fails if the lock does not match the flake. With --no-write-lock-file Nix would use another lock in memory. */
export const lockedArgv = ['--no-update-lock-file'] as const

/** `output`: null for the flake's default package. */
export function flakeReference(flake: string, output: string | null): string {
  return `path:${flake}${output === null ? '' : `#${output}`}`
}

export function nixBuildArgv(reference: string): string[] {
  return nix('build', '--no-link', '--json', '--offline', '--print-build-logs', ...lockedArgv, reference)
}

/** These derivations, and with `recursive` all behind them. Before 2.9 the command had another name. */
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

/** Compares each path of the store with the hash that Nix noted when it made or fetched the path. */
export function nixVerifyArgv(): string[] {
  return nix('--offline', 'store', 'verify', '--all', '--no-trust')
}

/** Every path in the store, with its hash. */
export function nixStoreListArgv(): string[] {
  return nix('--offline', 'path-info', '--all', '--json')
}

/** Removes these from the store. */
export function nixDeleteArgv(paths: readonly string[]): string[] {
  return nixProgram('nix-store', {}, ['--delete', ...paths])
}

/** Prints each hash in hexadecimal, one a line. All have the kind of the first. */
export function nixHashArgv(fetches: readonly NixFetch[]): string[] {
  const [first] = fetches
  const flat = first?.outputHashMode === 'flat' ? ['--flat'] : []
  const paths = fetches.flatMap(({ outPath }) => outPath ?? [])
  return nixProgram('nix-hash', {}, ['--type', first?.hash.algorithm ?? 'sha256', ...flat, ...paths])
}

/** Puts the lock's inputs into the store, each with its narHash. */
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

/** git fetches the inputs from git, by the rules of the build's own clone. */
export function nixFetchEnvironment(path: string, proxy: string): Record<string, string> {
  return { ...nixEnvironment(path), ...gitEnvironment(proxy), NIX_SSL_CERT_FILE: places.ca }
}

export type Built = { readonly drvPath: string; readonly outputs: readonly string[] }

/** Returns null if the text is not an answer of `nix build --json`. */
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

/** A fixed output, with the data to fetch it. */
export type NixFetch = Extract<LockedPackage, { kind: 'nix-fetch' }> & {
  readonly urls: readonly string[]
  /** Null if Nix does not report it. */
  readonly outPath: string | null
}

/** Name from the store path, because attributes of a derivation could contain another one. */
export function storeName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1).replace(/^[0-9a-z]{32}-/, '')
}

export type Derivations = {
  readonly drvPaths: ReadonlySet<string>
  readonly fetches: readonly NixFetch[]
}

/** The fixed outputs that are in the store: one that no build needed was never fetched. */
export function realisedFetches(
  { fetches }: Pick<Derivations, 'fetches'>,
  storePaths: ReadonlySet<string>,
): readonly NixFetch[] {
  return fetches.filter(({ outPath }) => outPath === null || storePaths.has(outPath))
}

/** Returns null if the text is not an answer of `nix show-derivation`. */
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

/** With `__structuredAttrs` the attributes are JSON in one of them. */
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
