// Reassembles a report from its fields, for forms that store them separately. Pure; throws Malformed. The report's
// signature fails if a field is missing or wrong.

import { Malformed, wellFormed } from '../../attest/malformed.ts'
import { FIELDS, type FieldName, reportSizeBytes } from '../../attest/report/report.ts'

/** Values of fields. An absent field is zero, because some forms omit zeros. */
export type FieldValues = { [Field in FieldName]?: bigint | Uint8Array | undefined }

const signatureOffset = FIELDS.signatureR[0]

/** Encodes a report. `signature`: 512 bytes, from `signatureR` to the end. */
export function reportOf(values: FieldValues, signature: Uint8Array): Uint8Array {
  const report = new Uint8Array(reportSizeBytes)
  for (const [field, value] of Object.entries(values)) {
    if (value !== undefined) report.set(fieldBytes(field as FieldName, value), FIELDS[field as FieldName][0])
  }
  wellFormed(
    signature.length === reportSizeBytes - signatureOffset,
    `SNP report: a signature of ${signature.length} bytes`,
  )
  report.set(signature, signatureOffset)
  return report
}

function fieldBytes(field: FieldName, value: bigint | Uint8Array): Uint8Array {
  const [, sizeBytes] = FIELDS[field]
  if (typeof value !== 'bigint') {
    wellFormed(value.length === 0 || value.length === sizeBytes, `SNP report: ${field} has ${value.length} bytes`)
    return value
  }
  if (value < 0n || value >> BigInt(sizeBytes * 8) !== 0n) throw new Malformed(`SNP report: ${field} does not fit`)
  return Uint8Array.from({ length: sizeBytes }, (_, at) => Number((value >> BigInt(at * 8)) & 0xffn))
}
