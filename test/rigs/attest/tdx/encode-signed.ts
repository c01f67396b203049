// Writes the signed bytes of a TDX quote. Pure.

import { writeRecord } from '../../../../src/attest/encoding/layout.ts'
import { wellFormed } from '../../../../src/attest/malformed.ts'
import {
  BODY_TYPES,
  HEADER,
  type QuoteHeader,
  TD_REPORT,
  TD_REPORT_15,
  type TdReport,
} from '../../../../src/attest/tdx/quote.ts'
import { concat } from '../../../../src/base/bytes.ts'

/** The signed bytes of a quote, for makers of simulated ones. */
export function encodeSigned(version: 4 | 5, header: Omit<QuoteHeader, 'version'>, report: TdReport): Uint8Array {
  const { version: kind, added, ...fields } = report
  wellFormed(version === 5 || kind === '1.0', 'TDX quote: version 4 has no report of TDX 1.5')
  const body =
    added === null
      ? writeRecord('TD report', TD_REPORT, fields)
      : writeRecord('TD report', TD_REPORT_15, { ...fields, ...added })
  const prefix = new Uint8Array(version === 5 ? 6 : 0)
  if (version === 5) {
    const view = new DataView(prefix.buffer)
    view.setUint16(0, BODY_TYPES[kind], true)
    view.setUint32(2, body.length, true)
  }
  return concat(writeRecord('TDX quote header', HEADER, { ...header, version }), prefix, body)
}
