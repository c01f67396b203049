// Evidence of an Azure vTPM in the JSON of Confidential Containers (guest-components, az-snp-vtpm and az-tdx-vtpm) and
// of others: quote, PCR values, HCL report, and VCEK or TDX quote in one file. Pure; throws Malformed. Decides nothing
// about trust.
//
// version 0, without a number   {"quote": {"message", "signature", "pcrs"}, "report", "vcek"}: lists of bytes, and PEM
// versions 1 and 2              {"version": 1, "tpm_quote": {…}, "hcl_report", "vcek"}: hexadecimal, and base64
// of TDX                        "td_quote" instead of "vcek"; version 0 has lists, with the names of version 1
// attestation-rs, kettle        {"platform": "az-snp", "evidence": {…}} around version 1 or 2; of TDX "az-tdx"
// c8s                           {"challenge", "evidence": {…}, "csr"} around that of attestation-rs
//
// Nothing that surrounds the evidence is signed, so it is ignored.

import { parsedJson } from '../../../attest/encoding/json.ts'
import { Malformed, wellFormed } from '../../../attest/malformed.ts'
import { concat, fromBase64, fromBase64Url, utf8 } from '../../../base/bytes.ts'
import { pastedHex } from '../../../terminal/hex.ts'

/** Size limit. Real files have 8 KiB, in lists of bytes 14 KiB; of TDX 13 and 26 KiB. */
export const bundleBytesMax = 128 * 1024

export type VtpmBundle = {
  /** Not signed. From 2 on the report, too, must be for the nonce (report-nonce.ts). */
  readonly version: 0 | 1 | 2
  /** TPMS_ATTEST. */
  readonly quote: Uint8Array
  readonly signature: Uint8Array
  /** Values of the quoted PCRs, in the order of the quote. */
  readonly pcrs: Uint8Array
  readonly report: Uint8Array
  /** DER or PEM; null if the bundle has none, as of TDX. */
  readonly vek: Uint8Array | null
  /** Null of SNP. */
  readonly tdQuote: Uint8Array | null
}

/** Kinds of vTPM whose evidence is in bundles (kinds.ts): hardware, and name of the platform in attestation-rs. */
export const BUNDLE_KINDS = {
  'azure-hcl': { hardware: 'SNP', machine: 'an SNP machine', platform: 'az-snp' },
  'azure-tdx': { hardware: 'TDX', machine: 'a TDX machine', platform: 'az-tdx' },
} as const
export type BundleKind = keyof typeof BUNDLE_KINDS

const what = 'evidence'
const pcrBytes = 32
const pcrsMax = 24

/** Throws Malformed for a bundle of other hardware, whatever platform it names. */
export function readVtpmBundle(bytes: Uint8Array, kind: BundleKind): VtpmBundle {
  const bundle = unwrapped(objectOf(parsedJson(what, bytes), what), kind)
  const isTdx = BUNDLE_KINDS[kind].hardware === 'TDX'
  const hasPart = (name: string) => bundle[name] !== undefined && bundle[name] !== null
  wellFormed(isTdx || !hasPart('td_quote'), `${what}: of a TDX machine, which --kind azure-tdx verifies`)
  wellFormed(!isTdx || !hasPart('vcek'), `${what}: of an SNP machine, which --kind azure-hcl verifies`)
  const { version = 0 } = bundle
  wellFormed(
    version === 0 || version === 1 || version === 2,
    `${what}.version: ${text(version)} is neither 1 nor 2, and not absent as in version 0`,
  )
  const isListed = version === 0
  const isFirst = isListed && !isTdx
  const [quoteName, reportName] = isFirst ? (['quote', 'report'] as const) : (['tpm_quote', 'hcl_report'] as const)
  const quote = objectOf(bundle[quoteName], `${what}.${quoteName}`)
  const { pcrs } = quote
  const isList = Array.isArray(pcrs) && pcrs.length >= 1 && pcrs.length <= pcrsMax
  wellFormed(isList, `${what}.${quoteName}.pcrs: not a list of 1 to ${pcrsMax} values`)
  const decode = isListed ? listOf : hexOf
  const decodeLong = isListed ? listOf : base64Of
  const values = pcrs.map((value, at) => {
    const name = `${what}.${quoteName}.pcrs[${at}]`
    const pcr = decode(value, name)
    wellFormed(pcr.length === pcrBytes, `${name}: ${pcr.length} bytes, not ${pcrBytes}`)
    return pcr
  })
  return {
    version,
    quote: decode(quote.message, `${what}.${quoteName}.message`),
    signature: decode(quote.signature, `${what}.${quoteName}.signature`),
    pcrs: concat(...values),
    report: decodeLong(bundle[reportName], `${what}.${reportName}`),
    vek: hasPart('vcek') ? certificateOf(bundle.vcek) : null,
    tdQuote: isTdx ? decodeLong(bundle.td_quote, `${what}.td_quote`) : null,
  }
}

type Fields = Readonly<Record<string, unknown>>

/** Returns the bundle inside the envelopes: a request's, and one that names the platform. */
function unwrapped(document: Fields, kind: BundleKind): Fields {
  const isRequest = document.platform === undefined && document.evidence !== undefined
  const bundle = isRequest ? objectOf(document.evidence, `${what}.evidence`) : document
  const { platform } = bundle
  if (platform === undefined) return bundle
  const expected = BUNDLE_KINDS[kind].platform
  const [other] = Object.entries(BUNDLE_KINDS).find(([, named]) => named.platform === platform) ?? []
  const advice = other === undefined ? '' : `, which is for --kind ${other}`
  wellFormed(platform === expected, `${what}.platform: ${text(platform)}${advice}: not "${expected}"`)
  return objectOf(bundle.evidence, `${what}.evidence`)
}

function objectOf(value: unknown, name: string): Fields {
  wellFormed(typeof value === 'object' && value !== null && !Array.isArray(value), `${name}: missing or not an object`)
  return Object.fromEntries(Object.entries(value))
}

function hexOf(value: unknown, name: string): Uint8Array {
  const bytes = typeof value === 'string' ? pastedHex(value) : null
  if (bytes === null || bytes.length === 0) throw new Malformed(`${name}: missing or not bytes in hexadecimal`)
  return bytes
}

/** Decodes base64 of either alphabet. The crate that writes version 1 pads base64url. */
function base64Of(value: unknown, name: string): Uint8Array {
  const bytes = typeof value === 'string' ? (fromBase64(value) ?? fromBase64Url(value.replace(/={1,2}$/, ''))) : null
  if (bytes === null || bytes.length === 0) throw new Malformed(`${name}: missing or not bytes in base64`)
  return bytes
}

function listOf(value: unknown, name: string): Uint8Array {
  const isByte = (entry: unknown) => Number.isInteger(entry) && Number(entry) >= 0 && Number(entry) <= 255
  const isBytes = Array.isArray(value) && value.length > 0 && value.every(isByte)
  wellFormed(isBytes, `${name}: missing or not a list of bytes`)
  return Uint8Array.from(value)
}

/** Returns PEM unchanged, and DER from base64. */
function certificateOf(value: unknown): Uint8Array {
  if (typeof value === 'string' && value.startsWith('-----BEGIN ')) return utf8(value)
  return base64Of(value, `${what}.vcek`)
}

function text(value: unknown): string {
  return JSON.stringify(value).slice(0, 32)
}
