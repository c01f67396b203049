// TDX quotes of versions 4 and 5, with TD reports 1.0 and 1.5. Pure; throws Malformed. verify.ts decides whether to
// trust them. Intel TDX DCAP Quoting Library API, appendix A (quote formats 4 and 5); integers are little-endian.

import { isZero, type Layout, layoutBytes, readFields, readRecord, type Values } from '../encoding/layout.ts'
import { reader } from '../encoding/reader.ts'
import { wellFormed } from '../malformed.ts'

/** Limit in bytes. Quotes arrive in buffers of fixed sizes, padded with zeros. */
export const quoteBytesMax = 16 * 1024

/** [offset, size]. Earlier formats had the SVNs of QE and PCE in `reserved`. */
export const HEADER = {
  version: [0, 2],
  attestationKeyType: [2, 2],
  teeType: [4, 4],
  reserved8: [8, 4],
  qeVendorId: [12, 16],
  userData: [28, 20],
} as const satisfies Layout

/** The TD quote body of TDX 1.0, with which that of TDX 1.5 begins. */
export const TD_REPORT = {
  teeTcbSvn: [0, 16],
  mrSeam: [16, 48],
  mrSignerSeam: [64, 48],
  seamAttributes: [112, 8],
  tdAttributes: [120, 8],
  xfam: [128, 8],
  mrTd: [136, 48],
  mrConfigId: [184, 48],
  mrOwner: [232, 48],
  mrOwnerConfig: [280, 48],
  rtmr0: [328, 48],
  rtmr1: [376, 48],
  rtmr2: [424, 48],
  rtmr3: [472, 48],
  reportData: [520, 64],
} as const satisfies Layout

/** TDX 1.5 adds the SVNs of a module updated while TDs ran, and a measurement of service TDs. */
export const TD_REPORT_15 = {
  ...TD_REPORT,
  teeTcbSvn2: [584, 16],
  mrServiceTd: [600, 48],
} as const satisfies Layout

/** REPORT_BODY of an SGX enclave, here of the quoting enclave. Intel SDM volume 3D, table 36-21. */
export const ENCLAVE_REPORT = {
  cpuSvn: [0, 16],
  miscSelect: [16, 4],
  reserved20: [20, 28],
  attributes: [48, 16],
  mrEnclave: [64, 32],
  reserved96: [96, 32],
  mrSigner: [128, 32],
  reserved160: [160, 96],
  isvProdId: [256, 2],
  isvSvn: [258, 2],
  reserved260: [260, 60],
  reportData: [320, 64],
} as const satisfies Layout

export type QuoteHeader = Values<typeof HEADER>
export type EnclaveReport = Values<typeof ENCLAVE_REPORT>
export type TdReport = Values<typeof TD_REPORT> & {
  readonly version: '1.0' | '1.5'
  /** Null in a report of TDX 1.0. */
  readonly added: { readonly teeTcbSvn2: Uint8Array; readonly mrServiceTd: Uint8Array } | null
}

export type QuoteSignature = {
  /** R and S, big-endian, 32 bytes each. The key consists of X and Y in the same form. */
  readonly signature: Uint8Array
  readonly attestationKey: Uint8Array
  readonly qeReportBytes: Uint8Array
  readonly qeReport: EnclaveReport
  readonly qeReportSignature: Uint8Array
  readonly qeAuthData: Uint8Array
  /** PEM: the PCK certificate and the certificates above it. */
  readonly pckChain: Uint8Array
}

export type TdxQuote = QuoteSignature & {
  readonly version: 4 | 5
  readonly header: QuoteHeader
  readonly report: TdReport
  /** The bytes that the attestation key signs: header, in version 5 the body's type and size, and the body. */
  readonly signedBytes: Uint8Array
}

export const TEE_TDX = 0x81
/** ECDSA-256-with-P-256. */
export const KEY_TYPE_P256 = 2
/** 939a7233-f79c-4ca9-940a-0db3957f0607. */
export const INTEL_QE_VENDOR = '939a7233f79c4ca9940a0db3957f0607'

export const BODY_TYPES = { '1.0': 2, '1.5': 3 } as const
const CERTIFICATION = { pckChain: 5, qeReport: 6 } as const
const headerBytes = layoutBytes(HEADER)
const qeAuthDataBytesMax = 1024
const pckChainBytesMax = 12 * 1024

