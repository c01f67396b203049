// DSSE envelopes (secure-systems-lab/dsse, protocol.md and envelope.md, v1.0.2) of an in-toto statement. Pure; throws
// Malformed.
//
// Our envelopes have two signatures over the same bytes. DSSE has no field for the algorithm, so the key id contains
// it: `Ed25519:` or `ML-DSA-65:`, then the SHA-256 of the key's SubjectPublicKeyInfo in DER (RFC 8410; RFC 9881) in
// hexadecimal. ML-DSA-65 follows FIPS 204 with an empty context. Only these signed bytes begin with `DSSEv1 `: no
// statement and no response receipt does.

import { concat, fromBase64, fromHex, toBase64, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { listOf, type Reader, record, text } from './fields.ts'
import { fileSha256, prettyJson } from './json.ts'

export const inTotoPayloadType = 'application/vnd.in-toto+json'

type EnvelopeSignature = { readonly keyid: string; readonly sig: Uint8Array }
export type Envelope = {
  readonly payloadType: string
  /** Exact bytes of attestations/slsa.json. */
  readonly payload: Uint8Array
  readonly signatures: readonly EnvelopeSignature[]
}

/** The raw receipt keys; ReceiptKeys of attest/receipt/receipt-keys.ts satisfies it. ML-DSA uses an empty context. */
export type EnvelopeSigner = {
  readonly publicKeys: { readonly ed25519: Uint8Array; readonly mldsa65: Uint8Array }
  readonly sign: (message: Uint8Array) => KeyPairSignature | Promise<KeyPairSignature>
}
type KeyPairSignature = { readonly ed25519: Uint8Array; readonly mldsa65: Uint8Array }

/** Signs a payload. The Ed25519 signature comes first. */
export async function signEnvelope(payload: Uint8Array, signer: EnvelopeSigner): Promise<Envelope> {
  const signatures = await signer.sign(preAuthEncoding(inTotoPayloadType, payload))
  return {
    payloadType: inTotoPayloadType,
    payload,
    signatures: ENVELOPE_KEYS.map(name => ({
      keyid: envelopeKeyId(name, signer.publicKeys[name]),
      sig: signatures[name],
    })),
  }
}

export const ENVELOPE_KEYS = ['ed25519', 'mldsa65'] as const
type EnvelopeKey = (typeof ENVELOPE_KEYS)[number]

/** SubjectPublicKeyInfo up to the raw key: Ed25519 (OID 1.3.101.112) and ML-DSA-65 (2.16.840.1.101.3.4.3.18). */
const SPKI = {
  ed25519: { label: 'Ed25519', prefix: '302a300506032b6570032100', sizeBytes: 32 },
  mldsa65: { label: 'ML-DSA-65', prefix: '308207b2300b0609608648016503040312038207a100', sizeBytes: 1952 },
} as const satisfies Record<EnvelopeKey, { label: string; prefix: string; sizeBytes: number }>

/** Returns the SubjectPublicKeyInfo in DER. */
export function spkiOf(key: EnvelopeKey, publicKey: Uint8Array): Uint8Array {
  const { label, prefix, sizeBytes } = SPKI[key]
  const head = fromHex(prefix)
  wellFormed(head !== null && publicKey.length === sizeBytes, `${label} key: ${publicKey.length} bytes`)
  return concat(head, publicKey)
}

export function envelopeKeyId(key: EnvelopeKey, publicKey: Uint8Array): string {
  return `${SPKI[key].label}:${fileSha256(spkiOf(key, publicKey))}`
}

/** Returns DSSE's pre-authentication encoding (PAE): the bytes that are signed. */
export function preAuthEncoding(payloadType: string, payload: Uint8Array): Uint8Array {
  const type = utf8(payloadType)
  return concat(utf8(`DSSEv1 ${type.length} `), type, utf8(` ${payload.length} `), payload)
}

/** Returns the members of an envelope's JSON. */
export function envelopeJson({ payloadType, payload, signatures }: Envelope): Readonly<Record<string, unknown>> {
  return {
    payload: toBase64(payload),
    payloadType,
    signatures: signatures.map(({ keyid, sig }) => ({ keyid, sig: toBase64(sig) })),
  }
}

/** Returns the exact bytes of attestations/slsa.dsse.json. */
export function dsseBytes(envelope: Envelope): Uint8Array {
  return prettyJson(envelopeJson(envelope))
}

export function readDsse(bytes: Uint8Array): Envelope {
  const what = 'slsa.dsse.json'
  return readEnvelope(parsedJson(what, bytes), what)
}

const signatureCountMax = 8

const base64: Reader<Uint8Array> = (value, what) => {
  const bytes = fromBase64(text(value, what))
  wellFormed(bytes !== null, `${what}: not canonical base64`)
  return bytes
}

const envelope = record({
  payload: base64,
  payloadType: text,
  signatures: listOf(record({ keyid: text, sig: base64 })),
})

export function readEnvelope(value: unknown, what: string): Envelope {
  const read = envelope(value, what)
  wellFormed(read.signatures.length <= signatureCountMax, `${what}: more than ${signatureCountMax} signatures`)
  return read
}
