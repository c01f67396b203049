// attestations/slsa.json: the complete SLSA v1.2 provenance of a build (slsa.dev/spec/v1.2/build-provenance), as an
// in-toto Statement v1. provenance.json contains only what its readers can parse. Pure; throws Malformed.

import { rustComponentPrefix, rustManifestName } from './compiler.ts'
import { prettyJson } from './json.ts'
import { describePackage } from './packages.ts'
import { RESULT_PATHS } from './paths.ts'
import type { BuildRecord, LockedPackage, Tool } from './record.ts'
import { buildTypeOf, slsaPredicateType, sourceTreeName, statementType } from './statement.ts'

/** in-toto attestation v1, resource_descriptor.md. Digests in hexadecimal. */
export type ResourceDescriptor = {
  readonly name?: string
  readonly uri?: string
  readonly digest?: Readonly<Record<string, string>>
  readonly mediaType?: string
  readonly annotations?: Readonly<Record<string, unknown>>
}

type SlsaStatement = {
  readonly _type: string
  readonly subject: readonly ResourceDescriptor[]
  readonly predicateType: string
  readonly predicate: {
    readonly buildDefinition: {
      readonly buildType: string
      readonly externalParameters: Readonly<Record<string, unknown>>
      readonly internalParameters: Readonly<Record<string, unknown>>
      readonly resolvedDependencies: readonly ResourceDescriptor[]
    }
    readonly runDetails: {
      readonly builder: {
        readonly id: string
        readonly version: Readonly<Record<string, string>>
        readonly builderDependencies: readonly ResourceDescriptor[]
      }
      readonly metadata: { readonly invocationId: string; readonly startedOn: string; readonly finishedOn: string }
      readonly byproducts: readonly ResourceDescriptor[]
    }
  }
}

/**
 * SLSA levels that a result can reach, and what is missing for higher ones. The statement and our verifier both give
 * them; the verifier adds what it could not compare. Levels of the draft Build Environment track need Build L2
 * provenance for the boot image, and ours is L1 (see image.ts), so none is claimed. The VM is otherwise launched and
 * attested as L3 requires, except for the host's own boot.
 */
export const SLSA_LEVELS = {
  build: 'SLSA_BUILD_LEVEL_3',
  buildEnvironment: null,
  missing: [
    'build environment: the provenance of the boot image is of Build L1, made locally and not signed; the first level wants L2',
    'build environment: no quote of the host interface at boot, which the third level wants',
  ],
} as const

/** Returns the statement. `digests`: SHA-256 of the SBOM and of the log, hexadecimal. */
export function slsaStatement(
  record: BuildRecord,
  digests: { readonly sbom: string; readonly log: string },
): SlsaStatement {
  return {
    _type: statementType,
    subject: record.artifacts.map(({ name, sha256, sizeBytes, reproducible }) => ({
      name,
      digest: { sha256 },
      annotations: { sizeBytes, ...(reproducible === null ? {} : { reproducible }) },
    })),
    predicateType: slsaPredicateType,
    predicate: {
      buildDefinition: {
        buildType: buildTypeOf(record.tools.toolchain),
        externalParameters: record.request,
        internalParameters: {
          command: record.command,
          environment: record.environment,
          order: record.order,
          networkPolicy: record.networkPolicy,
          pinnedCompiler: record.pinned,
          slsa: SLSA_LEVELS,
        },
        resolvedDependencies: [
          ...sourceDependencies(record),
          ...rustDependencies(record),
          ...record.packages.map(packageDescriptor),
        ],
      },
      runDetails: {
        builder: {
          id: record.builderId,
          version: { strongroom: record.guest.version },
          builderDependencies: builderDependencies(record),
        },
        metadata: {
          invocationId: record.jobId,
          startedOn: new Date(record.startedAtMs).toISOString(),
          finishedOn: new Date(record.finishedAtMs).toISOString(),
        },
        byproducts: [
          { name: RESULT_PATHS.sbom, digest: { sha256: digests.sbom }, mediaType: 'application/vnd.cyclonedx+json' },
          { name: RESULT_PATHS.log, digest: { sha256: digests.log }, mediaType: 'text/plain' },
        ],
      },
    },
  }
}

/** Returns the exact bytes of attestations/slsa.json. */
export function slsaBytes(statement: SlsaStatement): Uint8Array {
  return prettyJson(statement)
}

function sourceDependencies({ source, request, lockFile }: BuildRecord): ResourceDescriptor[] {
  const from: ResourceDescriptor =
    source.commit === null
      ? { name: 'source', ...(request.archive === null ? {} : { digest: { sha256: request.archive.sha256 } }) }
      : {
          name: 'source',
          uri: `git+${source.uri}${request.repoRef === null ? '' : `@${request.repoRef}`}`,
          digest: { gitCommit: source.commit },
        }
  return [
    from,
    {
      name: sourceTreeName,
      uri: `gitoid:tree:sha256:${source.treeSha256}`,
      digest: { gitTree: source.treeSha1, sha256: source.treeSha256 },
      annotations: { lfsPointers: source.lfsPointers },
    },
    ...source.submodules.map(({ path, url, commit }) => ({
      name: `submodule ${path}`,
      uri: `git+${url}`,
      digest: { gitCommit: commit },
      annotations: { path },
    })),
    { name: lockFile.name, digest: { sha256: lockFile.sha256 }, annotations: { path: lockFile.path } },
  ]
}

function rustDependencies({ rust }: BuildRecord): ResourceDescriptor[] {
  if (rust === null) return []
  const { mirror, version, manifest, components } = rust
  return [
    {
      name: rustManifestName,
      uri: manifest.uri,
      digest: { sha256: manifest.sha256 },
      annotations: { mirror, version },
    },
    ...components.map(({ name, uri, sha256 }) => ({
      name: `${rustComponentPrefix}${name}`,
      uri,
      digest: { sha256 },
    })),
  ]
}

function packageDescriptor(pkg: LockedPackage): ResourceDescriptor {
  const { url, digest, slsaDigest, slsaAnnotations } = describePackage(pkg)
  return { name: pkg.name, uri: url, digest: slsaDigest ?? digest, annotations: slsaAnnotations }
}

function builderDependencies({ image, imageSummary, tools, guest }: BuildRecord): ResourceDescriptor[] {
  const tool = (name: string, tool: Tool): ResourceDescriptor => ({
    name,
    digest: { sha256: tool.sha256 },
    annotations: { version: tool.version },
  })
  return [
    {
      name: image.name,
      // The launch digest is a SHA-384 over firmware, kernel, initrd and the command line that names the root hash.
      digest: { sha384: image.measurement },
      annotations: { rootHash: image.rootHash, measurement: image.measurement },
    },
    ...(imageSummary === null
      ? []
      : [
          {
            name: `${image.name}-summary`,
            digest: { sha256: imageSummary },
            mediaType: 'application/vnd.dsse.envelope.v1+json',
            annotations: { saidBy: 'host' },
          },
        ]),
    ...Object.entries(tools.programs).map(([name, entry]) => tool(name, entry)),
    tool('strongroom-builder', guest),
  ]
}
