// Explains failures of cargo to the people who sent the source: cause and remedy. Pure.

import type { CargoOptions } from '../../contract/http/build-options.ts'
import { BuildFailure, type Cause, causedFailure } from '../failure.ts'
import { places } from '../phase.ts'

type CargoCause = Cause & {
  /** Whether fetching cannot help. */
  readonly isFinal?: true
}

const STALE: CargoCause = {
  pattern:
    /lock file .* needs to be updated|cannot (?:update|create) the lock file|because --(?:locked|frozen) was passed/,
  errorType: 'source_invalid',
  message: 'Cargo.lock does not match Cargo.toml; run `cargo update --workspace`, and send Cargo.lock with the source',
  isFinal: true,
}

const FEATURE: CargoCause = {
  pattern:
    /does not contain th(?:is|ese) features?|none of the selected packages contains th(?:is|ese) features?|does not have feature/,
  errorType: 'source_invalid',
  message: 'features: Cargo.toml does not define a requested feature; use those that its [features] table lists',
  isFinal: true,
}

const CHANGED: CargoCause = {
  pattern: /the listed checksum of|checksum for `[^`]+` (?:has )?changed/,
  errorType: 'checksum_mismatch',
  message:
    'a vendored file does not match its .cargo-checksum.json; run `cargo vendor` again, and send vendor/ unchanged',
  isFinal: true,
}

const REGISTRY: CargoCause = {
  pattern: /registry index was not found in any configuration|no index found for registry/,
  errorType: 'source_unreachable',
  message:
    'a package comes from a registry that only cargo settings define, and the fetch ignores them; run `cargo vendor`, and send vendor/ and .cargo/config.toml with the source',
  isFinal: true,
}

/** Causes in the output of `cargo fetch`. */
const FETCH_CAUSES: readonly Cause[] = [
  REGISTRY,
  {
    pattern: /failed to verify the checksum of|checksum for `/,
    errorType: 'checksum_mismatch',
    message:
      'a fetched package does not match its checksum in Cargo.lock; restore Cargo.lock; if it is unchanged, compare the package with its registry before you run `cargo update -p NAME`',
  },
  {
    pattern: /revspec '[^']*' not found|couldn't find remote ref|not our ref|failed to find (?:branch|tag)/,
    errorType: 'source_unreachable',
    message:
      'a repository lacks a branch, tag or commit of Cargo.lock; run `cargo update -p NAME`, and send Cargo.lock with the source',
  },
]

/** How a source can use a compiler other than the builder's own. */
const pinning = 'pin that version in rust-toolchain.toml and set rust_mirror (--rust-mirror) to a Rust mirror'

