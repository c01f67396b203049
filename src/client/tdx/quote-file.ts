// Reads a file with a TDX quote: bytes, or their hexadecimal, base64 or base64url. Effects: reads the file. Throws
// InputFault.

import { wellFormed } from '../../attest/malformed.ts'
import { reportSizeBytes } from '../../attest/report/report.ts'
import { decodeQuote, quoteBytesMax, type TdxQuote } from '../../attest/tdx/quote.ts'
import { isTdReportStart } from '../../attest/tdx/td-report.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { isHclStart, quoteBytes } from '../evidence/forms.ts'

export type QuoteFile = {
  readonly bytes: Uint8Array
  readonly quote: TdxQuote
}

/** `param`: an option of `verify vtpm`, or the argument of other commands. */
export async function readQuoteFile(path: string, param: 'file' | 'td-quote' = 'file'): Promise<QuoteFile> {
  const isOption = param === 'td-quote'
  // Hexadecimal takes twice the space, plus line ends.
  const read = readInput({ path, param, bytesMax: 3 * quoteBytesMax })
  return await readingInput(isOption ? `--${param} ${path}` : path, () => {
    const bytes = quoteBytes(read)
    wellFormed(
      bytes.find(byte => byte > 0x20) !== 0x7b,
      isOption
        ? 'JSON, and no quote: give the value of its member `quote`, and a whole bundle to --evidence'
        : 'JSON, and no quote: give the quote in it; `verify vtpm` takes the JSON of Azure',
    )
    wellFormed(!isTdReportStart(bytes), 'a TD report, and no TDX quote: the quote is made from it (`help verify`)')
    wellFormed(!isHclStart(bytes), 'an HCL report, and no TDX quote: --report of `verify vtpm` takes it')
    // A quote's version has two bytes, and a report's has four.
    const isReport = bytes.length === reportSizeBytes && bytes[2] === 0 && bytes[3] === 0
    wellFormed(!isReport, 'an SNP report, and no TDX quote: `verify report` takes it')
    return { bytes, quote: decodeQuote(bytes) }
  })
}
