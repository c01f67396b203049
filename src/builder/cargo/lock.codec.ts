// The external packages of Cargo.lock (cargo's resolver/encode.rs, versions 1 to 4). Pure.

import { parse } from 'smol-toml'
import type { LockedPackage } from '../../attest/provenance/record.ts'
import { messageOf } from '../../base/fault.ts'
import { isRecord } from '../../base/json.ts'
import { BuildFailure } from '../failure.ts'

export const lockBytesMax = 16 * 1024 * 1024
const packagesMax = 20_000

export type LockedCrate = Extract<LockedPackage, { kind: 'crate' }>

export type CargoLock = {
  /** Crates from outside the source, sorted by name and version. */
  readonly crates: readonly LockedCrate[]
  /** All packages, the source's included. */
  readonly packageCount: number
}

/** Failures: `source_invalid`; `checksum_mismatch` for a registry's package without a checksum. */
export function readCargoLock(text: string): CargoLock {
  let table: Record<string, unknown>
  try {
    table = parse(text)
  } catch (error) {
    throw new BuildFailure(
      'source_invalid',
      `Cargo.lock: ${messageOf(error).split('\n')[0]}; run \`cargo generate-lockfile\``,
    )
  }
  // The lock of an empty workspace names no package.
  const packages = table.package ?? []
  if (!Array.isArray(packages) || packages.length > packagesMax) throw invalid('`package` is no list, or too long')
  const oldChecksums = isRecord(table.metadata) ? table.metadata : {}
  const crates: LockedCrate[] = []
  for (const pkg of packages) {
    if (!isRecord(pkg)) throw invalid('`package` has an entry that is no table')
    const { name, version, source } = pkg
    if (typeof name !== 'string' || !namePattern.test(name)) throw invalid('a package without a proper name')
    if (typeof version !== 'string' || !versionPattern.test(version)) throw invalid(`package ${name}: \`version\``)
    if (source === undefined) continue
    if (typeof source !== 'string') throw invalid(`package ${name}: \`source\``)
    // Version 1 has the checksums in a table of their own.
    const checksum = pkg.checksum ?? oldChecksums[`checksum ${name} ${version} (${source})`]
    crates.push({ kind: 'crate', name, version, from: fromOf(`${name} ${version}`, source, checksum) })
  }
  const keyOf = ({ name, version }: LockedCrate) => `${name} ${version}`
  crates.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
  return { crates, packageCount: packages.length }
}

/** Cargo's rule for package names; the name becomes part of file names. */
const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$/
const versionPattern = /^[0-9A-Za-z.+-]{1,128}$/

function fromOf(what: string, source: string, checksum: unknown): LockedCrate['from'] {
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
  return { kind: 'registry', sha256: checksum }
}

function invalid(problem: string): BuildFailure {
  return new BuildFailure('source_invalid', `Cargo.lock: ${problem}`)
}
