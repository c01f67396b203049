// The compiler that a source pins: for Rust in a toolchain file (rust-lang.github.io/rustup/overrides.html), for Go in
// a line of go.mod (go.dev/doc/toolchain). Pure.

/**
 * `channel`: for Rust a version, or `stable`, `beta` or `nightly` with or without a date; for Go a name like
 * `go1.24.1`.
 */
export type PinnedCompiler = {
  /** Relative to the source. */
  readonly path: string
  readonly channel: string
}

/** The Rust toolchain fetched from a mirror of Rust's distribution. Digests in hexadecimal. */
export type FetchedRust = {
  readonly mirror: string
  /** `X.Y.Z`. */
  readonly version: string
  readonly manifest: { readonly uri: string; readonly sha256: string }
  readonly components: readonly { readonly name: string; readonly uri: string; readonly sha256: string }[]
}

/** Name of the dependency for the manifest of a fetched Rust toolchain. */
export const rustManifestName = 'rust-channel-manifest'
/** Prefix of the name of each of its components. */
export const rustComponentPrefix = 'rust-component '

/** Reports whether the channel allows the compiler. `version`: the first line of the compiler's version output. */
export function isChannelOf(channel: string, version: string): boolean {
  return version.startsWith('go version ') ? isGoOf(channel, version) : isRustOf(channel, version)
}

/** Accepts newer versions too, as go itself does. */
function isGoOf(channel: string, text: string): boolean {
  const [wanted, found] = [channel, text.slice('go version '.length)].map(
    name =>
      /^go(\d+)\.(\d+)(?:\.(\d+))?(?=[ +]|$)/
        .exec(name)
        ?.slice(1)
        .map(part => Number(part ?? 0)) ?? null,
  )
  if (wanted == null || found == null) return false
  const first = wanted.findIndex((part, index) => part !== found[index])
  return first === -1 || (found[first] ?? 0) > (wanted[first] ?? 0)
}

function isRustOf(channel: string, rustc: string): boolean {
  const [, version = '', suffix = ''] = /^rustc (\d+\.\d+\.\d+)(-[a-z]+)?/.exec(rustc) ?? []
  const [, name = ''] = /^([^-]+)(?:-(?:x86_64|aarch64|i686)-.*)?$/.exec(channel) ?? []
  if (name === 'stable') return version !== '' && suffix === ''
  if (name === 'beta' || name === 'nightly') return suffix === `-${name}`
  return /^\d+\.\d+(?:\.\d+)?$/.test(name) && suffix === '' && `${version}.`.startsWith(`${name}.`)
}
