// Forms of saved evidence besides the 1184 bytes of a report: text, extended reports, the kernel's response, Azure's
// HCL report, protobuf messages and JSON bundles. Pure; throws Malformed.

import { gunzipSync } from 'node:zlib'
import { wellFormed } from '../../attest/malformed.ts'
import { certificateTableBytesMax, readCertificateTable } from '../../attest/report/certificate-table.ts'
import { reportSizeBytes, reportVersions } from '../../attest/report/report.ts'
import { fromBase64, fromBase64Url } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { bundleEvidence } from './bundles.ts'
import { bareReport, evidenceBytesMax, type ReportEvidence } from './evidence.ts'
import { protobufEvidence } from './protobuf.ts'

/** Limit on the layers around a report: JSON, base64 in it, gzip in that. */
const layersMax = 4

export function readEvidenceForm(bytes: Uint8Array, layer = 0): ReportEvidence {
  const found = binaryEvidence(bytes)
  if (found !== null) return found
  wellFormed(layer < layersMax, `evidence: more than ${layersMax} forms within each other`)
  const inner = (content: Uint8Array) => readEvidenceForm(content, layer + 1)
  if (startsWith(bytes, gzipMagic)) return inner(unzipped(bytes))
  if (bytes.find(byte => !BLANKS.includes(byte)) === brace) return bundleEvidence(bytes, inner)
  const text = asciiText(bytes)
  if (text === null) return protobufEvidence(bytes) ?? bareReport(bytes)
  const decoded = bytesOfText(text)
  return decoded === null ? bareReport(bytes) : inner(decoded)
}

/**
 * Returns the bytes of a TDX quote given as bytes or as text. The first bytes of a quote, version 4 or 5, are not text.
 */
export function quoteBytes(bytes: Uint8Array): Uint8Array {
  const text = asciiText(bytes)
  return text === null ? bytes : (bytesOfText(text) ?? bytes)
}

/** Decodes hexadecimal, base64 or base64url, padded or not; null for anything else. */
function bytesOfText(text: string): Uint8Array | null {
  const decoded = pastedHex(text) ?? fromBase64(text) ?? fromBase64Url(text.replace(/={1,2}$/, ''))
  return decoded === null || decoded.length === 0 ? null : decoded
}

function binaryEvidence(bytes: Uint8Array): ReportEvidence | null {
  if (startsWith(bytes, hclMagic)) return bareReport(bytes)
  const isResponse = bytes.length >= responseHeaderBytes + reportSizeBytes && isResponseHeader(bytes)
  const content = isResponse ? bytes.subarray(responseHeaderBytes) : bytes
  if (!isReportStart(content)) return null
  const report = content.slice(0, reportSizeBytes)
  const rest = content.subarray(reportSizeBytes)
  if (rest.every(byte => byte === 0)) return bareReport(report, isResponse ? "the firmware's response" : null)
  wellFormed(rest.length <= certificateTableBytesMax, `extended report: a certificate table of ${rest.length} bytes`)
  return { ...bareReport(report, 'an extended SNP report'), ...fromTable(rest) }
}

/** Reports whether the bytes begin with a report's version, a small number as a u32. No other form here does. */
function isReportStart(bytes: Uint8Array): boolean {
  if (bytes.length < reportSizeBytes) return false
  const version = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true)
  return reportVersions.some(known => known === version)
}

/** Header of MSG_REPORT_RSP (AMD 56860, table 25): status 0 and the size of the report, then reserved zeros. */
const responseHeaderBytes = 32

function isResponseHeader(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset)
  const isReserved = bytes.subarray(8, responseHeaderBytes).every(byte => byte === 0)
  return view.getUint32(0, true) === 0 && view.getUint32(4, true) === reportSizeBytes && isReserved
}

/** GUIDs of the certificate table (AMD 56421, table 13). */
const CERTIFICATES = {
  '63da758d-e664-4564-adc5-f4b93be8accd': 'vek',
  'a8074bc2-a25a-483e-aae6-39c045a0b8a1': 'vek',
  '4ab7b379-bbac-4fe4-a02f-05aef327c782': 'chain',
  'c0b406a4-a803-4952-9743-3fb6014cd0ae': 'chain',
  '92f81bc3-5811-4d3d-97ff-d19f88dc67ea': 'crl',
} as const satisfies Record<string, 'vek' | 'chain' | 'crl'>

function fromTable(table: Uint8Array): Pick<ReportEvidence, 'vek' | 'chain' | 'crl' | 'table'> {
  const entries = readCertificateTable(table)
  const of = (kind: 'vek' | 'chain' | 'crl') =>
    entries.flatMap(({ guid, bytes }) => (kindOf(guid) === kind ? [bytes] : []))
  return { vek: of('vek')[0] ?? null, chain: of('chain'), crl: of('crl')[0] ?? null, table: table.slice() }
}

function kindOf(guid: string): 'vek' | 'chain' | 'crl' | null {
  return Object.hasOwn(CERTIFICATES, guid) ? CERTIFICATES[guid as keyof typeof CERTIFICATES] : null
}

const gzipMagic = [0x1f, 0x8b]
/** `HCLA`; attest/report/form.ts reads the rest. */
const hclMagic = [0x48, 0x43, 0x4c, 0x41]

/** Reports whether the bytes begin like an HCL report, of any hardware. */
export function isHclStart(bytes: Uint8Array): boolean {
  return startsWith(bytes, hclMagic)
}

function startsWith(bytes: Uint8Array, magic: readonly number[]): boolean {
  return magic.every((byte, at) => bytes[at] === byte)
}

function unzipped(bytes: Uint8Array): Uint8Array {
  const content = resultOr(() => new Uint8Array(gunzipSync(bytes, { maxOutputLength: evidenceBytesMax })), null)
  wellFormed(content !== null, `evidence: gzip that does not unpack to at most ${evidenceBytesMax} bytes`)
  return content
}

const BLANKS = [0x20, 0x0a, 0x0d, 0x09]
const brace = 0x7b

/** Returns the text without blanks; null unless every byte is printable ASCII. */
function asciiText(bytes: Uint8Array): string | null {
  const isText = bytes.every(byte => (byte > 0x20 && byte < 0x7f) || BLANKS.includes(byte))
  return isText ? Buffer.from(bytes).toString('latin1').replaceAll(/\s+/g, '') : null
}