/** Decodes a quote. Throws Malformed that names the field. Copies the fields. */
export function decodeQuote(bytes: Uint8Array): TdxQuote {
  wellFormed(bytes.length <= quoteBytesMax, `TDX quote: ${bytes.length} bytes, at most ${quoteBytesMax}`)
  const header = readFields('TDX quote header', bytes, HEADER)
  const { version } = header
  wellFormed(version === 4 || version === 5, `TDX quote: version ${version} is not 4 or 5`)
  const { attestationKeyType: keyType, teeType } = header
  wellFormed(keyType === KEY_TYPE_P256, `TDX quote: attestationKeyType ${keyType} is not 2, ECDSA on P-256`)
  wellFormed(teeType === TEE_TDX, `TDX quote: teeType 0x${teeType.toString(16)} is not 0x81, TDX`)
  const rest = reader(new Uint8Array(bytes.subarray(headerBytes)), 'TDX quote', 'little')
  const kind = version === 4 ? '1.0' : bodyKind(rest.u16())
  const reportBytes = layoutBytes(kind === '1.0' ? TD_REPORT : TD_REPORT_15)
  if (version === 5) {
    const said = rest.u32()
    wellFormed(said === reportBytes, `TDX quote: a body of ${said} bytes, not ${reportBytes}`)
  }
  const body = rest.bytes(reportBytes)
  const signedBytes = new Uint8Array(bytes.subarray(0, bytes.length - rest.left()))
  const signatureBytes = rest.u32()
  wellFormed(
    signatureBytes <= rest.left(),
    `TDX quote: a signature of ${signatureBytes} bytes, ${rest.left()} are left`,
  )
  const signature = decodeSignature(rest.bytes(signatureBytes))
  wellFormed(isZero(rest.bytes(rest.left())), 'TDX quote: bytes after its end that are not zero')
  return { version, header, report: decodeReport(kind, body), signedBytes, ...signature }
}

function bodyKind(type: number): '1.0' | '1.5' {
  wellFormed(type === BODY_TYPES['1.0'] || type === BODY_TYPES['1.5'], `TDX quote: body type ${type} is no TD report`)
  return type === BODY_TYPES['1.0'] ? '1.0' : '1.5'
}

function decodeReport(version: '1.0' | '1.5', body: Uint8Array): TdReport {
  const fields = readFields('TD report', body, TD_REPORT)
  if (version === '1.0') return { ...fields, version, added: null }
  const { teeTcbSvn2, mrServiceTd } = readRecord('TD report', body, TD_REPORT_15)
  return { ...fields, version, added: { teeTcbSvn2, mrServiceTd } }
}

/** Decodes signature data of ECDSA-256: certification data of type 6 that contains certification data of type 5. */
function decodeSignature(bytes: Uint8Array): QuoteSignature {
  const what = 'TDX quote signature'
  const outer = reader(bytes, what, 'little')
  const signature = outer.bytes(64)
  const attestationKey = outer.bytes(64)
  const outerType = outer.u16()
  wellFormed(outerType === CERTIFICATION.qeReport, `${what}: certification data of type ${outerType}, not 6`)
  const outerBytes = outer.u32()
  wellFormed(outerBytes === outer.left(), `${what}: certification data of ${outerBytes} bytes, not ${outer.left()}`)
  const qeReportBytes = outer.bytes(layoutBytes(ENCLAVE_REPORT))
  const qeReportSignature = outer.bytes(64)
  const qeAuthData = outer.sized(qeAuthDataBytesMax)
  const innerType = outer.u16()
  wellFormed(innerType === CERTIFICATION.pckChain, `${what}: QE certification data of type ${innerType}, not 5`)
  const innerBytes = outer.u32()
  wellFormed(innerBytes <= pckChainBytesMax, `${what}: a PCK chain of ${innerBytes} bytes, at most ${pckChainBytesMax}`)
  const padded = outer.bytes(innerBytes)
  outer.end()
  const qeReport = readRecord('QE report', qeReportBytes, ENCLAVE_REPORT)
  const pckChain = withoutNul(padded)
  return { signature, attestationKey, qeReportBytes, qeReport, qeReportSignature, qeAuthData, pckChain }
}

/** Removes the NUL with which Intel's provider ends the text. */
function withoutNul(text: Uint8Array): Uint8Array {
  return text.at(-1) === 0 ? text.subarray(0, -1) : text
}
