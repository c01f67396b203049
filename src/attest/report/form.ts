// Forms in which an SNP report is sent: as it is, or inside the attestation report of Azure's paravisor (HCL). Pure.
// Layout: microsoft/openvmm, openhcl_attestation_protocol, igvm_attest/get.rs: header, hardware report, request data, claims (JSON).

import { type Layout, layoutBytes, readFields } from '../encoding/layout.ts'
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
} as const satisfies Layout

/** Without claims. */
export const hclSizeBytesMin = layoutBytes(HCL_FIELDS)
/** The report lies in one TPM NV index, which is far smaller. */
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

/** Throws Malformed for anything but 1184 bytes or an HCL report with an SNP report in it. The SNP report itself is not read. */
export function findReport(bytes: Uint8Array): FoundReport {
  if (bytes.length === reportSizeBytes) return { form: 'plain', report: Uint8Array.from(bytes) }
  const fields = bytes.length < hclSizeBytesMin ? null : readFields('HCL report', bytes, HCL_FIELDS)
  wellFormed(
    fields?.magic === hclMagic,
    `SNP report: ${bytes.length} bytes are neither a report of ${reportSizeBytes} nor an HCL report`,
  )
  wellFormed(bytes.length <= hclSizeBytesMax, `HCL report: ${bytes.length} bytes are more than ${hclSizeBytesMax}`)
  const { report, reportSize: size, reportType } = fields
  wellFormed(
    size >= hclSizeBytesMin && size <= bytes.length,
    `HCL report: size ${size} does not fit ${bytes.length} bytes`,
  )
  wellFormed(reportType === hclReportTypeSnp, `HCL report: report type ${reportType} is not SNP`)
  return { form: 'azure-hcl', report }
}
