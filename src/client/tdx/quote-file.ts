// Reads a file with a TDX quote: bytes, or their hexadecimal or base64. Effects: reads the file. Throws InputFault.

import { wellFormed } from '../../attest/malformed.ts'
import { reportSizeBytes } from '../../attest/report/report.ts'
import { decodeQuote, quoteBytesMax, type TdxQuote } from '../../attest/tdx/quote.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { quoteBytes } from '../evidence/forms.ts'

export type QuoteFile = {
  readonly bytes: Uint8Array
  readonly quote: TdxQuote
  /** Where it came from, for messages. */
  readonly path: string
}

export async function readQuoteFile(path: string, param = 'file'): Promise<QuoteFile> {
  // Hexadecimal takes twice the space, plus line ends.
  const read = readInput({ path, param, bytesMax: 3 * quoteBytesMax })
  return await readingInput(path, () => {
    const bytes = quoteBytes(read)
    wellFormed(
      bytes.find(byte => byte > 0x20) !== 0x7b,
      'JSON, and no quote: give the quote in it; `verify vtpm` takes the JSON of Azure',
    )
    // A quote's version has two bytes, and a report's has four.
    const isReport = bytes.length === reportSizeBytes && bytes[2] === 0 && bytes[3] === 0
    wellFormed(!isReport, 'an SNP report, and no TDX quote: `verify report` takes it')
    return { bytes, quote: decodeQuote(bytes), path }
  })
}
