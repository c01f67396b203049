// The JSON form of receipts, with limits for every size. Pure; verify.ts decides whether to trust one.

import { fromBase64Url, toBase64Url } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { reportSizeBytes } from '../report/report.ts'
import { type HybridSignature, PUBLIC_KEY_BYTES, type PublicKeys, SIGNATURE_BYTES } from './public-keys.ts'
import { STATEMENT_LIMITS, statementFormat } from './statement.ts'

const platforms = ['snp', 'simulated'] as const
export type Platform = (typeof platforms)[number]

/**
 * Evidence that suffices to verify offline. DER, except the report (AMD 56860, table 23) and `tpm`, which verifiers of
 * TPMs read.
 */
export type ReceiptEvidence = {
  readonly report: Uint8Array
  readonly vek: Uint8Array
  /** The intermediate and the ARK. */
  readonly chain: readonly [intermediate: Uint8Array, ark: Uint8Array]
  readonly crl?: Uint8Array | undefined
  readonly tpm?: Uint8Array | undefined
}

export type DecodedReceipt = {
  readonly platform: Platform
  /** The exact signed bytes. */
  readonly statement: Uint8Array
  readonly keys: PublicKeys
  readonly signatures: HybridSignature
  readonly evidence: ReceiptEvidence
}

/** The JSON. Every leaf except the first two is base64url without padding. */
export type Receipt = {
  readonly format: typeof statementFormat
  readonly platform: Platform
  readonly statement: string
  readonly keys: { readonly [Name in keyof PublicKeys]: string }
  readonly signatures: { readonly [Name in keyof HybridSignature]: string }
  readonly evidence: {
    readonly report: string
    readonly vek: string
    readonly chain: readonly [string, string]
    readonly crl?: string
    readonly tpm?: string
  }
}

/** Minimum and maximum sizes of decoded values, in bytes. */
const RECEIPT_LIMITS = {
  textLengthMax: 1024 * 1024,
  statement: [1, STATEMENT_LIMITS.sizeBytesMax],
  report: [reportSizeBytes, reportSizeBytes],
  certificate: [1, 8 * 1024],
  crl: [1, 32 * 1024],
  tpm: [1, 512 * 1024],
} as const

type Sizes = readonly [min: number, max: number]

export function encodeReceipt(receipt: DecodedReceipt): Receipt {
  const { keys, signatures, evidence } = receipt
  const [intermediate, ark] = evidence.chain
  return {
    format: statementFormat,
    platform: receipt.platform,
    statement: toBase64Url(receipt.statement),
    keys: {
      ed25519: toBase64Url(keys.ed25519),
      mldsa65: toBase64Url(keys.mldsa65),
      x25519: toBase64Url(keys.x25519),
      mlkem768: toBase64Url(keys.mlkem768),
    },
    signatures: { ed25519: toBase64Url(signatures.ed25519), mldsa65: toBase64Url(signatures.mldsa65) },
    evidence: {
      report: toBase64Url(evidence.report),
      vek: toBase64Url(evidence.vek),
      chain: [toBase64Url(intermediate), toBase64Url(ark)],
      ...(evidence.crl === undefined ? {} : { crl: toBase64Url(evidence.crl) }),
      ...(evidence.tpm === undefined ? {} : { tpm: toBase64Url(evidence.tpm) }),
    },
  }
}

/**
 * Decodes text or parsed JSON. Throws Malformed for unknown or missing fields, wrong sizes and non-canonical base64url.
 */
export function decodeReceipt(json: unknown): DecodedReceipt {
  const envelope = record(typeof json === 'string' ? parse(json) : json, 'receipt', [
    'format',
    'platform',
    'statement',
    'keys',
    'signatures',
    'evidence',
  ])
  wellFormed(envelope.format === statementFormat, 'receipt: format')
  const platform = platforms.find(kind => kind === envelope.platform)
  wellFormed(platform !== undefined, 'receipt: platform')
  const keys = record(envelope.keys, 'receipt: keys', ['ed25519', 'mldsa65', 'x25519', 'mlkem768'])
  const signatures = record(envelope.signatures, 'receipt: signatures', ['ed25519', 'mldsa65'])
  return {
    platform,
    statement: parseBytes(envelope.statement, 'statement', RECEIPT_LIMITS.statement),
    keys: {
      ed25519: parseBytes(keys.ed25519, 'keys.ed25519', exactly(PUBLIC_KEY_BYTES.ed25519)),
      mldsa65: parseBytes(keys.mldsa65, 'keys.mldsa65', exactly(PUBLIC_KEY_BYTES.mldsa65)),
      x25519: parseBytes(keys.x25519, 'keys.x25519', exactly(PUBLIC_KEY_BYTES.x25519)),
      mlkem768: parseBytes(keys.mlkem768, 'keys.mlkem768', exactly(PUBLIC_KEY_BYTES.mlkem768)),
    },
    signatures: {
      ed25519: parseBytes(signatures.ed25519, 'signatures.ed25519', exactly(SIGNATURE_BYTES.ed25519)),
      mldsa65: parseBytes(signatures.mldsa65, 'signatures.mldsa65', exactly(SIGNATURE_BYTES.mldsa65)),
    },
    evidence: evidenceOf(envelope.evidence),
  }
}

