// provenance.json: an in-toto Statement v1 with SLSA provenance v1, in exactly the fields, order and spelling that the
// readers of this service family parse (confidential-dot-ai/kettle). Pure; throws Malformed.
//
// Those readers hash their own re-encoding; ours refuses bytes that differ from it, so both hash the same. Facts
// outside that subset stand in attestations/slsa.json, which a byproduct binds.

import { equalConstantTime, fromHex, toBase64 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { sha256 } from '../hash.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { Fields } from './fields.ts'
import { prettyJson } from './json.ts'
import { packageUrl } from './packages.ts'
import type { BuildRecord, LockedPackage, Tool } from './record.ts'

export const statementType = 'https://in-toto.io/Statement/v1'
export const slsaPredicateType = 'https://slsa.dev/provenance/v1'

/** Build types of our own builds. */
export const BUILD_TYPES = {
  cargo: 'urn:strongroom:build:cargo:v1',
  nix: 'urn:strongroom:build:nix:v1',
} as const

/** Exactly one of them. */
export type FamilyDigest = { readonly sha256: string } | { readonly sha512: string } | { readonly gitCommit: string }

type FamilyTool = { readonly digest: FamilyDigest; readonly version: string }
type NamedDigest = { readonly digest: FamilyDigest; readonly name: string }

type FamilyAnnotations = {
  readonly drvPath: string
  readonly outputHashMode?: string
  readonly url?: string
  readonly urls?: string
}
type FamilyDependency = {
  readonly annotations?: FamilyAnnotations
  readonly digest: FamilyDigest
  readonly name: string
  readonly uri: string
}

/** Members in the order in which they are written. */
export type Provenance = {
  readonly _type: string
  readonly predicate: {
    readonly buildDefinition: {
      readonly buildType: string
      readonly externalParameters: {
        readonly buildCommand: string
        readonly source: {
          /** Both '' where there is none. */
          readonly digest: { readonly gitCommit: string; readonly gitTree: string }
          readonly uri: string
        }
      }
      readonly internalParameters: {
        readonly evaluation?: { readonly derivationCount: number; readonly fetchCount: number }
        readonly flakeInputs?: readonly { readonly name: string; readonly narHash: string }[]
        readonly lockfileHash: FamilyDigest
        /** One of three sets of names, each with the builder's own program as `kettle`. */
        readonly toolchain: Readonly<Record<string, FamilyTool>>
      }
      readonly resolvedDependencies: readonly FamilyDependency[]
    }
    readonly runDetails: {
      readonly builder: { readonly id: string }
      readonly byproducts: readonly NamedDigest[]
      readonly metadata: {
        readonly invocationId: string
        readonly startedOn: string
        readonly finishedOn: string | null
      }
    }
  }
  readonly predicateType: string
  readonly subject: readonly NamedDigest[]
}

/** In the order in which the family writes them; the first set whose names are all there is taken. */
const TOOLCHAIN_NAMES = [
  ['nix', 'kettle'],
  ['cargo', 'rustc', 'kettle'],
  ['pnpm', 'node', 'kettle'],
] as const

const provenanceBytesMax = 16 * 1024 * 1024

/** Name of the dependency whose sha256 is the source's tree id in git's SHA-256 object format. */
export const sourceTreeName = 'source-tree'

type WrittenProvenance = {
  readonly bytes: Uint8Array
  /** SHA-256 of the bytes, 32 of them. */
  readonly digest: Uint8Array
}

/** `byproducts`: path and SHA-256 (hexadecimal) of each file that is bound. */
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
        buildType: BUILD_TYPES[record.tools.toolchain],
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
          ...packages.map(dependencyOf),
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

/** Throws Malformed for a provenance that `readProvenance` would refuse. */
export function provenanceBytes(provenance: Provenance): WrittenProvenance {
  const bytes = prettyJson(provenance)
  readProvenance(bytes)
  return { bytes, digest: sha256(bytes) }
}

/** Takes exactly the bytes that `provenanceBytes` would write: no unknown field, no other order, no other spacing. */
export function readProvenance(bytes: Uint8Array): Provenance {
  const what = 'provenance.json'
  wellFormed(bytes.length <= provenanceBytesMax, `${what}: ${bytes.length} bytes are more than ${provenanceBytesMax}`)
  const root = new Fields(parsedJson(what, bytes), what)
  const predicate = root.object('predicate')
  const provenance: Provenance = {
    _type: root.text('_type'),
    predicate: {
      buildDefinition: definitionOf(predicate.object('buildDefinition')),
      runDetails: detailsOf(predicate.object('runDetails')),
    },
    predicateType: root.text('predicateType'),
    subject: root.list('subject', namedDigest),
  }
  predicate.end()
  root.end()
  wellFormed(
    equalConstantTime(prettyJson(provenance), bytes),
    `${what}: its members are not in the order or the spelling in which they are written`,
  )
  return provenance
}

function toolchainOf(record: BuildRecord): Readonly<Record<string, FamilyTool>> {
  const tool = (tool: Tool): FamilyTool => ({ digest: { sha256: tool.sha256 }, version: tool.version })
  const kettle = tool(record.guest)
  const { tools } = record
  return tools.toolchain === 'cargo'
    ? { cargo: tool(tools.cargo), rustc: tool(tools.rustc), kettle }
    : { nix: tool(tools.nix), kettle }
}

/** The annotations are what the family gives of a fixed-output derivation. */
function dependencyOf(pkg: LockedPackage): FamilyDependency {
  const named = { name: pkg.name, uri: packageUrl(pkg) }
  switch (pkg.kind) {
    case 'crate':
      return pkg.from.kind === 'registry'
        ? { digest: { sha256: pkg.from.sha256 }, ...named }
        : { digest: { gitCommit: pkg.from.commit }, ...named }
    case 'flake-input':
      return { digest: { sha256: pkg.narSha256 }, ...named }
    case 'nix-fetch': {
      const { drvPath, outputHashMode, url, hash } = pkg
      const annotations = {
        drvPath,
        ...(outputHashMode === null ? {} : { outputHashMode }),
        ...(url === null ? {} : { url }),
      }
      const digest = hash.algorithm === 'sha256' ? { sha256: hash.hex } : { sha512: hash.hex }
      return { annotations, digest, ...named }
    }
  }
}

function base64OfHex(hex: string): string {
  const bytes = fromHex(hex)
  wellFormed(bytes !== null, `provenance.json: ${JSON.stringify(hex)} is not hexadecimal`)
  return toBase64(bytes)
}

type Definition = Provenance['predicate']['buildDefinition']

function definitionOf(definition: Fields): Definition {
  const external = definition.object('externalParameters')
  const source = external.object('source')
  const digest = source.object('digest')
  const internal = definition.object('internalParameters')
  const read: Definition = {
    buildType: definition.text('buildType'),
    externalParameters: {
      buildCommand: external.text('buildCommand'),
      source: {
        digest: { gitCommit: digest.text('gitCommit'), gitTree: digest.text('gitTree') },
        uri: source.text('uri'),
      },
    },
    internalParameters: {
      ...(internal.has('evaluation') ? { evaluation: evaluationOf(internal.object('evaluation')) } : {}),
      ...(internal.has('flakeInputs') ? { flakeInputs: internal.list('flakeInputs', flakeInput) } : {}),
      lockfileHash: digestOf(internal.object('lockfileHash')),
      toolchain: readToolchain(internal.object('toolchain')),
    },
    resolvedDependencies: definition.list('resolvedDependencies', dependency),
  }
  for (const fields of [digest, source, external, internal, definition]) fields.end()
  return read
}

function evaluationOf(fields: Fields): NonNullable<Definition['internalParameters']['evaluation']> {
  const read = { derivationCount: fields.count('derivationCount'), fetchCount: fields.count('fetchCount') }
  fields.end()
  return read
}

function flakeInput(value: unknown, what: string): { readonly name: string; readonly narHash: string } {
  const fields = new Fields(value, what)
  const read = { name: fields.text('name'), narHash: fields.text('narHash') }
  fields.end()
  return read
}

function readToolchain(fields: Fields): Readonly<Record<string, FamilyTool>> {
  const names = TOOLCHAIN_NAMES.find(set => set.every(name => fields.has(name)))
  wellFormed(names !== undefined, 'provenance.json: toolchain: neither nix, nor cargo and rustc, nor pnpm and node')
  const read = names.map(name => {
    const tool = fields.object(name)
    const entry = { digest: digestOf(tool.object('digest')), version: tool.text('version') }
    tool.end()
    return [name, entry] as const
  })
  fields.end()
  return Object.fromEntries(read)
}

function dependency(value: unknown, what: string): FamilyDependency {
  const fields = new Fields(value, what)
  const read = {
    ...(fields.has('annotations') ? { annotations: annotationsOf(fields.object('annotations')) } : {}),
    digest: digestOf(fields.object('digest')),
    name: fields.text('name'),
    uri: fields.text('uri'),
  }
  fields.end()
  return read
}

function annotationsOf(fields: Fields): FamilyAnnotations {
  const optional = (name: 'outputHashMode' | 'url' | 'urls') => (fields.has(name) ? { [name]: fields.text(name) } : {})
  const read = {
    drvPath: fields.text('drvPath'),
    ...optional('outputHashMode'),
    ...optional('url'),
    ...optional('urls'),
  }
  fields.end()
  return read
}

function detailsOf(details: Fields): Provenance['predicate']['runDetails'] {
  const builder = details.object('builder')
  const metadata = details.object('metadata')
  const read = {
    builder: { id: builder.text('id') },
    byproducts: details.list('byproducts', namedDigest),
    metadata: {
      invocationId: metadata.text('invocationId'),
      startedOn: metadata.text('startedOn'),
      finishedOn: metadata.textOrNull('finishedOn'),
    },
  }
  for (const fields of [builder, metadata, details]) fields.end()
  return read
}

function namedDigest(value: unknown, what: string): NamedDigest {
  const fields = new Fields(value, what)
  const read = { digest: digestOf(fields.object('digest')), name: fields.text('name') }
  fields.end()
  return read
}

/** Exactly one algorithm. The verifier judges how the value is spelt: the family writes base64 for some packages. */
function digestOf(fields: Fields): FamilyDigest {
  const names = fields.names()
  wellFormed(names.length === 1, 'provenance.json: a digest with more or fewer than one algorithm')
  switch (names[0]) {
    case 'sha256':
      return { sha256: fields.text('sha256') }
    case 'sha512':
      return { sha512: fields.text('sha512') }
    case 'gitCommit':
      return { gitCommit: fields.text('gitCommit') }
    default:
      throw new Malformed(`provenance.json: the digest algorithm ${JSON.stringify(names[0])} is not known`)
  }
}
