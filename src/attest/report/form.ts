// Formats of an SNP report: plain, or inside the attestation report of Azure's paravisor (HCL). Pure. Layout:
// microsoft/openvmm, openhcl_attestation_protocol, igvm_attest/get.rs: header, hardware report, request data, claims
// (JSON). Only the report is signed. Its REPORT_DATA contains a hash of the claims; nothing authenticates the wrapper
// around the two.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { isZero, type Layout, layoutBytes, readFields } from '../encoding/layout.ts'
import { type Hash, sha256, sha384, sha512 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { type Check, check, notChecked } from '../verdict.ts'
import { FIELDS, reportSizeBytes } from './report.ts'

/** [offset, size], little-endian. Claims follow, after an extension if the request data have version 2. */
export const HCL_FIELDS = {
  magic: [0x000, 4],
  version: [0x004, 4],
  reportSize: [0x008, 4],
  requestType: [0x00c, 4],
  status: [0x010, 4],
  reserved: [0x014, 12],
  report: [0x020, reportSizeBytes],
  dataSize: [0x4c0, 4],
  dataVersion: [0x4c4, 4],
  reportType: [0x4c8, 4],
  hashType: [0x4cc, 4],
  claimsSize: [0x4d0, 4],
} as const satisfies Layout

/** Smallest HCL report: one without claims. */
const hclSizeBytesMin = layoutBytes(HCL_FIELDS)
/** Largest HCL report. It is stored in one TPM NV index, which is far smaller. */
export const hclSizeBytesMax = 65_536

/** `HCLA`, little-endian. */
const hclMagic = 0x414c_4348
/** SNP_VM_REPORT and TDX_VM_REPORT. */
export const HCL_REPORT_TYPES = { SNP: 2, TDX: 4 } as const

/** Header versions: Azure's first paravisor wrote 1, OpenHCL writes 2, with the same layout. */
const headerVersions = [1, 2]
/** Bytes of the request data's extension, by version: a bitmap of the host's capabilities. */
const EXTENSION_BYTES: Readonly<Record<number, number>> = { 1: 0, 2: 4 }
/** Bytes of the request data's fields. `dataSize` counts them together with the extension and the claims. */
const dataHeaderBytes = 20

/** Hashes by IgvmAttestHashType. */
const HASHES: Readonly<Record<number, Hash>> = { 1: sha256, 2: sha384, 3: sha512 }
export const hclHashTypeSha256 = 1

type HclReport = {
  readonly form: 'azure-hcl'
  /** The SNP report alone, for decodeReport and verifyReportSignature; of TDX a TD report, and zeros after it. */
  readonly report: Uint8Array
  /** JSON, the exact hashed bytes; empty if there are no claims. Trust them only after `hclClaimsCheck`. */
  readonly claims: Uint8Array
  /** The hash function that REPORT_DATA claims to use. */
  readonly hashType: number
}

export type FoundReport = { readonly form: 'plain'; readonly report: Uint8Array } | HclReport

/**
 * Finds the report. Throws Malformed unless the bytes are 1184 long or an HCL report with an SNP report, which is not
 * parsed here.
 */
export function findReport(bytes: Uint8Array): FoundReport {
  if (bytes.length === reportSizeBytes) return { form: 'plain', report: Uint8Array.from(bytes) }
  return readHclReport(bytes)
}

/** Reads an HCL report with the report of this hardware in it. Only zeros may follow the claims. Throws Malformed. */
export function readHclReport(bytes: Uint8Array, hardware: keyof typeof HCL_REPORT_TYPES = 'SNP'): HclReport {
  const fields = bytes.length < hclSizeBytesMin ? null : readFields('HCL report', bytes, HCL_FIELDS)
  const other = hardware === 'SNP' ? `neither a report of ${reportSizeBytes} nor an HCL report` : 'not an HCL report'
  wellFormed(fields?.magic === hclMagic, `${hardware} report: ${bytes.length} bytes are ${other}`)
  wellFormed(bytes.length <= hclSizeBytesMax, `HCL report: ${bytes.length} bytes are more than ${hclSizeBytesMax}`)
  const { report, reportSize: size, reportType, version, dataVersion, dataSize, claimsSize, hashType } = fields
  wellFormed(headerVersions.includes(version), `HCL report: header version ${version} is not 1 or 2`)
  wellFormed(
    size >= hclSizeBytesMin && size <= bytes.length,
    `HCL report: size ${size} does not fit ${bytes.length} bytes`,
  )
  wellFormed(reportType === HCL_REPORT_TYPES[hardware], `HCL report: report type ${reportType} is not ${hardware}`)
  const extensionBytes = EXTENSION_BYTES[dataVersion]
  wellFormed(extensionBytes !== undefined, `HCL report: request data version ${dataVersion} is not 1 or 2`)
  const start = hclSizeBytesMin + extensionBytes
  const end = start + claimsSize
  wellFormed(end <= bytes.length, `HCL report: claims of ${claimsSize} bytes do not fit ${bytes.length} bytes`)
  wellFormed(
    dataSize === dataHeaderBytes + extensionBytes + claimsSize,
    `HCL report: request data of ${dataSize} bytes do not fit claims of ${claimsSize}`,
  )
  wellFormed(isZero(bytes.subarray(end)), 'HCL report: trailing bytes')
  return { form: 'azure-hcl', report, claims: bytes.slice(start, end), hashType }
}

/**
 * Returns the check `hcl-claims`: REPORT_DATA is the hash of the claims, then zeros. Not checked without claims. If the
 * wrapper names an unknown hash, not checked either, and the verdict is not good.
 */
export function hclClaimsCheck({ claims, hashType }: HclReport, reportData: Uint8Array | null): Check {
  const name = 'hcl-claims'
  if (claims.length === 0) return notChecked(name, 'the HCL report carries no claims', false)
  if (reportData === null) return notChecked(name, 'there is no report to compare them with', true)
  const hash = HASHES[hashType]
  if (hash === undefined) return notChecked(name, `the claims are hashed in a way that is not known: ${hashType}`, true)
  const digest = hash(claims)
  const expected = concat(digest, new Uint8Array(FIELDS.reportData[1] - digest.length))
  const isCovered = equalConstantTime(reportData, expected)
  return check(name, isCovered, 'REPORT_DATA is not the hash of the claims', 'REPORT_DATA is the hash of the claims')
}