function evidenceOf(value: unknown): ReceiptEvidence {
  const evidence = record(value, 'receipt: evidence', ['report', 'vek', 'chain'], ['crl', 'tpm'])
  const { chain } = evidence
  wellFormed(Array.isArray(chain) && chain.length === 2, 'receipt: evidence.chain is not a pair')
  return {
    report: parseBytes(evidence.report, 'evidence.report', RECEIPT_LIMITS.report),
    vek: derOf(evidence.vek, 'evidence.vek', RECEIPT_LIMITS.certificate),
    chain: [
      derOf(chain[0], 'evidence.chain[0]', RECEIPT_LIMITS.certificate),
      derOf(chain[1], 'evidence.chain[1]', RECEIPT_LIMITS.certificate),
    ],
    ...(Object.hasOwn(evidence, 'crl') ? { crl: derOf(evidence.crl, 'evidence.crl', RECEIPT_LIMITS.crl) } : {}),
    ...(Object.hasOwn(evidence, 'tpm') ? { tpm: parseBytes(evidence.tpm, 'evidence.tpm', RECEIPT_LIMITS.tpm) } : {}),
  }
}

/** Parses JSON without duplicate names: JSON.parse would silently use the last one, another reader the first. */
function parse(text: string): unknown {
  wellFormed(text.length <= RECEIPT_LIMITS.textLengthMax, 'receipt: too long')
  // No receipt needs an escape, and without escapes, counting the quotation marks suffices.
  wellFormed(!text.includes('\\'), 'receipt: an escape in the JSON')
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (cause) {
    throw new Malformed('receipt: not JSON', { cause })
  }
  wellFormed(text.split('"').length - 1 === 2 * stringCountOf(json, depthMax), 'receipt: a name twice')
  return json
}

const depthMax = 4

/** Returns the number of strings and of member names. */
function stringCountOf(value: unknown, depthLeft: number): number {
  if (typeof value === 'string') return 1
  if (typeof value !== 'object' || value === null) return 0
  wellFormed(depthLeft > 0, 'receipt: nested too deeply')
  const names = Array.isArray(value) ? 0 : Object.keys(value).length
  return Object.values(value).reduce((sum: number, inner) => sum + stringCountOf(inner, depthLeft - 1), names)
}

function record(
  value: unknown,
  what: string,
  required: readonly string[],
  optional: readonly string[] = [],
): Readonly<Record<string, unknown>> {
  wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `${what}: not an object`)
  for (const name of required) wellFormed(Object.hasOwn(value, name), `${what}: no ${name}`)
  const isKnown = (name: string) => required.includes(name) || optional.includes(name)
  wellFormed(Object.keys(value).every(isKnown), `${what}: unknown field`)
  return value as Record<string, unknown>
}

function exactly(sizeBytes: number): Sizes {
  return [sizeBytes, sizeBytes]
}

function parseBytes(value: unknown, what: string, [min, max]: Sizes): Uint8Array {
  // Check the length before decoding anything.
  const fits = typeof value === 'string' && value.length <= Math.ceil((max * 4) / 3)
  const bytes = fits ? fromBase64Url(value) : null
  wellFormed(bytes !== null && bytes.length >= min && bytes.length <= max, `receipt: ${what}`)
  return bytes
}

/** Accepts no PEM: receipts contain each certificate in exactly one form. */
function derOf(value: unknown, what: string, sizes: Sizes): Uint8Array {
  const bytes = parseBytes(value, what, sizes)
  wellFormed(bytes[0] === 0x30, `receipt: ${what} is not DER`)
  return bytes
}
