// Cargo's command lines, environment and messages (doc.rust-lang.org/cargo/reference/external-tools.html). Pure.

import { isRecord } from '../../base/json.ts'
import { places, plainEnvironment } from '../phase.ts'
import { gitEnvironment } from '../source/clone.plan.ts'

/** The same on every machine: build scripts see it as NUM_JOBS. */
const jobs = 4
const target = 'x86_64-unknown-linux-gnu'

/** Cargo offline. */
export function cargoEnvironment(path: string): Record<string, string> {
  return {
    ...plainEnvironment,
    PATH: path,
    CARGO_HOME: places.cargo,
    CARGO_TARGET_DIR: places.target,
    CARGO_INCREMENTAL: '0',
    CARGO_TERM_COLOR: 'never',
    CARGO_NET_OFFLINE: 'true',
  }
}

export function cargoFetchEnvironment(path: string, proxy: string): Record<string, string> {
  return {
    ...cargoEnvironment(path),
    CARGO_NET_OFFLINE: 'false',
    CARGO_NET_RETRY: '2',
    CARGO_HTTP_PROXY: proxy,
    CARGO_HTTP_CAINFO: places.ca,
    CARGO_HTTP_TIMEOUT: '60',
    // Only git follows the rules of the build's own clone: cargo's own git reads other settings.
    CARGO_NET_GIT_FETCH_WITH_CLI: 'true',
    ...gitEnvironment(proxy),
  }
}

/** A mirror of the lock's registry; its crates still need the lock's checksums. */
function mirrorConfig(mirror: string | null): string[] {
  if (mirror === null) return []
  return [
    'source.crates-io.replace-with="strongroom-mirror"',
    `source.strongroom-mirror.registry=${JSON.stringify(mirror)}`,
  ].flatMap(text => ['--config', text])
}

export function isMirror(url: string): boolean {
  return /^sparse\+https:\/\/[A-Za-z0-9._~:/?&=%-]+\/$/.test(url)
}

/**
 * Fetches the crates of the lock and runs nothing of the source: cargo reads its settings from the working directory,
 * which is not the source's, so a credential program or proxy in them has no effect.
 */
export function cargoFetchArgv(manifestPath: string, mirror: string | null): string[] {
  return ['cargo', 'fetch', '--locked', '--target', target, '--manifest-path', manifestPath, ...mirrorConfig(mirror)]
}

/** Checks whether all crates of the lock are present: vendored, by the source's own settings. */
export function cargoCheckArgv(): string[] {
  return ['cargo', 'fetch', '--locked', '--offline', '--target', target]
}

export function cargoBuildArgv(mirror: string | null): string[] {
  const remaps = [`--remap-path-prefix=${places.source}=source`, `--remap-path-prefix=${places.cargo}=cargo`]
  return [
    ...['cargo', 'build', '--release', '--locked', '--offline', '--frozen', '--jobs', String(jobs)],
    ...['--message-format', 'json-render-diagnostics'],
    // Not RUSTFLAGS, which would override the source's own settings.
    ...['--config', `build.rustflags=${JSON.stringify(remaps)}`, ...mirrorConfig(mirror)],
  ]
}

/** A line of cargo's standard output, reduced to the fields used here. */
type CargoMessage =
  | {
      readonly kind: 'artifact'
      readonly packageId: string
      readonly name: string
      readonly fresh: boolean
      readonly files: readonly string[]
    }
  | { readonly kind: 'other' }

/** Libraries usable without Rust. An rlib is not: its name holds a hash, and only the same compiler reads it. */
const LIBRARY_KINDS: ReadonlySet<unknown> = new Set(['cdylib', 'staticlib'])

/** A build script can write to the same stream: a message only names files, whose content is checked later. */
export function readCargoMessage(line: string): CargoMessage {
  let message: unknown
  try {
    message = JSON.parse(line)
  } catch {
    return { kind: 'other' }
  }
  if (!isRecord(message) || message.reason !== 'compiler-artifact' || !isRecord(message.target))
    return { kind: 'other' }
  const packageId = typeof message.package_id === 'string' ? message.package_id : ''
  const kinds: readonly unknown[] = Array.isArray(message.target.kind) ? message.target.kind : []
  const names: readonly unknown[] = Array.isArray(message.filenames) ? message.filenames : []
  // A build script comes before its package.
  if (kinds.includes('custom-build')) return { kind: 'other' }
  const files: unknown[] = []
  // Packages of the source alone; a registry package's own output is no result.
  if (packageId.includes(`path+file://${places.source}`)) {
    if (kinds.includes('bin')) files.push(message.executable)
    if (kinds.some(kind => LIBRARY_KINDS.has(kind)))
      files.push(...names.filter(name => typeof name === 'string' && /\.(?:so|a)$/.test(name)))
  }
  return {
    kind: 'artifact',
    packageId,
    name: typeof message.target.name === 'string' ? message.target.name : '',
    fresh: message.fresh === true,
    files: files.filter(file => typeof file === 'string'),
  }
}

/** `name version` of a package id, in each of its spellings (cargo-pkgid(1)). */
export function packageOf(packageId: string): string {
  const [, url = '', fragment = ''] = /^(?:[a-z]+\+)?([^#]*)#(.*)$/.exec(packageId) ?? []
  if (fragment === '') return packageId.split(' ').slice(0, 2).join(' ')
  const [name, version] = fragment.includes('@')
    ? fragment.split('@')
    : [url.split('/').at(-1)?.split('?')[0], fragment]
  return `${name} ${version}`
}
