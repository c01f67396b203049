// The channel manifest of Rust's distribution (forge.rust-lang.org/infra/channel-layout.html). Pure.

import { parse } from 'smol-toml'
import { messageOf } from '../../base/fault.ts'
import { isRecord } from '../../base/json.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { ownTarget } from './cargo.plan.ts'

/** Matches an address of a manifest. A mirror replaces its host, as for rustup. */
const addressPattern = /^https:\/\/[^/]+\/(dist\/[A-Za-z0-9._/-]{1,300})$/

/** A component that the manifest names: a tar.xz file and its SHA-256. */
export type ChannelComponent = { readonly name: string; readonly uri: string; readonly sha256: string }

/** Components and targets that a toolchain file names beside the compiler and cargo. */
export type ChannelNeeds = {
  readonly components: readonly string[]
  readonly targets: readonly string[]
}

/** Components that builds do not use. */
const USELESS: ReadonlySet<string> = new Set(['clippy', 'miri', 'rls', 'rust-analyzer', 'rust-docs', 'rustfmt'])
const BASE = ['rustc', 'cargo', 'rust-std'] as const

const isUseless = (name: string) => USELESS.has(name.replace(/-preview$/, ''))

/** Returns components of the toolchain file that are not fetched. */
export function uselessOf({ components }: ChannelNeeds): string[] {
  return components.filter(isUseless)
}

/** Returns the version `X.Y.Z` that a channel names exactly, or null. */
export function exactVersion(channel: string): string | null {
  return /^(\d+\.\d+\.\d+)(?:-x86_64-unknown-linux-gnu)?$/.exec(channel)?.[1] ?? null
}

/** Returns the address of a version's manifest on a mirror. */
export function manifestUri(mirror: string, version: string): string {
  return `${mirror}/dist/channel-rust-${version}.toml`
}

/** Reads the digest file beside a manifest, `HEX  NAME`. Failure `checksum_mismatch` for any other text. */
export function readDigestFile(text: string, uri: string): string {
  const [, hex] = /^([0-9a-f]{64})(?:\s|$)/.exec(text) ?? []
  refuseUnless(hex !== undefined, 'checksum_mismatch', () => `rust_mirror: ${uri}: not a SHA-256 in hexadecimal`)
  return hex
}

/**
 * Returns the components to fetch, each once. Failures: `checksum_mismatch` for a manifest of another form or version;
 * `source_invalid` for a component or target that the channel lacks.
 */
export function componentsOf(
  text: string,
  { mirror, version, needs, target }: { mirror: string; version: string; needs: ChannelNeeds; target: string | null },
): ChannelComponent[] {
  const wrong = (problem: string) =>
    new BuildFailure('checksum_mismatch', `rust_mirror: ${manifestUri(mirror, version)}: ${problem}`)
  let manifest: Record<string, unknown>
  try {
    manifest = parse(text)
  } catch (error) {
    throw wrong(messageOf(error).split('\n')[0] ?? '')
  }
  const { pkg, renames } = manifest
  if (manifest['manifest-version'] !== '2' || !isRecord(pkg)) throw wrong('not a channel manifest of version 2')
  const compiler = isRecord(pkg.rustc) ? pkg.rustc.version : null
  if (typeof compiler !== 'string' || !compiler.startsWith(`${version} `))
    throw wrong(`its rustc is ${JSON.stringify(compiler)}, not ${version}`)
  const entryOf = (name: string, target: string): ChannelComponent | null => {
    const renamed = isRecord(renames) ? renames[name] : null
    const known = isRecord(renamed) && typeof renamed.to === 'string' ? renamed.to : name
    const all = isRecord(pkg[known]) ? pkg[known].target : null
    const found = isRecord(all) ? (all[target] ?? all['*']) : null
    if (!isRecord(found) || found.available !== true) return null
    const { xz_url: url, xz_hash: sha256 } = found
    if (typeof url !== 'string' || typeof sha256 !== 'string' || !/^[0-9a-f]{64}$/.test(sha256))
      throw wrong(`${known}: xz_url or xz_hash is missing or invalid`)
    const [, path = '..'] = addressPattern.exec(url) ?? []
    if (path.includes('..'))
      throw wrong(`${known}: ${JSON.stringify(url.slice(0, 200))} is no https address below /dist`)
    return { name: target === ownTarget ? known : `${known} ${target}`, uri: `${mirror}/${path}`, sha256 }
  }
  const wanted: [field: string, name: string, target: string][] = [
    ...BASE.map((name): [string, string, string] => ['', name, ownTarget]),
    ...needs.targets.map((target): [string, string, string] => ['targets', 'rust-std', target]),
    // The request's own target. If there is no standard library for it, the available targets are listed later.
    ...(target === null ? [] : [['target', 'rust-std', target] satisfies [string, string, string]]),
    ...needs.components
      .filter(name => !isUseless(name))
      .map((name): [string, string, string] => ['components', name, ownTarget]),
  ]
  const found = new Map<string, ChannelComponent>()
  for (const [field, name, target] of wanted) {
    const entry = entryOf(name, target)
    if (entry === null) {
      if (field === 'target') continue
      if (field === '') throw wrong(`no ${name} for ${target}`)
      const named = JSON.stringify(field === 'targets' ? target : name)
      throw new BuildFailure(
        'source_invalid',
        `rust-toolchain.toml: ${field}: Rust ${version} has no ${named} for this builder; remove it`,
      )
    }
    found.set(entry.uri, entry)
  }
  return [...found.values()]
}
