// The report that a paravisor stores for its guest ("HCL report"), and the vTPM's key in the runtime data that its
// REPORT_DATA covers. Pure. report/form.ts reads the report itself.

import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { type HCL_REPORT_TYPES, hclHashTypeSha256, readHclReport } from '../report/form.ts'
import type { TpmKey } from './key.ts'
import { decodeJwk } from './key-decode.ts'

export type HclReport = {
  /** 1184 bytes; of TDX a TD report, and zeros after it. */
  readonly report: Uint8Array
  /** JSON, the exact hashed bytes. */
  readonly runtimeData: Uint8Array
}

const runtimeDataBytesMax = 16 * 1024

/**
 * Decodes an HCL report. Throws Malformed unless it is of this hardware, with runtime data to be hashed with SHA-256.
 */
export function decodeHclReport(bytes: Uint8Array, hardware: keyof typeof HCL_REPORT_TYPES = 'SNP'): HclReport {
  const { report, claims, hashType } = readHclReport(bytes, hardware)
  wellFormed(hashType === hclHashTypeSha256, 'HCL report: runtime data are not hashed with SHA-256')
  wellFormed(claims.length > 0 && claims.length <= runtimeDataBytesMax, 'HCL report: runtime data size')
  return { report, runtimeData: claims }
}

/**
 * Returns the vTPM's attestation key, `HCLAkPub` in the runtime data. Throws Malformed unless it occurs exactly once.
 */
export function runtimeAttestationKey(runtimeData: Uint8Array): TpmKey {
  wellFormed(runtimeData.length <= runtimeDataBytesMax, 'hcl runtime data: too long')
  const parsed = parsedJson('hcl runtime data', runtimeData)
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
