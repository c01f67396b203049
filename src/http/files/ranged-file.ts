// A response with a file, whole or one range of it (RFC 9110 14). Effects: sends a file.

/** Headers of a request. */
export type RangeHeaders = Pick<Headers, 'get'>

type RangedFile = {
  readonly path: string
  readonly sizeBytes: number
  /** Headers of every response. */
  readonly headers: Readonly<Record<string, string>> & { readonly ETag: string }
  /** Headers of a response with bytes. */
  readonly contentHeaders: Readonly<Record<string, string>>
}

export function fileResponse(
  request: { readonly method: string; readonly headers: RangeHeaders },
  { path, sizeBytes, headers, contentHeaders }: RangedFile,
): Response {
  const condition = request.headers.get('if-range')
  const isSame = condition === null || condition === headers.ETag
  const range = isSame ? readRange(request.headers.get('range'), sizeBytes) : null
  if (range === 'unsatisfiable') {
    return new Response(null, { status: 416, headers: { ...headers, 'Content-Range': `bytes */${sizeBytes}` } })
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes - 1 }
  const all = {
    ...headers,
    ...contentHeaders,
    'Content-Length': String(end - start + 1),
    ...(range === null ? {} : { 'Content-Range': `bytes ${start}-${end}/${sizeBytes}` }),
  }
  const body = request.method === 'HEAD' ? null : Bun.file(path).slice(start, end + 1)
  return new Response(body, { status: range === null ? 200 : 206, headers: all })
}

type Range = { readonly start: number; readonly end: number }

/** Parses one range of bytes (RFC 9110 14.2). Null for none or several, which count as none. */
function readRange(text: string | null, sizeBytes: number): Range | 'unsatisfiable' | null {
  const [, first = '', last = ''] = /^bytes=([0-9]{0,15})-([0-9]{0,15})$/.exec(text ?? '') ?? []
  if (first === '' && last === '') return null
  const start = first === '' ? Math.max(0, sizeBytes - Number(last)) : Number(first)
  const end = first === '' || last === '' ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1)
  if (first !== '' && last !== '' && Number(last) < start) return null
  return start > end ? 'unsatisfiable' : { start, end }
}
