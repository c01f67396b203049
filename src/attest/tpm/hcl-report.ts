// The report that a paravisor keeps for its guest ("HCL report"): an SNP report and the runtime data that its REPORT_DATA covers. Pure.
// Microsoft, "Guest attestation for confidential VMs", attestation report format: header, hardware report, request data. Little-endian.

import { fromUtf8 } from '../../base/bytes.ts'
import { isZero, readFields } from '../encoding/layout.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { HCL_FIELDS, hclMagic, hclReportTypeSnp, hclSizeBytesMax, hclSizeBytesMin } from '../report/form.ts'
import { decodeJwk, type TpmKey } from './key.ts'

export type HclReport = {
  /** 1184 bytes. */
  readonly report: Uint8Array
  /** JSON, the exact bytes that were hashed. */
  readonly runtimeData: Uint8Array
}

const sha256HashType = 1
/** Where the runtime data begins, and how far the request data's own header goes. */
const runtimeDataOffset = hclSizeBytesMin
const dataHeaderBytes = 20
const runtimeDataBytesMax = 16 * 1024

/** Throws Malformed on anything but an SNP report with SHA-256 over its runtime data; after that only zeros may follow. */
export function decodeHclReport(bytes: Uint8Array): HclReport {
  wellFormed(bytes.length >= runtimeDataOffset && bytes.length <= hclSizeBytesMax, 'hcl report: length')
  const fields = readFields('hcl report', bytes, HCL_FIELDS)
  wellFormed(fields.magic === hclMagic, 'hcl report: signature')
  wellFormed(fields.version === 1 && fields.dataVersion === 1, 'hcl report: version')
  wellFormed(fields.reportType === hclReportTypeSnp, 'hcl report: not an SNP report')
  wellFormed(fields.hashType === sha256HashType, 'hcl report: runtime data is not hashed with SHA-256')
  const size = fields.claimsSize
  const end = runtimeDataOffset + size
  wellFormed(size > 0 && size <= runtimeDataBytesMax && end <= bytes.length, 'hcl report: runtime data size')
  wellFormed(fields.dataSize === size + dataHeaderBytes, 'hcl report: request data size')
  wellFormed(isZero(bytes.subarray(end)), 'hcl report: trailing bytes')
  return { report: fields.report, runtimeData: bytes.slice(runtimeDataOffset, end) }
}

/** The vTPM's attestation key, `HCLAkPub` in the runtime data. Throws Malformed unless it is named exactly once. */
export function runtimeAttestationKey(runtimeData: Uint8Array): TpmKey {
  wellFormed(runtimeData.length <= runtimeDataBytesMax, 'hcl runtime data: too long')
  let parsed: unknown
  try {
    parsed = JSON.parse(fromUtf8(runtimeData))
  } catch (cause) {
    throw new Malformed('hcl runtime data: not JSON', { cause })
  }
  const keys = memberOf(parsed, 'keys')
  wellFormed(Array.isArray(keys), 'hcl runtime data: no keys')
  const named = keys.filter(key => memberOf(key, 'kid') === 'HCLAkPub')
  wellFormed(named.length === 1, 'hcl runtime data: HCLAkPub is not named once')
  return decodeJwk(named[0])
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined
}
