// The packages of Cargo.lock (cargo's resolver/encode.rs, versions 1 to 4). Pure.

import { parse } from 'smol-toml'
import type { CratePlace } from '../../attest/provenance/record.ts'
import { messageOf } from '../../base/fault.ts'
import { isRecord } from '../../base/json.ts'
import { BuildFailure } from '../failure.ts'

export const packagesMax = 20_000

export type LockEntry = {
  readonly name: string
  readonly version: string
  /** `registry+URL`, `sparse+URL` or `git+URL?QUERY#COMMIT` as in the lock; null for a package of the source. */
  readonly source: string | null
}
export type LockedCrate = LockEntry & {
  readonly source: string
  readonly pin: Exclude<CratePlace, { kind: 'tree' }>
}

export type CargoLock = {
  /** Crates from outside the source, sorted by name and version. */
  readonly crates: readonly LockedCrate[]
  /** Packages without `source`: those of the source tree, including those in `[patch]` or `[replace]`. */
  readonly own: readonly LockEntry[]
}

/** Reads a lock. Failures: `source_invalid`; `checksum_mismatch` for a registry's package without a checksum. */
export function readCargoLock(text: string): CargoLock {
  if (/^<{7} /m.test(text))
    throw new BuildFailure(
      'source_invalid',
      'Cargo.lock contains merge conflict markers; run `cargo generate-lockfile`',
    )
  let table: Record<string, unknown>
  try {
    table = parse(text)
  } catch (error) {
    throw new BuildFailure(
      'source_invalid',
      `Cargo.lock: ${messageOf(error).split('\n')[0]}; run \`cargo generate-lockfile\``,
    )
  }
  // The lock of an empty workspace lists no package.
  const packages = table.package ?? []
  if (!Array.isArray(packages) || packages.length > packagesMax) throw invalid('`package` is no list, or too long')
  const oldChecksums = isRecord(table.metadata) ? table.metadata : {}
  const crates: LockedCrate[] = []
  const own: LockEntry[] = []
  for (const pkg of packages) {
    if (!isRecord(pkg)) throw invalid('`package` has an entry that is no table')
    const { name, version, source } = pkg
    if (typeof name !== 'string' || !namePattern.test(name)) throw invalid('a package without a proper name')
    if (typeof version !== 'string' || !versionPattern.test(version)) throw invalid(`package ${name}: \`version\``)
    if (source === undefined) {
      own.push({ name, version, source: null })
      continue
    }
    if (typeof source !== 'string') throw invalid(`package ${name}: \`source\``)
    // Version 1 has the checksums in a separate table.
    const checksum = pkg.checksum ?? oldChecksums[`checksum ${name} ${version} (${source})`]
    crates.push({ name, version, source, pin: pinOf(`${name} ${version}`, source, checksum) })
  }
  const keyOf = ({ name, version }: LockedCrate) => `${name} ${version}`
  crates.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
  return { crates, own }
}

/** Cargo's rule for package names; the name becomes part of file names. */
const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$/
const versionPattern = /^[0-9A-Za-z.+-]{1,128}$/

const cratesIo = 'registry+https://github.com/rust-lang/crates.io-index'

function pinOf(what: string, source: string, checksum: unknown): LockedCrate['pin'] {
  if (source.startsWith('git+')) {
    const [url = '', commit = ''] = source.slice('git+'.length).split('#')
    if (!/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(commit)) throw invalid(`package ${what}: no commit in \`source\``)
    return { kind: 'git', url: url.split('?')[0] ?? '', commit }
  }
  if (!/^(?:registry|sparse)\+/.test(source)) throw invalid(`package ${what}: \`source\` is neither registry nor git`)
  if (typeof checksum !== 'string' || !/^[0-9a-f]{64}$/.test(checksum)) {
    throw new BuildFailure(
      'checksum_mismatch',
      `Cargo.lock: package ${what} has no checksum; run \`cargo generate-lockfile\``,
    )
  }
  return { kind: 'registry', sha256: checksum, url: source === cratesIo ? null : source.replace(/^registry\+/, '') }
}

function invalid(problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `Cargo.lock: ${problem}`)
}
