// The response with a build's result, whole or a range (RFC 9110 14); its digest is the ETag. Effects: sends a file.

/** Headers of a request. */
export type Wanted = Pick<Headers, 'get'>

export type ResultFile = {
  readonly path: string
  readonly sizeBytes: number
  /** Hexadecimal. */
  readonly sha256: string
  /** Suggested to browsers. */
  readonly name: string
}

type Range = { readonly start: number; readonly end: number }

export function resultResponse(
  request: { readonly method: string; readonly headers: Wanted },
  file: ResultFile,
): Response {
  const { path, sizeBytes, sha256 } = file
  const etag = `"${sha256}"`
  const headers: Record<string, string> = {
    ETag: etag,
    'Accept-Ranges': 'bytes',
    // RFC 9530: the digest of the whole, also for a range.
    'Repr-Digest': `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`,
  }
  if (matches(request.headers.get('if-none-match'), etag)) return new Response(null, { status: 304, headers })
  const content = {
    ...headers,
    'Content-Type': 'application/gzip',
    'Content-Disposition': `attachment; filename="${file.name}"`,
  }
  const condition = request.headers.get('if-range')
  const isSame = condition === null || condition === etag
  const range = isSame ? parseRange(request.headers.get('range'), sizeBytes) : null
  if (range === 'unsatisfiable') {
    return new Response(null, { status: 416, headers: { ...headers, 'Content-Range': `bytes */${sizeBytes}` } })
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes - 1 }
  const part = range === null ? {} : { 'Content-Range': `bytes ${start}-${end}/${sizeBytes}` }
  const all = { ...content, ...part, 'Content-Length': String(end - start + 1) }
  const body = request.method === 'HEAD' ? null : Bun.file(path).slice(start, end + 1)
  return new Response(body, { status: range === null ? 200 : 206, headers: all })
}

/** RFC 9110 14.2: a single range of bytes; null for several or other ranges, which are ignored. */
export function parseRange(text: string | null, sizeBytes: number): Range | 'unsatisfiable' | null {
  const match = /^bytes=([0-9]{0,15})-([0-9]{0,15})$/.exec(text ?? '')
  if (match === null) return null
  const [, first = '', last = ''] = match
  if (first === '' && last === '') return null
  if (first === '') {
    const count = Math.min(Number(last), sizeBytes)
    return count === 0 ? 'unsatisfiable' : { start: sizeBytes - count, end: sizeBytes - 1 }
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return null
  if (start >= sizeBytes) return 'unsatisfiable'
  return { start, end: last === '' ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1) }
}

/** RFC 9110 13.1.2, weak comparison. */
function matches(text: string | null, etag: string): boolean {
  if (text === null) return false
  const tags = text.split(',').map(tag => tag.trim().replace(/^W\//, ''))
  return tags.includes(etag) || tags.includes('*')
}