/** The first match applies. */
const CAUSES: readonly CargoCause[] = [
  // Must precede STALE, which also matches this text.
  {
    pattern: /lock file version `?\d+`? (?:was found|requires)/,
    errorType: 'source_invalid',
    message: `Cargo.lock needs a newer cargo than the builder has; write it with an older cargo, or ${pinning}`,
    isFinal: true,
  },
  STALE,
  FEATURE,
  {
    pattern: /failed to merge key `env`/,
    errorType: 'source_invalid',
    message:
      '.cargo/config.toml: write PATH and variables that begin with LD_ as tables in `[env]`: NAME = { value = "…" }',
  },
  {
    pattern: /supported edition values are|unknown Cargo.toml feature|feature `[^`]+` is required/,
    errorType: 'source_invalid',
    message: `a Cargo.toml needs a newer or a nightly cargo; use an edition that the builder's cargo has, or ${pinning}`,
    isFinal: true,
  },
  REGISTRY,
  CHANGED,
  {
    pattern: /failed to parse (?:manifest|lock file)/,
    errorType: 'source_invalid',
    message: 'cargo cannot read a Cargo.toml or the Cargo.lock of the source',
    isFinal: true,
  },
  {
    pattern: /current package believes it's in a workspace/,
    errorType: 'source_invalid',
    message:
      'the workspace above the project does not list it; add it to workspace.members or workspace.exclude of that Cargo.toml',
  },
  {
    pattern: /failed to read `\/(?!build\/(?:source|cargo)\/)[^`]*Cargo\.toml`/,
    errorType: 'source_invalid',
    message: 'a dependency by path is outside of the source; add its directory to the source, and correct the path',
    isFinal: true,
  },
  {
    pattern: /failed to (?:load|read|parse) |could not find `Cargo.toml`/,
    errorType: 'source_invalid',
    message: 'cargo cannot read a Cargo.toml of the source',
  },
]

/** Causes in the output of compilers and build scripts. The source controls that output, so messages also quote it. */
const BUILD_CAUSES: readonly Cause[] = [
  FEATURE,
  CHANGED,
  {
    pattern: /rustc \S+ is not supported by the following package/,
    errorType: 'source_invalid',
    message: `a package needs a newer compiler than the builder has; run \`cargo update -p NAME --precise VERSION\` for an older one, or ${pinning}`,
  },
  {
    pattern: /error\[E0554\]|only accepted on the nightly (?:compiler|channel)/,
    errorType: 'build_failed',
    message: 'the source needs a nightly compiler, and the builder has a stable one; use features of stable Rust alone',
  },
  {
    pattern:
      /cannot find -l\S|unable to find library -l\S|not found in the pkg-config search path|system library `[^`]+` required by crate/,
    errorType: 'build_failed',
    message:
      "the builder lacks a system library; enable the crate's feature that compiles it (often `vendored` or `bundled`), or add the library to the source",
  },
  {
    pattern: /failed to lookup address information|Temporary failure in name resolution|Could not resolve host/,
    errorType: 'build_failed',
    message: 'a build script uses the network, but builds run without one; add the files that it fetches to the source',
  },
]

/** Reports whether fetching cannot help. */
export function isFinal(output: string): boolean {
  return CAUSES.find(({ pattern }) => pattern.test(output))?.isFinal === true
}

/** Returns the failure of `cargo fetch`, which reads no settings of the source. */
export function fetchFailure(code: number, output: string): BuildFailure {
  const advice = 'vendor the packages, or ask the operator which hosts are allowed'
  const other = {
    pattern: /^/,
    errorType: 'source_unreachable',
    message: `cargo fetch: exit code ${code}; ${advice}`,
  } as const
  return causedFailure([...FETCH_CAUSES, other], '', output)
}

/** Returns the failure of `cargo build`. `exit`: how it ended. `output`: the end of its output. */
export function buildFailure(exit: string, output: string, options: CargoOptions | null): BuildFailure {
  const profile = options?.profile ?? null
  if (profile !== null && /profile .* is not defined|profile name .* is (?:reserved|not allowed)/.test(output)) {
    const named = JSON.stringify(profile)
    const advice = 'use release, dev, or a profile that the workspace defines in [profile]'
    return new BuildFailure(
      'source_invalid',
      `profile: this source does not define the profile ${named}; ${advice}: ${output}`,
    )
  }
  return causedFailure(BUILD_CAUSES, `cargo build: ${exit}`, output)
}

/** Returns those submodules without files in which cargo's output names a path. */
export function missingIn(output: string, missing: readonly string[]): readonly string[] {
  return missing.filter(path => output.includes(`${places.source}/${path}/`))
}

/**
 * Returns the failure of `cargo metadata` and `cargo locate-project`. `output`: the end of cargo's output. `missing`:
 * paths of submodules that the source lacks.
 */
export function resolveFailure(output: string, missing: readonly string[]): BuildFailure {
  const cause = CAUSES.find(({ pattern }) => pattern.test(output))
  const needed = missingIn(output, missing)
  if (needed.length > 0 && cause !== STALE) {
    const named = needed.map(path => JSON.stringify(path)).join(', ')
    const advice = 'run `git submodule update --init --recursive`, and send their files with the source'
    return new BuildFailure('source_invalid', `submodules are missing: ${named}; ${advice}: ${output}`)
  }
  return causedFailure(CAUSES, 'cargo cannot resolve the packages of Cargo.lock', output)
}
