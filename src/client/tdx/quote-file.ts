// A file with a TDX quote: bytes, or hexadecimal or base64 of them. Effects: reads the file. Failures are InputFaults.

import { decodeQuote, quoteBytesMax, type TdxQuote } from '../../attest/tdx/quote.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { quoteBytes } from '../evidence/forms.ts'

export type QuoteFile = { readonly bytes: Uint8Array; readonly quote: TdxQuote }

export async function readQuoteFile(path: string): Promise<QuoteFile> {
  // Hexadecimal takes twice the room, with line ends.
  const read = readInput({ path, param: 'file', bytesMax: 3 * quoteBytesMax })
  return await readingInput(path, () => {
    const bytes = quoteBytes(read)
    return { bytes, quote: decodeQuote(bytes) }
  })
}
