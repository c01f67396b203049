// The TD report that the TDX module gives to a TD, and from which a quote is made. Pure; throws Malformed. Only its own
// platform can verify its MAC, so it is trusted as far as a quote has the same fields. Intel TDX Module ABI
// Specification, TDREPORT_STRUCT: REPORTMACSTRUCT, TEE_TCB_INFO and TDINFO_STRUCT; integers are little-endian.

import { concat, equalConstantTime } from '../../base/bytes.ts'
import { isZero, type Layout, layoutBytes, readFields } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'
import { TD_REPORT, TD_REPORT_15, type TdxQuote, TEE_TDX } from './quote.ts'

/** [offset, size]. Parts that a quote repeats, each a run of its fields in the order of the quote. */
const TDREPORT = {
  /** REPORTTYPE: type 0x81, subtype 0, version 0 or 1, a reserved byte. */
  type: [0, 4],
  reportData: [128, 64],
  /** teeTcbSvn to seamAttributes. */
  module: [264, 120],
  teeTcbSvn2: [384, 16],
  /** tdAttributes to rtmr3. */
  td: [512, 400],
  mrServiceTd: [912, 48],
  reserved: [960, 64],
} as const satisfies Layout

/** Reports whether the bytes begin like a TD report: a quote begins with a small version, an SNP report too. */
export function isTdReportStart(bytes: Uint8Array): boolean {
  return bytes.length >= layoutBytes(TDREPORT) && bytes[0] === TEE_TDX && bytes[1] === 0
}

const versions = [TEE_TDX, TEE_TDX | 0x1_0000]

/**
 * Returns the names of the fields in which a quote differs from a TD report. Only zeros may follow the report. TDX 1.0
 * and quotes of version 4 do not repeat the two fields of TDX 1.5.
 */
export function differingFields(tdReport: Uint8Array, { report, signedBytes }: TdxQuote): readonly string[] {
  const fields = readFields('TD report', tdReport, TDREPORT)
  const type = fields.type.toString(16)
  wellFormed(versions.includes(fields.type), `TD report: type 0x${type} is not 0x81, TDX, of version 0 or 1`)
  wellFormed(isZero(tdReport.subarray(layoutBytes(TDREPORT))), 'TD report: bytes after its end that are not zero')
  const named = concat(fields.module, fields.td, fields.reportData, fields.teeTcbSvn2, fields.mrServiceTd)
  const layout: Layout = report.added === null ? TD_REPORT : TD_REPORT_15
  const quoted = signedBytes.subarray(-layoutBytes(layout))
  return Object.entries(layout).flatMap(([name, [from, size]]) => {
    const isSame = equalConstantTime(named.subarray(from, from + size), quoted.subarray(from, from + size))
    return isSame ? [] : [name]
  })
}
