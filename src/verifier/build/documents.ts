// Compares the files of a build's result with its provenance: artifacts and documents, each bound by its digest. Pure.

import { parsedJson } from '../../attest/encoding/json.ts'
import { type Parsed, parsed, wellFormed } from '../../attest/malformed.ts'
import { readBundle } from '../../attest/provenance/bundle.ts'
import {
  ENVELOPE_KEYS,
  type Envelope,
  envelopeKeyId,
  inTotoPayloadType,
  preAuthEncoding,
  readDsse,
} from '../../attest/provenance/dsse.ts'
import { exactly, listOf, optional, partly, text } from '../../attest/provenance/fields.ts'
import { artifactPath, BYPRODUCTS, isArtifactName, RESULT_PATHS } from '../../attest/provenance/paths.ts'
import {
  type FamilyDigest,
  type Provenance,
  slsaPredicateType,
  statementType,
} from '../../attest/provenance/statement.ts'
import { nativeVerifiers, verifyHybrid } from '../../attest/receipt/verifiers.ts'
import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { packagesCheck } from './packages.ts'
import { type AskedBuild, documentOf, type ReadResult, type ResultFiles } from './question.ts'
import type { JudgedReceipts } from './receipts.ts'

const artifactsPrefix = `${RESULT_PATHS.artifacts}/`
const namedMax = 8

/** Requires a digest for every file of a result. Artifacts of other builders may also be in the top-level directory. */
export function filesCheck({ digests }: ResultFiles, isOwn: boolean, provenance: Provenance | null): Check {
  const name = 'result-files'
  const known: readonly string[] = Object.values(RESULT_PATHS)
  const subjects = new Set(isOwn ? [] : provenance?.subject.map(digest => digest.name))
  const strange = [...digests.keys()].filter(
    path => !path.startsWith(artifactsPrefix) && !known.includes(path) && !subjects.has(path),
  )
  const missing = isOwn ? known.filter(path => path !== RESULT_PATHS.artifacts && !digests.has(path)) : []
  if (missing.length > 0) return fail(name, `missing: ${listed(missing)}`)
  if (strange.length === 0) return pass(name, `${digests.size} files`)
  const reason = `not authenticated: ${listed(strange)}`
  return isOwn ? fail(name, reason) : notChecked(name, reason, false)
}

/** Returns checks in the order of the chain. */
export async function documentChecks(
  read: ReadResult,
  { nonce }: AskedBuild,
  receipts: JudgedReceipts | null,
  isOwn: boolean,
): Promise<Check[]> {
  const { provenance, files } = read
  const names = ['artifact-digests', 'artifact-list', 'dependency-digests', 'byproduct-digests']
  if (provenance === null) return names.map(name => notChecked(name, 'provenance.json cannot be read', true))
  const checks = [
    artifactCheck(provenance, files),
    artifactListCheck(provenance, files),
    dependencyCheck(provenance, isOwn),
    byproductCheck(provenance, files, isOwn),
  ]
  if (!isOwn) return checks
  return [
    ...checks,
    statementCheck(read, provenance, nonce, receipts),
    await envelopeCheck(files, receipts),
    bundleCheck(files),
    sbomCheck(files, provenance),
    packagesCheck(files, provenance),
  ]
}

function artifactCheck({ subject }: Provenance, { digests }: ResultFiles): Check {
  const name = 'artifact-digests'
  if (subject.length === 0) return fail(name, 'the provenance names no artifact')
  const names = subject.map(digest => digest.name)
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (twice !== undefined) return fail(name, `the provenance names ${JSON.stringify(twice)} twice`)
  const bad = subject.flatMap(artifact => artifactFault(artifact.name, artifact.digest, digests))
  return check(name, bad.length === 0, listed(bad), `${subject.length} artifacts`)
}

/** Finds a fault of an artifact. It is below artifacts/; other builders may add an identical copy beside it. */
function artifactFault(name: string, digest: FamilyDigest, digests: ReadonlyMap<string, string>): string[] {
  const shown = JSON.stringify(name)
  if (!isArtifactName(name)) return [`${shown} is no name of an artifact`]
  if (!('sha256' in digest) || !isHex(digest.sha256, 64)) return [`${shown} has no SHA-256 in hexadecimal`]
  const reserved: readonly string[] = Object.values(RESULT_PATHS)
  const places = [artifactPath(name), ...(reserved.includes(name) ? [] : [name])]
  const found = places.flatMap(path => {
    const hex = digests.get(path)
    return hex === undefined ? [] : [{ path, hex }]
  })
  if (found.length === 0) return [`${artifactPath(name)} is missing`]
  return found
    .filter(({ hex }) => hex !== digest.sha256)
    .map(({ path, hex }) => `${path} is ${hex}, the provenance has ${digest.sha256}`)
}

function artifactListCheck({ subject }: Provenance, { digests }: ResultFiles): Check {
  const known = new Set(subject.map(digest => artifactPath(digest.name)))
  const extra = [...digests.keys()].filter(path => path.startsWith(artifactsPrefix) && !known.has(path))
  return check('artifact-list', extra.length === 0, `the provenance does not name ${listed(extra)}`, 'no others')
}

