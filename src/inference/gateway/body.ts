// The body of an upstream's response, within bytes and time. Effects: reads one response.

import type { Deadlines } from '../../base/work/deadlines.ts'
import type { BodyLimits } from '../../http/body.ts'
import { UpstreamFault } from '../failure.ts'
import type { Piece, UpstreamResponse } from '../upstream/connection.ts'

/**
 * Returns the whole body as text, synchronously if it arrived with the head. Throws UpstreamFault too_large,
 * idle_timeout, cut or malformed.
 */
export function readUpstreamBody(
  response: UpstreamResponse,
  limits: BodyLimits,
  deadlines: Deadlines,
): string | Promise<string> {
  if ((response.head.contentLength ?? 0) > limits.bytesMax) throw new UpstreamFault('too_large')
  const whole = response.takeWhole()
  if (whole === null) return readPieces(response, limits, deadlines)
  if (whole.end - whole.start > limits.bytesMax) throw new UpstreamFault('too_large')
  return decodePiece(whole)
}

async function readPieces(response: UpstreamResponse, limits: BodyLimits, deadlines: Deadlines): Promise<string> {
  const { contentLength } = response.head
  let isLate = false
  const stop = deadlines.after(limits.timeoutMs, () => {
    isLate = true
    response.abort()
  })
  const chunks: Uint8Array[] = []
  let lengthBytes = 0
  try {
    // A declared length ends the body at its last byte, without waiting for the end of the response.
    while (lengthBytes !== contentLength) {
      const bytes = await response.read()
      if (bytes === null) break
      lengthBytes += bytes.length
      if (lengthBytes > limits.bytesMax) throw new UpstreamFault('too_large')
      chunks.push(bytes)
    }
  } catch (error) {
    throw isLate ? new UpstreamFault('idle_timeout') : error
  } finally {
    stop()
  }
  const [first] = chunks
  return decode(chunks.length === 1 && first !== undefined ? first : Buffer.concat(chunks))
}

/** Decodes strictly. The fast decoder writes U+FFFD both for invalid UTF-8 and for U+FFFD itself. */
function decodePiece({ bytes, start, end }: Piece): string {
  const text = bytes.toString('utf8', start, end)
  return text.includes('\uFFFD') || text.startsWith('\uFEFF') ? decode(bytes.subarray(start, end)) : text
}

function decode(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes)
  } catch {
    throw new UpstreamFault('malformed')
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true })
