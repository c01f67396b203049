// Nix's command lines and environment, and what it answers (nix.dev/manual/nix/2.26). Pure.

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
  // One user owns the store and builds; in the sandbox a derivation sees only its inputs.
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

function nix(...argv: readonly string[]): string[] {
  return ['nix', ...Object.entries(OPTIONS).flatMap(([name, value]) => ['--option', name, value]), ...argv]
}

const locked = ['--no-update-lock-file', '--no-write-lock-file'] as const

export function nixBuildArgv(flake: string): string[] {
  return nix('build', '--no-link', '--json', '--offline', '--print-build-logs', ...locked, `path:${flake}`)
}

/** Every derivation behind these outputs. Before 2.9 the command had another name. */
export function nixShowArgv(drvPaths: readonly string[], name: 'new' | 'old'): string[] {
  return nix(
    '--offline',
    ...(name === 'new' ? ['derivation', 'show'] : ['show-derivation']),
    '--recursive',
    ...drvPaths,
  )
}

/** Puts the lock's inputs into the store, each with its narHash. */
export function nixFetchArgv(flake: string): string[] {
  return nix('flake', 'archive', ...locked, `path:${flake}`)
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

/** Null: not an answer of `nix build --json`. */
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

const storePathPattern = /^\/nix\/store\/[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+._?=-]+$/

export type Derivations = {
  readonly count: number
  readonly fetches: readonly Extract<LockedPackage, { kind: 'nix-fetch' }>[]
}

/** Null: not an answer of `nix show-derivation`. */
export function readDerivations(text: string): Derivations | null {
  const answer = jsonOf(text)
  if (!isRecord(answer)) return null
  const fetches: Extract<LockedPackage, { kind: 'nix-fetch' }>[] = []
  for (const [drvPath, derivation] of Object.entries(answer).sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (!isRecord(derivation) || !isRecord(derivation.outputs)) return null
    const env = isRecord(derivation.env) ? derivation.env : {}
    for (const output of Object.values(derivation.outputs)) {
      if (!isRecord(output) || typeof output.hash !== 'string') continue
      const hash = hashOf(output.hash, String(output.hashAlgo ?? ''))
      if (hash === null) continue
      const file = drvPath.slice(drvPath.lastIndexOf('/') + 1)
      const mode = String(output.hashAlgo ?? '').startsWith('r:') || output.method === 'nar' ? 'recursive' : 'flat'
      fetches.push({
        kind: 'nix-fetch',
        name: typeof env.name === 'string' ? env.name : file,
        drvPath: file,
        outputHashMode: mode,
        hash,
        url: typeof env.url === 'string' && env.url !== '' ? env.url : null,
      })
    }
  }
  return { count: Object.keys(answer).length, fetches }
}

function hashOf(text: string, algorithm: string): { algorithm: 'sha256' | 'sha512'; hex: string } | null {
  const name = algorithm.replace(/^r:/, '')
  const known = (['sha256', 'sha512'] as const).find(kind => kind === name || text.startsWith(`${kind}-`))
  if (known === undefined) return null
  const sizeBytes = known === 'sha256' ? 32 : 64
  const bytes = text.includes('-') ? fromBase64(text.slice(text.indexOf('-') + 1)) : fromHex(text)
  return bytes?.length === sizeBytes ? { algorithm: known, hex: toHex(bytes) } : null
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