/**
 * Checks the encoding of digests. in-toto requires hexadecimal; another builder of the family uses base64 for Nix
 * fetches.
 */
function dependencyCheck({ predicate }: Provenance, isOwn: boolean): Check {
  const name = 'dependency-digests'
  const all = predicate.buildDefinition.resolvedDependencies
  const bad = all.filter(({ digest }) => !isHexDigest(digest)).map(artifact => JSON.stringify(artifact.name))
  if (bad.length === 0) return pass(name, `${all.length} dependencies`)
  const reason = `not in hexadecimal, as in-toto requires: ${listed(bad)}`
  return isOwn ? fail(name, reason) : notChecked(name, reason, false)
}

function isHexDigest(digest: FamilyDigest): boolean {
  if ('sha256' in digest) return isHex(digest.sha256, 64)
  return 'sha512' in digest ? isHex(digest.sha512, 128) : isHex(digest.gitCommit, 40) || isHex(digest.gitCommit, 64)
}

function isHex(text: string, digits: number): boolean {
  return text.length === digits && /^[0-9a-f]*$/.test(text)
}

function byproductCheck({ predicate }: Provenance, { digests }: ResultFiles, isOwn: boolean): Check {
  const name = 'byproduct-digests'
  const { byproducts } = predicate.runDetails
  if (!isOwn) {
    const absent = byproducts.map(byproduct => byproduct.name)
    return absent.length === 0 ? pass(name, 'none') : notChecked(name, `of another builder: ${listed(absent)}`, false)
  }
  const wanted = BYPRODUCTS.map(kind => RESULT_PATHS[kind])
  const isExact =
    byproducts.length === wanted.length && byproducts.every((byproduct, at) => byproduct.name === wanted[at])
  if (!isExact) return fail(name, `the byproducts are not ${wanted.join(', ')}, in this order`)
  const bad = byproducts.flatMap(({ name: path, digest }) => {
    const found = digests.get(path) ?? 'missing'
    const expected = 'sha256' in digest ? digest.sha256 : 'no SHA-256'
    return found === expected ? [] : [`${path} is ${found}, the provenance has ${expected}`]
  })
  return check(name, bad.length === 0, listed(bad), `${wanted.length} files`)
}

/** Checks that attestations/slsa.json has the same job, nonce, source, artifacts and VM as the other documents. */
function statementCheck(
  read: ReadResult,
  provenance: Provenance,
  nonce: Uint8Array | 'any',
  receipts: JudgedReceipts | null,
): Check {
  const name = 'slsa-statement'
  const said = parsed(() => slsaWords(documentOf(read.files, RESULT_PATHS.slsa)))
  if (!said.ok) return fail(name, said.reason)
  const { subject, definition, details, measurement: image } = said.value
  const { networkPolicy } = definition.internalParameters
  const { buildDefinition, runDetails } = provenance.predicate
  const completion = receipts?.completion.statement ?? null
  const measurement = completion === null ? null : toHex(completion.image.measurement)
  const given = nonce === 'any' ? (completion?.nonce ?? null) : nonce
  const compared: readonly (readonly [what: string, found: string, expected: string])[] = [
    ['buildType', definition.buildType, buildDefinition.buildType],
    ['invocationId', details.metadata.invocationId, runDetails.metadata.invocationId],
    ['builder', details.builder.id, runDetails.builder.id],
    ['startedOn', details.metadata.startedOn, runDetails.metadata.startedOn],
    ['finishedOn', details.metadata.finishedOn, runDetails.metadata.finishedOn ?? ''],
    ['nonce', definition.externalParameters.nonce.toLowerCase(), given === null ? '' : toHex(given)],
    ['network policy', networkPolicy, completion?.networkPolicy ?? ''],
    ['network policy at the dispatch', networkPolicy, receipts?.dispatch.statement?.networkPolicy ?? ''],
    ['measurement', image, measurement ?? ''],
    ['subject', subjectText(subject), subjectText(provenance.subject)],
  ]
  const wrong = compared.find(([, found, expected]) => found !== expected)
  if (wrong === undefined) return pass(name, 'agrees with provenance.json and the receipts')
  return fail(name, `${wrong[0]} is ${JSON.stringify(wrong[1])}, elsewhere ${JSON.stringify(wrong[2])}`)
}

/** Ignores further fields, which are the statement's purpose; its digest binds them. */
const slsaForm = partly({
  _type: exactly(statementType),
  predicateType: exactly(slsaPredicateType),
  subject: listOf(partly({ name: text, digest: partly({ sha256: text }) })),
  predicate: partly({
    buildDefinition: partly({
      buildType: text,
      externalParameters: partly({ nonce: text }),
      internalParameters: partly({ networkPolicy: text }),
    }),
    runDetails: partly({
      builder: partly({
        id: text,
        builderDependencies: listOf(partly({ annotations: optional(partly({ measurement: optional(text) })) })),
      }),
      metadata: partly({ invocationId: text, startedOn: text, finishedOn: text }),
    }),
  }),
})

