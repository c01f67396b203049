// provenance.json of a guest image: SLSA provenance v1 for a build by scripts/build-image.ts, as an in-toto Statement
// v1. Pure; throws Malformed.
//
// The document claims only SLSA Build L1: it exists, and lists inputs and outputs. It is not signed and not made by a
// hosted platform, so it reveals mistakes and stale copies, but no attacker who can write to the directory
// (slsa.dev/spec/v1.2/build-track-basics). It contains no time: equal inputs give equal bytes.

import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { exactly, listOf, members, optional, orNull, type Reader, record, text } from './fields.ts'
import { prettyJson } from './json.ts'
import type { ResourceDescriptor } from './slsa.ts'
import { slsaPredicateType, statementType } from './statement.ts'

/** File names, next to each other in the image's directory. */
export const imageProvenanceName = 'provenance.json'
export const imageManifestName = 'manifest.json'

/** Build type: a run of `scripts/build-image.ts RECIPE`. */
export const imageBuildType = 'urn:strongroom:image-build:v1'
/** Builder: a person who ran the script on their own machine. */
export const localImageBuilder = 'urn:strongroom:image-builder:local-unsigned'
export const imageBuildLevel = 'SLSA_BUILD_LEVEL_1'

/** Digest beside `sha256`: the root hash of the dm-verity tree at the end of the file, SHA-256 in hexadecimal. */
const verityDigest = 'dmVeritySha256'
const inputsName = 'inputs'
const sizeBytesMax = 4 * 1024 * 1024

/** Inputs and outputs of a build. Digests are SHA-256 in hexadecimal unless named otherwise. */
export type ImageBuild = {
  readonly recipe: string
  /** Variant whose files overlay the recipe's; null if there is none. */
  readonly variant: string | null
  /** One digest over recipe, locks, scripts, our executable and tools. */
  readonly inputsSha256: string
  readonly sourceDateEpoch: number
  readonly tools: Readonly<Record<string, string>>
  readonly packagesLockSha256: string
  /** All packages of the lock, in its order. */
  readonly packages: readonly {
    readonly name: string
    readonly version: string
    readonly role: string
    readonly archive: string
    readonly file: string
    readonly sha256: string
  }[]
  /** Our own executable in the image. `madeOf`: what it was compiled from; null if unknown. */
  readonly executable: {
    readonly name: string
    readonly sha256: string
    readonly madeOf: Readonly<Record<string, string>> | null
  }
  /** Packages of the npm registry: the coding agent, npm and pnpm. */
  readonly npmPackages: readonly { readonly package: string; readonly version: string; readonly sha512: string }[]
  readonly output: ImageOutput
}

/** The files of an image. */
type ImageOutput = {
  /** SHA-256 of the exact bytes of manifest.json. */
  readonly manifestSha256: string
  readonly files: readonly { readonly path: string; readonly sha256: string }[]
  readonly root: string
  /** dm-verity root hash of `root`. */
  readonly rootHash: string
}

/** Returns the exact bytes of provenance.json. */
export function imageProvenance(build: ImageBuild): Uint8Array {
  return prettyJson({
    _type: statementType,
    subject: imageSubject(build.output),
    predicateType: slsaPredicateType,
    predicate: {
      buildDefinition: {
        buildType: imageBuildType,
        externalParameters: { recipe: build.recipe, variant: build.variant },
        internalParameters: {
          sourceDateEpoch: build.sourceDateEpoch,
          slsa: { build: imageBuildLevel, missing: ['not signed', 'built by no hosted platform'] },
        },
        resolvedDependencies: dependenciesOf(build),
      },
      runDetails: { builder: { id: localImageBuilder, version: build.tools } },
    },
  })
}

/** Returns the files of an image by name, for provenance and verification summary. */
function imageSubject({ manifestSha256, files, root, rootHash }: ImageOutput): ResourceDescriptor[] {
  const all = [{ path: imageManifestName, sha256: manifestSha256 }, ...files]
  return all
    .toSorted((a, b) => (a.path < b.path ? -1 : 1))
    .map(({ path, sha256 }) => ({
      name: path,
      digest: path === root ? { sha256, [verityDigest]: rootHash } : { sha256 },
    }))
}

