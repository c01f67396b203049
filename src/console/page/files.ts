// Files of the page by path, compressed once for serving. Pure except for the compressor.

/** A built file. */
export type PageFile = {
  /** `/index.html`, or `/assets/NAME-HASH.ext`, which never changes. */
  readonly path: string
  readonly type: string
  readonly bytes: Uint8Array
}

export type ServedFile = {
  readonly type: string
  readonly isForever: boolean
  /** Digest of the bytes. */
  readonly etag: string
  readonly gzip: Uint8Array
}

export const indexPath = '/index.html'

export function servedFiles(files: readonly PageFile[]): ReadonlyMap<string, ServedFile> {
  return new Map(
    files.map(({ path, type, bytes }) => {
      const etag = `"${new Bun.CryptoHasher('sha256').update(bytes).digest('hex').slice(0, 32)}"`
      const gzip = Bun.gzipSync(Uint8Array.from(bytes), { level: 9 })
      return [path, { type, isForever: path !== indexPath, etag, gzip }]
    }),
  )
}

/** Returns the response to GET and HEAD for a file. Compresses it if the Accept-Encoding header allows. */
export function fileResponse(file: ServedFile, headers: Headers): Response {
  const cache = file.isForever ? 'public, max-age=31536000, immutable' : 'no-cache'
  const common = { 'content-type': file.type, 'cache-control': cache, etag: file.etag, vary: 'accept-encoding' }
  if (headers.get('if-none-match') === file.etag) return new Response(null, { status: 304, headers: common })
  const accepts = /(?:^|[\s,])gzip(?:$|[\s,;])/i.test(headers.get('accept-encoding') ?? '')
  if (accepts) return new Response(file.gzip, { headers: { ...common, 'content-encoding': 'gzip' } })
  return new Response(Bun.gunzipSync(Uint8Array.from(file.gzip)), { headers: common })
}