function slsaWords(bytes: Uint8Array) {
  const what = 'slsa.json'
  const { subject, predicate } = slsaForm(parsedJson(what, bytes), what)
  const { buildDefinition: definition, runDetails: details } = predicate
  const measurement = details.builder.builderDependencies[0]?.annotations?.measurement
  wellFormed(measurement !== undefined, `${what}: builderDependencies: no image with a measurement`)
  return { subject, definition, details, measurement }
}

function subjectText(subject: readonly { readonly name: string; readonly digest: FamilyDigest }[]): string {
  return subject.map(({ name, digest }) => `${JSON.stringify(name)} ${JSON.stringify(digest)}`).join(', ')
}

/** Checks both signatures with the keys that the hardware attests in the completion receipt. */
async function envelopeCheck(files: ResultFiles, receipts: JudgedReceipts | null): Promise<Check> {
  const name = 'slsa-envelope'
  const keys = receipts?.keys ?? null
  if (keys === null) return notChecked(name, 'there are no keys: the completion receipt cannot be read', true)
  const read = parsed(() => envelopeOf(files))
  if (!read.ok) return fail(name, read.reason)
  const [ed25519, mldsa65] = read.value.signatures
  const ids = ENVELOPE_KEYS.map(key => envelopeKeyId(key, keys[key]))
  const isNamed =
    read.value.signatures.length === ids.length &&
    read.value.signatures.every((signature, at) => signature.keyid === ids[at])
  if (!isNamed || ed25519 === undefined || mldsa65 === undefined)
    return fail(name, `the key ids are not ${ids.join(', ')}`)
  const message = preAuthEncoding(read.value.payloadType, read.value.payload)
  const signature = { ed25519: ed25519.sig, mldsa65: mldsa65.sig }
  const checks = await verifyHybrid(keys, message, signature, {
    context: new Uint8Array(0),
    verifiers: nativeVerifiers,
  })
  const bad = checks.filter(check => check.outcome !== 'pass').map(check => check.name)
  return check(name, bad.length === 0, `not good: ${bad.join(', ')}`, 'both signatures, by the keys of the receipts')
}

function envelopeOf(files: ResultFiles): Envelope {
  const envelope = readDsse(documentOf(files, RESULT_PATHS.dsse))
  const isSame = equalConstantTime(envelope.payload, documentOf(files, RESULT_PATHS.slsa))
  wellFormed(isSame, 'slsa.dsse.json: its payload is not attestations/slsa.json')
  wellFormed(envelope.payloadType === inTotoPayloadType, `slsa.dsse.json: payloadType is not ${inTotoPayloadType}`)
  return envelope
}

/** Checks that the bundle's only signature equals the first one of the envelope, byte for byte. */
function bundleCheck(files: ResultFiles): Check {
  const name = 'sigstore-bundle'
  const read: Parsed<string> = parsed(() => {
    const { envelope, hint } = readBundle(documentOf(files, RESULT_PATHS.bundle))
    const [ours] = envelopeOf(files).signatures
    const [theirs] = envelope.signatures
    const isSame =
      ours !== undefined &&
      theirs !== undefined &&
      ours.keyid === theirs.keyid &&
      equalConstantTime(ours.sig, theirs.sig) &&
      envelope.payloadType === inTotoPayloadType &&
      equalConstantTime(envelope.payload, documentOf(files, RESULT_PATHS.slsa))
    wellFormed(isSame, 'bundle.sigstore.json: its envelope is not the one of slsa.dsse.json')
    wellFormed(hint === ours.keyid, 'bundle.sigstore.json: its hint is not the key id')
    return hint
  })
  return read.ok ? pass(name, read.value) : fail(name, read.reason)
}

/** Checks that every locked package is listed: as many as the provenance has dependencies besides the source. */
function sbomCheck(files: ResultFiles, { predicate }: Provenance): Check {
  const name = 'sbom'
  const read = parsed(() => {
    const what = 'sbom.cdx.json'
    const { components } = sbomForm(parsedJson(what, documentOf(files, RESULT_PATHS.sbom)), what)
    return new Set(components.map(({ purl }) => purl))
  })
  if (!read.ok) return fail(name, read.reason)
  const wanted = predicate.buildDefinition.resolvedDependencies
    .map(dependency => dependency.uri)
    .filter(uri => uri.startsWith('pkg:'))
  const missing = wanted.filter(uri => !read.value.has(uri))
  return check(name, missing.length === 0, `it lacks ${listed(missing)}`, `${read.value.size} packages`)
}

const sbomForm = partly({ bomFormat: exactly('CycloneDX'), components: listOf(partly({ purl: text })) })

function listed(names: readonly string[]): string {
  const more = names.length - namedMax
  return names.slice(0, namedMax).join('; ') + (more > 0 ? `; and ${more} more` : '')
}
