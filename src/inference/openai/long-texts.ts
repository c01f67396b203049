// Base64 of pictures and documents in a large body: cut out of its bytes before they are parsed, and put back into the
// upstream's request. Meanwhile a mark that no client can guess replaces it. Pure.

import { concat } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { invalidRequest } from '../json-text.ts'

/** Longest body without its long texts. Shorter bodies are parsed unchanged. */
export const textBytesMax = 4_194_304
/** Shorter texts are not cut out. */
const longBytesMin = 8_192
/** Fields of content parts whose value is base64, or a data: URL with it. */
const NAMES: ReadonlySet<string> = new Set(['url', 'image_url', 'file_data', 'data'])
const nameBytesMax = Math.max(...Array.from(NAMES, name => name.length))
/** Maximum white space and colon between a name and its value. */
const gapBytesMax = 16
/** Maximum length of what precedes the base64 of a data: URL. */
const urlHeadBytesMax = 128
/**
 * Maximum number of quotes within texts and around them; a body of `textBytesMax` within the bounds of JSON has fewer.
 */
const quotesMax = 1_500_000
/** Bytes that are checked with one text of the runtime. */
const checkedBytes = 262_144
const [quote, backslash] = [0x22, 0x5c]
export const markIndexChars = 8

export class LongTexts {
  /** The body with marks in place of the long texts. */
  readonly bytes: Uint8Array
  readonly #mark: string
  readonly #texts: readonly Uint8Array[]

  constructor(bytes: Uint8Array, mark: string, texts: readonly Uint8Array[]) {
    this.bytes = bytes
    this.#mark = mark
    this.#texts = texts
  }

  get count(): number {
    return this.#texts.length
  }

  /**
   * Returns the bytes of the parts of the upstream's request, with each long text in its place. Throws Fault
   * invalid_request if one of them is in a field that the upstream does not receive.
   */
  putBack(parts: readonly string[]): Uint8Array[] {
    const left = new Set(this.#texts)
    const filled = parts.map(part => {
      const [head = '', ...rest] = part.split(this.#mark)
      const pieces: Uint8Array[] = [Buffer.from(head)]
      for (const text of rest) {
        const found = this.#texts[Number.parseInt(text.slice(0, markIndexChars), 16)]
        if (found === undefined || !left.delete(found)) throw misplaced()
        pieces.push(found, Buffer.from(text.slice(markIndexChars)))
      }
      return concat(...pieces)
    })
    if (left.size > 0) throw misplaced()
    return filled
  }
}

function misplaced(): Fault {
  return invalidRequest('A long base64 text stands in a field that has no effect here; leave it out.')
}

/**
 * Cuts out the long texts. `mark`: random characters of base64. Throws Fault body_too_large if more than `textBytesMax`
 * remains.
 */
export function cutLongTexts(body: Uint8Array, mark: string): LongTexts {
  const whole = Buffer.from(body.buffer, body.byteOffset, body.length)
  const kept: Uint8Array[] = []
  const texts: Uint8Array[] = []
  let keptBytes = 0
  let from = 0
  const keep = (piece: Uint8Array) => {
    kept.push(piece)
    keptBytes += piece.length
  }
  let before = { start: 0, end: -1 }
  let quotes = 0
  for (let open = whole.indexOf(quote); open >= 0; open = whole.indexOf(quote, before.end + 1)) {
    if (keptBytes + open - from > textBytesMax) throw tooLong()
    let close = whole.indexOf(quote, open + 1)
    for (; close >= 0 && isEscaped(whole, open, close); close = whole.indexOf(quote, close + 1)) {
      quotes += 1
      if (quotes > quotesMax) throw tooLong()
    }
    quotes += 1
    // Not JSON in this case, which the parser reports.
    if (close < 0) break
    if (close - open > longBytesMin && isContent(whole, before, open)) {
      const start = base64Start(whole, open + 1)
      if (isBase64(whole, start, close)) {
        keep(whole.subarray(from, start))
        keep(Buffer.from(`${mark}${texts.length.toString(16).padStart(markIndexChars, '0')}`))
        texts.push(whole.subarray(start, close))
        from = close
      }
    }
    before = { start: open + 1, end: close }
  }
  keep(whole.subarray(from))
  if (keptBytes > textBytesMax) throw tooLong()
  return new LongTexts(Buffer.concat(kept), mark, texts)
}

function tooLong(): Fault {
  return new Fault(
    'body_too_large',
    `The body is larger than ${textBytesMax} bytes without the base64 of its pictures and documents.`,
  )
}

/** Reports whether an odd number of backslashes precedes the quote. */
function isEscaped(whole: Buffer, open: number, at: number): boolean {
  let backslashes = 0
  while (at - backslashes - 1 > open && whole[at - backslashes - 1] === backslash) {
    backslashes += 1
    if (backslashes > textBytesMax) throw tooLong()
  }
  return backslashes % 2 === 1
}

function latin1(whole: Buffer, start: number, end: number): string {
  return whole.toString('latin1', start, end)
}

type TextRange = { readonly start: number; readonly end: number }

/** Reports whether the text before this one is the name of its field, and one that holds content. */
function isContent(whole: Buffer, { start, end }: TextRange, open: number): boolean {
  if (end < start || end - start > nameBytesMax || open - end > gapBytesMax) return false
  if (!NAMES.has(latin1(whole, start, end))) return false
  return /^[\t\n\r ]*:[\t\n\r ]*$/.test(latin1(whole, end + 1, open))
}

/** Returns where the base64 begins: after the head of a data: URL, if there is one. */
function base64Start(whole: Buffer, start: number): number {
  const head = /^data:[^,"\\]*;base64,/i.exec(latin1(whole, start, start + urlHeadBytesMax))
  return start + (head?.[0].length ?? 0)
}

/** Accepts both alphabets. None of their characters needs an escape, and each is one byte in every encoding. */
function isBase64(whole: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += checkedBytes) {
    const to = Math.min(at + checkedBytes, end)
    const form = to === end ? /^[A-Za-z0-9+/_-]*={0,2}$/ : /^[A-Za-z0-9+/_-]*$/
    if (!form.test(latin1(whole, at, to))) return false
  }
  return true
}
