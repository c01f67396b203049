// Forms in which an SNP report travels: as it is, or inside the attestation report of Azure's paravisor (HCL). Pure.
// Layout: microsoft/openvmm, openhcl_attestation_protocol, igvm_attest/get.rs: header, hardware report, request data, claims (JSON).

import { wellFormed } from '../malformed.ts'
import { reportSizeBytes } from './report.ts'

/** [offset, size], little-endian. Claims of `claimsSize` bytes come after, in version 2 with an extension between. */
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
} as const satisfies Record<string, readonly [offset: number, sizeBytes: number]>

/** Without claims. */
export const hclSizeBytesMin = 0x4d4
/** It lies in one TPM NV index, which is far smaller. */
export const hclSizeBytesMax = 65_536

/** `HCLA`, little-endian. */
export const hclMagic = 0x414c_4348
/** SNP_VM_REPORT. TDX_VM_REPORT is 4. */
export const hclReportTypeSnp = 2

export type FoundReport = {
  readonly form: 'plain' | 'azure-hcl'
  /** The SNP report alone, for decodeReport and verifyReportSignature. */
  readonly report: Uint8Array
}

/** Throws Malformed for anything but 1184 bytes or an HCL report with an SNP report in it. The latter is not looked into. */
export function findReport(bytes: Uint8Array): FoundReport {
  if (bytes.length === reportSizeBytes) return { form: 'plain', report: Uint8Array.from(bytes) }
  wellFormed(
    bytes.length >= hclSizeBytesMin && u32(bytes, 'magic') === hclMagic,
    `SNP report: ${bytes.length} bytes are neither a report of ${reportSizeBytes} nor an HCL report`,
  )
  wellFormed(bytes.length <= hclSizeBytesMax, `HCL report: ${bytes.length} bytes are more than ${hclSizeBytesMax}`)
  const size = u32(bytes, 'reportSize')
  wellFormed(
    size >= hclSizeBytesMin && size <= bytes.length,
    `HCL report: size ${size} does not fit ${bytes.length} bytes`,
  )
  const reportType = u32(bytes, 'reportType')
  wellFormed(reportType === hclReportTypeSnp, `HCL report: report type ${reportType} is not SNP`)
  const [offset] = HCL_FIELDS.report
  return { form: 'azure-hcl', report: Uint8Array.from(bytes.subarray(offset, offset + reportSizeBytes)) }
}

function u32(bytes: Uint8Array, name: keyof typeof HCL_FIELDS): number {
  const [offset] = HCL_FIELDS[name]
  return [3, 2, 1, 0].reduce((value, at) => value * 256 + (bytes[offset + at] ?? 0), 0)
}
