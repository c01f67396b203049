// Cargo's command lines, environment and messages (doc.rust-lang.org/cargo/reference/external-tools.html). Pure.

import { isRecord } from '../../base/json.ts'
import type { CargoOptions } from '../../contract/http/build-options.ts'
import { places, plainEnvironment } from '../phase.ts'
import { gitEnvironment } from '../source/clone.plan.ts'

/** Constant on every machine, because build scripts see it as NUM_JOBS. */
const jobs = 4
/** The builder's own target. */
export const ownTarget = 'x86_64-unknown-linux-gnu'

/** Returns the environment for running cargo offline. */
export function cargoEnvironment(path: string): Record<string, string> {
  return {
    ...plainEnvironment,
    PATH: path,
    CARGO_HOME: places.cargo,
    CARGO_TARGET_DIR: places.target,
    // Otherwise cargo could use files of an earlier build in the source.
    CARGO_BUILD_BUILD_DIR: places.target,
    CARGO_INCREMENTAL: '0',
    CARGO_TERM_COLOR: 'never',
    CARGO_NET_OFFLINE: 'true',
  }
}

/** `hasSettings`: whether the source contains cargo settings. */
type SourceSettings = { readonly hasSettings: boolean }

/**
 * Returns the environment for building offline with the compiler in the statement: the source's settings cannot choose
 * another compiler or a wrapper. Only settings could set a wrapper, and with an empty one cargo restarts rustc
 * repeatedly to query it, so it is set only if there are settings.
 */
export function cargoBuildEnvironment(path: string, { hasSettings }: SourceSettings): Record<string, string> {
  const env = cargoEnvironment(`${places.programs}:${path}`)
  return { ...env, RUSTC: 'rustc', ...(hasSettings ? { RUSTC_WRAPPER: '', RUSTC_WORKSPACE_WRAPPER: '' } : {}) }
}

/** Returns the environment for running cargo offline without any program chosen by the source. */
export function cargoResolveEnvironment(path: string, settings: SourceSettings): Record<string, string> {
  return { ...cargoBuildEnvironment(path, settings), PATH: path, CARGO_ENCODED_RUSTFLAGS: '' }
}

/** Returns settings that override the source's `[env]`, with which it could load code into the compiler. */
export function cargoResolveConfig(path: string): string {
  const values = { PATH: path, LD_PRELOAD: '', LD_AUDIT: '', LD_LIBRARY_PATH: '' }
  const lines = Object.entries(values).map(
    ([name, value]) => `${name} = { value = ${JSON.stringify(value)}, force = true }`,
  )
  return `[env]\n${lines.join('\n')}\n`
}

export function cargoFetchEnvironment(path: string, proxy: string): Record<string, string> {
  return {
    ...cargoEnvironment(path),
    CARGO_NET_OFFLINE: 'false',
    CARGO_NET_RETRY: '2',
    CARGO_HTTP_PROXY: proxy,
    CARGO_HTTP_CAINFO: places.ca,
    CARGO_HTTP_TIMEOUT: '60',
    // Use the git program, with the settings of the build's own clone; cargo's built-in git reads other settings.
    CARGO_NET_GIT_FETCH_WITH_CLI: 'true',
    ...gitEnvironment(proxy),
  }
}

/** Returns settings for a mirror of the lock's registry. Its crates must still match the lock's checksums. */
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
 * Fetches the crates of the lock without running anything from the source. cargo reads its settings from the working
 * directory, which is outside of the source, so a credential program or proxy in them has no effect.
 */
export function cargoFetchArgv(manifestPath: string, { mirror, lock, options }: CargoRun): string[] {
  // Build scripts are compiled for the builder itself, regardless of the target.
  const targets = [...new Set([ownTarget, options?.target ?? ownTarget])].flatMap(name => ['--target', name])
  return [
    ...['cargo', 'fetch', '--locked', ...targets, '--manifest-path', manifestPath],
    ...mirrorConfig(mirror),
    ...lock,
  ]
}

/** Fetches one file of a Rust distribution mirror, without curl settings and without redirects. */
export function rustDownloadArgv(uri: string, { proxy, bytesMax }: { proxy: string; bytesMax: number }): string[] {
  return [
    ...['curl', '--disable', '--silent', '--show-error', '--fail', '--proto', '=https', '--retry', '2'],
    ...['--proxy', proxy, '--cacert', places.ca, '--max-filesize', String(bytesMax)],
    ...['--output', `${places.home}/${rustDownloadName}`, '--url', uri],
  ]
}

export const rustDownloadName = 'file'

/** Unpacks one component, which is below `PACKAGE/COMPONENT/` of its archive. */
export function rustUnpackArgv(): string[] {
  return [
    ...['tar', '--extract', '--xz', '--strip-components=2', '--no-same-owner', '--no-same-permissions'],
    ...['--file', places.archive, '--directory', places.rust],
  ]
}

/** Prints the path of the workspace's manifest, from any member as working directory. Runs no program. */
export function cargoRootArgv(): string[] {
  return ['cargo', 'locate-project', '--workspace', '--message-format', 'plain']
}

/** Resolves the lock's packages for the target. Fails if a package is neither in the source nor fetched. */
export function cargoMetadataArgv({ mirror, lock, options }: CargoRun): string[] {
  return [
    ...['cargo', 'metadata', '--format-version', '1', '--locked', '--offline'],
    ...['--filter-platform', options?.target ?? ownTarget, ...featureWords(options)],
    ...['--config', places.resolveConfig, ...mirrorConfig(mirror), ...lock],
  ]
}

