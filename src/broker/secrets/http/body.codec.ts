// Framing of the body of an HTTP/1.1 message (RFC 9112 section 6), read and written again. Pure: bytes come from a
// source.
//
// A message with two ways to find its end is refused: the other side may find another one, and take the rest for a
// request (smuggling). Chunk extensions and trailers are read and dropped.

import { type Field, HttpProblem, headBytesMax, listOf, readField, valuesOf } from './head.codec.ts'
import type { ByteSource } from './source.ts'

export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  /** Up to the end of the connection; responses only. */
  | { readonly kind: 'close' }

/** Throws HttpProblem. */
export function requestFraming(fields: readonly Field[]): Framing {
  return declaredFraming(fields, 400) ?? { kind: 'none' }
}

type Answered = { readonly method: string; readonly status: number; readonly fields: readonly Field[] }

/** `method`: of the request. Throws HttpProblem. */
export function responseFraming({ method, status, fields }: Answered): Framing {
  const declared = declaredFraming(fields, 502)
  if (method === 'HEAD' || status === 204 || status === 304) return { kind: 'none' }
  return declared ?? { kind: 'close' }
}

/** Null without a declaration. */
function declaredFraming(fields: readonly Field[], status: number): Framing | null {
  const codings = valuesOf(fields, 'transfer-encoding')
  const lengths = valuesOf(fields, 'content-length')
  if (codings.length > 0 && lengths.length > 0) {
    throw new HttpProblem(status, 'the message has both Transfer-Encoding and Content-Length')
  }
  if (codings.length > 0) {
    const isChunked = codings.length === 1 && codings[0]?.toLowerCase() === 'chunked'
    if (!isChunked) throw new HttpProblem(status === 400 ? 501 : status, 'the only Transfer-Encoding is chunked, once')
    return { kind: 'chunked' }
  }
  const [length, ...more] = lengths
  if (length === undefined) return null
  if (more.length > 0 || !/^[0-9]{1,15}$/.test(length)) {
    throw new HttpProblem(status, 'Content-Length is not one number')
  }
  return Number(length) === 0 ? { kind: 'none' } : { kind: 'length', bytes: Number(length) }
}

/** Reports whether the body is as it is: the only codings are `identity`. */
export function isUnencoded(fields: readonly Field[]): boolean {
  return listOf(fields, 'content-encoding').every(coding => coding === 'identity')
}

/** The contents, piece by piece. Throws HttpProblem of `status` for a malformed body, and the source's errors. */
export async function* readBody(source: ByteSource, framing: Framing, status: number): AsyncGenerator<Uint8Array> {
  if (framing.kind === 'length') yield* readExactly(source, framing.bytes)
  if (framing.kind === 'chunked') yield* readChunks(source, status)
  if (framing.kind === 'close') {
    for (let piece = await source.some(); piece !== null; piece = await source.some()) yield piece
  }
}

const chunkLineBytesMax = 1_024
const crlf = Buffer.from('\r\n')
const chunkLine = /^([0-9A-Fa-f]{1,12})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/

async function* readChunks(source: ByteSource, status: number): AsyncGenerator<Uint8Array> {
  const malformed = () => new HttpProblem(status, 'a chunk of the body is malformed')
  const line = async (bytesMax: number) => {
    const bytes = await source.until(crlf, bytesMax)
    return bytes === null ? null : Buffer.from(bytes).toString('latin1').slice(0, -2)
  }
  for (;;) {
    const [, digits] = chunkLine.exec((await line(chunkLineBytesMax)) ?? '') ?? []
    if (digits === undefined) throw malformed()
    const bytes = Number.parseInt(digits, 16)
    if (bytes === 0) break
    yield* readExactly(source, bytes)
    if ((await line(2)) !== '') throw malformed()
  }
  let left = headBytesMax
  for (;;) {
    const trailer = await line(left)
    if (trailer === '') return
    if (trailer === null) throw malformed()
    readField(trailer, status)
    left -= trailer.length + 2
  }
}

async function* readExactly(source: ByteSource, bytes: number): AsyncGenerator<Uint8Array> {
  for (let left = bytes; left > 0; ) {
    const piece = await source.some(left)
    if (piece === null) throw new Error('the connection ended within a body')
    left -= piece.length
    yield piece
  }
}

/** One chunk; nothing for no bytes, which would end the body. */
export function writeChunk(bytes: Uint8Array): Uint8Array {
  if (bytes.length === 0) return bytes
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, crlf])
}

export const lastChunk: Uint8Array = Buffer.from('0\r\n\r\n')