function dependenciesOf(build: ImageBuild): ResourceDescriptor[] {
  const { executable } = build
  return [
    { name: inputsName, digest: { sha256: build.inputsSha256 } },
    { name: 'packages.lock.json', digest: { sha256: build.packagesLockSha256 } },
    {
      name: executable.name,
      digest: { sha256: executable.sha256 },
      ...(executable.madeOf === null ? {} : { annotations: executable.madeOf }),
    },
    ...build.npmPackages.map(({ package: name, version, sha512 }) => ({
      name,
      uri: `pkg:npm/${name}@${version}`,
      digest: { sha512 },
    })),
    ...build.packages.map(({ name, version, role, archive, file, sha256 }) => ({
      name,
      uri: `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=amd64`,
      digest: { sha256 },
      annotations: { archive, file, role },
    })),
  ]
}

/** The parts of an image's provenance that verifiers use. */
type ReadImageProvenance = {
  /** Name of the image: the variant's if it has a variant. */
  readonly name: string
  readonly inputsSha256: string
  readonly subject: readonly ResourceDescriptor[]
}

const digests: Reader<Readonly<Record<string, string>>> = (value, what) => {
  const given = Object.entries(members(value, what)).map(([name, hex]) => [name, text(hex, `${what}.${name}`)] as const)
  const isHex = given.length > 0 && given.every(([, hex]) => /^[0-9a-f]{64,128}$/.test(hex))
  wellFormed(isHex, `${what}: no digest in hexadecimal`)
  return Object.fromEntries(given)
}

const descriptor = record({ name: text, uri: optional(text), annotations: optional(members), digest: digests })

const document = record({
  _type: exactly(statementType),
  predicateType: exactly(slsaPredicateType),
  subject: listOf(descriptor),
  predicate: record({
    buildDefinition: record({
      buildType: exactly(imageBuildType),
      externalParameters: record({ recipe: text, variant: orNull(text) }),
      internalParameters: members,
      resolvedDependencies: listOf(descriptor),
    }),
    runDetails: record({ builder: record({ id: exactly(localImageBuilder), version: members }) }),
  }),
})

/** Reads exactly what `imageProvenance` writes: our build type, our builder, and a digest for every dependency. */
export function readImageProvenance(bytes: Uint8Array): ReadImageProvenance {
  const what = imageProvenanceName
  wellFormed(bytes.length <= sizeBytesMax, `${what}: ${bytes.length} bytes`)
  const { subject, predicate } = document(parsedJson(what, bytes), what)
  const { externalParameters, resolvedDependencies } = predicate.buildDefinition
  const inputs = resolvedDependencies.filter(({ name }) => name === inputsName)
  const inputsSha256 = inputs.length === 1 ? inputs[0]?.digest.sha256 : undefined
  wellFormed(inputsSha256 !== undefined, `${what}: resolvedDependencies have no SHA-256 of ${inputsName}`)
  const name = externalParameters.variant ?? externalParameters.recipe
  return { name, inputsSha256, subject: subject.map(({ name, digest }) => ({ name, digest })) }
}

/** The image found on disk. */
export type FoundImage = ImageOutput & { readonly name: string; readonly inputsSha256: string }

/** Returns the first difference between provenance and image; null if the provenance matches. */
export function imageProvenanceProblem(provenance: ReadImageProvenance, image: FoundImage): string | null {
  if (provenance.name !== image.name) return `it is of the image ${provenance.name}, the manifest of ${image.name}`
  const expected = imageSubject(image)
  const names = (subject: readonly ResourceDescriptor[]) => subject.map(({ name }) => name).join(', ')
  if (names(provenance.subject) !== names(expected)) {
    return `its subject is ${names(provenance.subject)}, the image has ${names(expected)}`
  }
  for (const [at, { name = '', digest = {} }] of expected.entries()) {
    const given = provenance.subject[at]?.digest ?? {}
    for (const algorithm of new Set([...Object.keys(digest), ...Object.keys(given)])) {
      if (given[algorithm] === digest[algorithm]) continue
      return `${name}: ${algorithm} is ${given[algorithm] ?? 'missing'}, in the image ${digest[algorithm] ?? 'missing'}`
    }
  }
  if (provenance.inputsSha256 !== image.inputsSha256) {
    return `${inputsName} are ${provenance.inputsSha256}, in the manifest ${image.inputsSha256}`
  }
  return null
}
