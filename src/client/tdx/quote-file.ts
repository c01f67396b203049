// Reads a file with a TDX quote: bytes, or their hexadecimal or base64. Effects: reads the file. Throws InputFault.

import { decodeQuote, quoteBytesMax, type TdxQuote } from '../../attest/tdx/quote.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { quoteBytes } from '../evidence/forms.ts'

export type QuoteFile = { readonly bytes: Uint8Array; readonly quote: TdxQuote }

export async function readQuoteFile(path: string): Promise<QuoteFile> {
  // Hexadecimal takes twice the space, plus line ends.
  const read = readInput({ path, param: 'file', bytesMax: 3 * quoteBytesMax })
  return await readingInput(path, () => {
    const bytes = quoteBytes(read)
    return { bytes, quote: decodeQuote(bytes) }
  })
}
