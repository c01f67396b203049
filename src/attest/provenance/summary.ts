// A verification summary (VSA, slsa.dev/spec/v1.2/verification_summary) of a guest image, as an in-toto Statement v1 in
// a DSSE envelope. Pure; throws Malformed.
//
// The only signature is ECDSA over P-384 with SHA-384, in DER (RFC 3279, 2.2.3), as in other DSSE implementations. The
// key id names the algorithm, then the SHA-256 of the key's SubjectPublicKeyInfo in DER in hexadecimal, as in dsse.ts.

import { concat, toHex } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { dsseBytes, type Envelope, inTotoPayloadType, preAuthEncoding, readEnvelope } from './dsse.ts'
import { listOf, members, partly, type Reader, text } from './fields.ts'
import { imageBuildLevel, imageBuildType, imageProvenanceName, localImageBuilder } from './image.ts'
import { fileSha256, prettyJson } from './json.ts'
import type { ResourceDescriptor } from './slsa.ts'
import { statementType } from './statement.ts'

const summaryPredicateType = 'https://slsa.dev/verification_summary/v1'

/** Returns the URI that readers of a summary expect. */
function imageUri(name: string): string {
  return `urn:strongroom:image:${name}`
}

/** Returns the id of the signing host. `operatorKey`: the SHA-384 in its reports. */
export function hostVerifierId(operatorKey: Uint8Array): string {
  return `urn:strongroom:host:${toHex(operatorKey)}`
}

export type ImageSummary = {
  /** Name of the image. */
  readonly name: string
  /** Subjects of the verified provenance: every file of the image. */
  readonly subject: readonly ResourceDescriptor[]
  readonly provenanceSha256: string
  readonly verifierId: string
  readonly version: string
}

/** Returns the rules that an image must meet before use, as data: the summary contains their digest. */
function policyOf(name: string): Uint8Array {
  return prettyJson({
    recipe: name,
    buildType: imageBuildType,
    builder: localImageBuilder,
    files: 'each has the SHA-256 of provenance and manifest',
  })
}

/**
 * Returns the summary of an image that passed. It claims only the image's own Build level. The draft Build Environment
 * track requires Build L2 provenance for its first level, so no level of that track is reached
 * (slsa.dev/spec/draft/build-env-track-basics).
 */
export function summaryBytes(summary: ImageSummary, nowMs: number): Uint8Array {
  return prettyJson({
    _type: statementType,
    subject: summary.subject,
    predicateType: summaryPredicateType,
    predicate: {
      verifier: { id: summary.verifierId, version: { strongroom: summary.version } },
      timeVerified: new Date(nowMs).toISOString(),
      resourceUri: imageUri(summary.name),
      policy: { uri: 'urn:strongroom:image-policy:v1', digest: { sha256: fileSha256(policyOf(summary.name)) } },
      inputAttestations: [{ uri: imageProvenanceName, digest: { sha256: summary.provenanceSha256 } }],
      verificationResult: 'PASSED',
      verifiedLevels: [imageBuildLevel],
      slsaVersion: '1.2',
    },
  })
}

/** A P-384 key. `spki` is the public half in DER; `sign` returns r and s (IEEE P1363), as WebCrypto does. */
export type SummarySigner = {
  readonly spki: Uint8Array
  readonly sign: (message: Uint8Array) => Promise<Uint8Array>
}

export function summaryKeyId(spki: Uint8Array): string {
  return `ECDSA-P384:${fileSha256(spki)}`
}

/** Returns the exact bytes of the envelope. */
export async function signSummary(statement: Uint8Array, { spki, sign }: SummarySigner): Promise<Uint8Array> {
  const sig = derOf(await sign(preAuthEncoding(inTotoPayloadType, statement)))
  return dsseBytes({
    payloadType: inTotoPayloadType,
    payload: statement,
    signatures: [{ keyid: summaryKeyId(spki), sig }],
  })
}

export type ReadSummary = ImageSummary & {
  readonly keyId: string
  /** RFC 3339, UTC. */
  readonly timeVerified: string
}

/** Reads a summary's form and contents. Does not check the signature. */
export function readSummary(bytes: Uint8Array): ReadSummary {
  const what = 'verification summary'
  const envelope: Envelope = readEnvelope(parsedJson(what, bytes), what)
  const [signature, ...more] = envelope.signatures
  wellFormed(signature !== undefined && more.length === 0, `${what}: not one signature`)
  const { predicateType, subject, predicate } = document(parsedJson(what, envelope.payload), what)
  wellFormed(predicateType === summaryPredicateType, `${what}: of another type`)
  const [input, ...others] = predicate.inputAttestations
  wellFormed(input !== undefined && others.length === 0, `${what}: not one attestation`)
  const name = /^urn:strongroom:image:([a-z][a-z0-9-]{0,31})$/.exec(predicate.resourceUri)?.[1]
  wellFormed(name !== undefined, `${what}: resourceUri is no image`)
  return {
    name,
    subject,
    provenanceSha256: input.digest.sha256,
    verifierId: predicate.verifier.id,
    version: predicate.verifier.version.strongroom,
    keyId: signature.keyid,
    timeVerified: predicate.timeVerified,
  }
}

const digests: Reader<Readonly<Record<string, string>>> = (value, what) =>
  Object.fromEntries(Object.entries(members(value, what)).map(([name, hex]) => [name, text(hex, `${what}.${name}`)]))

const document = partly({
  predicateType: text,
  subject: listOf(partly({ name: text, digest: digests })),
  predicate: partly({
    verifier: partly({ id: text, version: partly({ strongroom: text }) }),
    inputAttestations: listOf(partly({ digest: partly({ sha256: text }) })),
    resourceUri: text,
    timeVerified: text,
  }),
})

const coordinateBytes = 48
const integerTag = 0x02
const sequenceTag = 0x30

/** Encodes a SEQUENCE of two INTEGERs; every length is below 128. */
function derOf(signature: Uint8Array): Uint8Array {
  wellFormed(signature.length === 2 * coordinateBytes, `signature: ${signature.length} bytes`)
  const both = [signature.subarray(0, coordinateBytes), signature.subarray(coordinateBytes)].map(integerOf)
  const contents = concat(...both)
  return concat(Uint8Array.of(sequenceTag, contents.length), contents)
}

/** Encodes a non-negative INTEGER in its shortest form. */
function integerOf(bytes: Uint8Array): Uint8Array {
  const first = bytes.findIndex(byte => byte !== 0)
  const digits = first === -1 ? bytes.subarray(-1) : bytes.subarray(first)
  const sign = (digits[0] ?? 0) >= 0x80 ? Uint8Array.of(0) : new Uint8Array(0)
  return concat(Uint8Array.of(integerTag, sign.length + digits.length), sign, digits)
}