/**
 * Returns the features, each with its package: cargo metadata cannot select packages, and with the first resolver cargo
 * build applies a bare feature to the package of the working directory.
 */
function featureWords(options: CargoOptions | null): string[] {
  const {
    package: pkg,
    features,
    noDefaultFeatures,
  } = options ?? { package: null, features: [], noDefaultFeatures: false }
  const named = features.map(feature => (pkg === null || feature.includes('/') ? feature : `${pkg}/${feature}`))
  return [
    ...(named.length === 0 ? [] : ['--features', named.join(',')]),
    ...(noDefaultFeatures ? ['--no-default-features'] : []),
  ]
}

/** Returns options of `cargo build` with which the request selects targets. */
function selectionWords(options: CargoOptions | null): string[] {
  if (options === null) return ['--release']
  const { package: pkg, bin, profile, target } = options
  return [
    ...(profile === null ? ['--release'] : ['--profile', profile]),
    ...(pkg === null ? [] : ['--package', pkg]),
    ...(bin === null ? [] : ['--bin', bin]),
    ...featureWords(options),
    ...(target === null ? [] : ['--target', target]),
  ]
}

/** Prints the directory of the standard library for each target of the compiler. */
export function cargoTargetsArgv(): string[] {
  return ['/bin/sh', '-c', 'ls -d "$(rustc --print sysroot)"/lib/rustlib/*/lib']
}

type CargoRun = {
  /** Replaces crates.io; null for crates.io itself. */
  readonly mirror: string | null
  /** Result of lockOption. */
  readonly lock: readonly string[]
  /** Options of the request. */
  readonly options: CargoOptions | null
}

/** The first cargo that supports `resolver.lockfile-path` (doc.rust-lang.org/cargo/reference/unstable.html). */
const lockfilePathMinor = 97

/** Sets the recorded lock for every cargo that could otherwise use another one because of the source's settings. */
export function lockOption(cargoVersion: string, lockPath: string): string[] {
  return readsLockfilePath(cargoVersion)
    ? ['--config', `resolver.lockfile-path=${JSON.stringify(`${places.source}/${lockPath}`)}`]
    : []
}

export function readsLockfilePath(cargoVersion: string): boolean {
  const [, major = '', minor = ''] = /^cargo (\d+)\.(\d+)\./.exec(cargoVersion) ?? []
  return Number(major) > 1 || Number(minor) >= lockfilePathMinor
}

export function cargoBuildArgv({ mirror, lock, options }: CargoRun): string[] {
  const remaps = [`--remap-path-prefix=${places.source}=source`, `--remap-path-prefix=${places.cargo}=cargo`]
  return [
    ...['cargo', 'build', ...selectionWords(options), '--locked', '--offline', '--frozen', '--jobs', String(jobs)],
    ...['--message-format', 'json-render-diagnostics'],
    // Not RUSTFLAGS, which would override the source's own settings.
    ...['--config', `build.rustflags=${JSON.stringify(remaps)}`],
    ...['--config', places.resolveConfig, ...mirrorConfig(mirror), ...lock],
  ]
}

/** A line of cargo's standard output, limited to the fields used here. */
type CargoMessage =
  | {
      readonly kind: 'artifact'
      readonly packageId: string
      readonly manifestPath: string
      /** Kind and name of the target within its package. */
      readonly target: string
      readonly files: readonly string[]
      /** Whether cargo reused the files of an earlier build instead of compiling the package. */
      readonly isFresh: boolean
    }
  | { readonly kind: 'other' }

/** Libraries usable without Rust. An rlib is not: its name contains a hash, and only the same compiler can read it. */
const LIBRARY_KINDS: ReadonlySet<unknown> = new Set(['cdylib', 'staticlib'])

/**
 * Parses a message. A build script can write to the same stream, but a message only names files, whose content is
 * checked later.
 */
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
  // A package's build script is not an artifact.
  if (kinds.includes('custom-build')) return { kind: 'other' }
  const files: unknown[] = []
  // Only packages of the source: output of a registry package is not a result.
  if (packageId.includes(`path+file://${places.source}`)) {
    if (kinds.includes('bin')) files.push(message.executable)
    if (kinds.some(kind => LIBRARY_KINDS.has(kind)))
      files.push(...names.filter(name => typeof name === 'string' && /\.(?:so|a)$/.test(name)))
  }
  return {
    kind: 'artifact',
    packageId,
    target: `${kinds.join('+')} ${String(message.target.name)}`,
    isFresh: message.fresh === true,
    manifestPath: typeof message.manifest_path === 'string' ? message.manifest_path : '',
    files: files.filter(file => typeof file === 'string'),
  }
}

/** Returns `name version` of a package id, in any of its forms (cargo-pkgid(1)). */
export function packageOf(packageId: string): string {
  const [, url = '', fragment = ''] = /^(?:[a-z]+\+)?([^#]*)#(.*)$/.exec(packageId) ?? []
  if (fragment === '') return packageId.split(' ').slice(0, 2).join(' ')
  const [name, version] = fragment.includes('@')
    ? fragment.split('@')
    : [url.split('/').at(-1)?.split('?')[0], fragment]
  return `${name} ${version}`
}
