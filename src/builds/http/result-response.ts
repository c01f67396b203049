// The response with a build's result, whole or a range (RFC 9110 14). Its digest is the ETag. Effects: sends a file.

import { fileResponse, type RangeHeaders } from '../../http/files/ranged-file.ts'

export type ResultFile = {
  readonly path: string
  readonly sizeBytes: number
  /** Hexadecimal. */
  readonly sha256: string
  /** File name suggested to browsers. */
  readonly name: string
}

export function resultResponse(
  request: { readonly method: string; readonly headers: RangeHeaders },
  file: ResultFile,
): Response {
  const { path, sizeBytes, sha256 } = file
  const etag = `"${sha256}"`
  const headers = {
    ETag: etag,
    'Accept-Ranges': 'bytes',
    // The digest of the whole, also for a range (RFC 9530).
    'Repr-Digest': `sha-256=:${Buffer.from(sha256, 'hex').toString('base64')}:`,
  }
  if (matches(request.headers.get('if-none-match'), etag)) return new Response(null, { status: 304, headers })
  const contentHeaders = {
    'Content-Type': 'application/gzip',
    'Content-Disposition': `attachment; filename="${file.name}"`,
  }
  return fileResponse(request, { path, sizeBytes, headers, contentHeaders })
}

/** Compares weakly (RFC 9110 13.1.2). */
function matches(text: string | null, etag: string): boolean {
  if (text === null) return false
  const tags = text.split(',').map(tag => tag.trim().replace(/^W\//, ''))
  return tags.includes(etag) || tags.includes('*')
}
