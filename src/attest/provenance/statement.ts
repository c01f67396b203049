// provenance.json: an in-toto Statement v1 with SLSA provenance v1, in exactly the fields, order and spelling that the
// readers of this service family parse (confidential-dot-ai/kettle). Pure; throws Malformed.
//
// Those readers hash their own re-encoding. Ours rejects bytes that differ from it, so both hash the same bytes. Facts
// outside of that subset are in attestations/slsa.json, which a byproduct binds.

import { equalConstantTime, fromHex, toBase64 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { sha256 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { count, listOf, members, optional, orNull, type ReadBy, type Reader, record, text } from './fields.ts'
import { prettyJson } from './json.ts'
import { describePackage } from './packages.ts'
import type { BuildRecord, LockedPackage, Tool } from './record.ts'

export const statementType = 'https://in-toto.io/Statement/v1'
export const slsaPredicateType = 'https://slsa.dev/provenance/v1'

/** Returns the build type of our own builds with a toolchain. */
export function buildTypeOf(toolchain: string): string {
  return `urn:strongroom:build:${toolchain}:v1`
}

/** Exactly one algorithm. The verifier checks the value's encoding: the family writes base64 for some packages. */
export type FamilyDigest = { readonly sha256: string } | { readonly sha512: string } | { readonly gitCommit: string }

const DIGESTS: Readonly<Record<string, Reader<FamilyDigest>>> = {
  sha256: record({ sha256: text }),
  sha512: record({ sha512: text }),
  gitCommit: record({ gitCommit: text }),
}

const digest: Reader<FamilyDigest> = (value, what) => {
  const [name = '', ...others] = Object.keys(members(value, what))
  wellFormed(others.length === 0 && name !== '', `${what}: a digest with more or fewer than one algorithm`)
  const read = DIGESTS[name]
  wellFormed(read !== undefined, `${what}: the digest algorithm ${JSON.stringify(name)} is not known`)
  return read(value, what)
}

const namedDigest = record({ digest, name: text })
const tool = record({ digest, version: text })
type FamilyTool = ReadBy<typeof tool>

/** Sets of tool names in the family's order. The first set whose names are all present applies. */
const TOOLCHAINS = [
  ['nix', 'kettle'],
  ['cargo', 'rustc', 'kettle'],
  ['pnpm', 'node', 'kettle'],
  // These sets exist only in our builds.
  ['go', 'kettle'],
  ['npm', 'node', 'kettle'],
  ['make', 'kettle'],
] as const

/** Reads one of these sets. Each includes the builder's own program as `kettle`. */
const toolchain: Reader<Readonly<Record<string, FamilyTool>>> = (value, what) => {
  const given = members(value, what)
  const names = TOOLCHAINS.find(set => set.every(name => Object.hasOwn(given, name)))
  wellFormed(names !== undefined, `${what}: neither nix, nor cargo and rustc, nor pnpm and node, nor one of our own`)
  return record(Object.fromEntries(names.map(name => [name, tool])))(value, what)
}

/** The annotations are the family's properties of a fixed-output derivation. */
const dependency = record({
  annotations: optional(
    record({ drvPath: text, outputHashMode: optional(text), url: optional(text), urls: optional(text) }),
  ),
  digest,
  name: text,
  uri: text,
})
type FamilyDependency = ReadBy<typeof dependency>

/** Members in the order in which they are written. */
const document = record({
  _type: text,
  predicate: record({
    buildDefinition: record({
      buildType: text,
      externalParameters: record({
        buildCommand: text,
        // For an archive, both digests are ''.
        source: record({ digest: record({ gitCommit: text, gitTree: text }), uri: text }),
      }),
      internalParameters: record({
        evaluation: optional(record({ derivationCount: count, fetchCount: count })),
        flakeInputs: optional(listOf(record({ name: text, narHash: text }))),
        lockfileHash: digest,
        toolchain,
      }),
      resolvedDependencies: listOf(dependency),
    }),
    runDetails: record({
      builder: record({ id: text }),
      byproducts: listOf(namedDigest),
      metadata: record({ invocationId: text, startedOn: text, finishedOn: orNull(text) }),
    }),
  }),
  predicateType: text,
  subject: listOf(namedDigest),
})
export type Provenance = ReadBy<typeof document>

const provenanceBytesMax = 16 * 1024 * 1024

/** Name of the dependency whose sha256 is the source's tree id in git's SHA-256 object format. */
export const sourceTreeName = 'source-tree'

type WrittenProvenance = {
  readonly bytes: Uint8Array
  /** SHA-256 of `bytes`, 32 bytes. */
  readonly digest: Uint8Array
}

/** Builds the provenance. `byproducts`: path and SHA-256 (hexadecimal) of each bound file. */
export function provenanceOf(
  record: BuildRecord,
  byproducts: readonly { readonly name: string; readonly sha256: string }[],
): Provenance {
  const { source, evaluation, packages } = record
  const inputs = packages.filter(pkg => pkg.kind === 'flake-input')
  return {
    _type: statementType,
    predicate: {
      buildDefinition: {
        buildType: buildTypeOf(record.tools.toolchain),
        externalParameters: {
          buildCommand: record.command.join(' '),
          source: { digest: { gitCommit: source.commit ?? '', gitTree: source.treeSha1 }, uri: source.uri },
        },
        internalParameters: {
          ...(evaluation === null ? {} : { evaluation }),
          ...(record.tools.toolchain === 'nix'
            ? {
                flakeInputs: inputs.map(({ name, narSha256 }) => ({
                  name,
                  narHash: `sha256-${base64OfHex(narSha256)}`,
                })),
              }
            : {}),
          lockfileHash: { sha256: record.lockFile.sha256 },
          toolchain: toolchainOf(record),
        },
        resolvedDependencies: [
          {
            digest: { sha256: source.treeSha256 },
            name: sourceTreeName,
            uri: `gitoid:tree:sha256:${source.treeSha256}`,
          },
          ...source.submodules.map(({ path, url, commit }) => ({
            digest: { gitCommit: commit },
            name: `submodule ${path}`,
            uri: `git+${url}`,
          })),
          // Packages of the source itself are in its tree. The full statement and the SBOM list them.
          ...packages.flatMap(dependencyOf),
        ],
      },
      runDetails: {
        builder: { id: record.builderId },
        byproducts: byproducts.map(({ name, sha256: hex }) => ({ digest: { sha256: hex }, name })),
        metadata: {
          invocationId: record.jobId,
          startedOn: new Date(record.startedAtMs).toISOString(),
          finishedOn: new Date(record.finishedAtMs).toISOString(),
        },
      },
    },
    predicateType: slsaPredicateType,
    subject: record.artifacts.map(({ name, sha256: hex }) => ({ digest: { sha256: hex }, name })),
  }
}

/** Encodes a provenance. Throws Malformed if `readProvenance` would reject it. */
export function provenanceBytes(provenance: Provenance): WrittenProvenance {
  const bytes = prettyJson(provenance)
  readProvenance(bytes)
  return { bytes, digest: sha256(bytes) }
}

/** Reads exactly the bytes that `provenanceBytes` would write. Throws Malformed for other fields, order or spacing. */
export function readProvenance(bytes: Uint8Array): Provenance {
  const what = 'provenance.json'
  wellFormed(bytes.length <= provenanceBytesMax, `${what}: ${bytes.length} bytes are more than ${provenanceBytesMax}`)
  const provenance = document(parsedJson(what, bytes), what)
  wellFormed(
    equalConstantTime(prettyJson(provenance), bytes),
    `${what}: its members are not in the order or the spelling in which they are written`,
  )
  return provenance
}

function toolchainOf({ tools, guest }: BuildRecord): Readonly<Record<string, FamilyTool>> {
  const toolOf = ({ sha256, version }: Tool): FamilyTool => ({ digest: { sha256 }, version })
  const kettle = toolOf(guest)
  return { ...Object.fromEntries(Object.entries(tools.programs).map(([name, tool]) => [name, toolOf(tool)])), kettle }
}

function dependencyOf(pkg: LockedPackage): FamilyDependency[] {
  const { url, digest, familyAnnotations, isExternal } = describePackage(pkg)
  if (!isExternal) return []
  return [
    {
      ...(familyAnnotations === undefined ? {} : { annotations: familyAnnotations }),
      digest,
      name: pkg.name,
      uri: url,
    },
  ]
}

function base64OfHex(hex: string): string {
  const bytes = fromHex(hex)
  wellFormed(bytes !== null, `provenance.json: ${JSON.stringify(hex)} is not hexadecimal`)
  return toBase64(bytes)
}
