// Read-only registry of boot images: OCI distribution-spec v1.1, "Pull" and "Content Discovery". Effects: sends files.
// Clients that pull by digest need not trust it.

import { utf8 } from '../../base/bytes.ts'
import { fileResponse } from '../../http/files/ranged-file.ts'
import type { BootImages, ServedImage } from './boot-images.ts'
import { emptyBlob, emptyDigest, MEDIA_TYPES } from './manifest.plan.ts'

/** Error codes of the distribution-spec. */
const ERRORS = {
  NAME_UNKNOWN: 404,
  MANIFEST_UNKNOWN: 404,
  BLOB_UNKNOWN: 404,
  DIGEST_INVALID: 400,
  UNSUPPORTED: 405,
} as const satisfies Record<string, number>

type ErrorCode = keyof typeof ERRORS

/** The only tag of each image, for its current content. */
const tag = 'latest'
const digestPattern = /^sha256:[0-9a-f]{64}$/

/** Path templates; each `:name` is one component. */
const OCI_PATHS = [
  '/v2/',
  '/v2/:name/manifests/:reference',
  '/v2/:name/blobs/:digest',
  '/v2/:name/tags/list',
  '/v2/:name/referrers/:digest',
] as const

type RegistryRequest = Pick<Request, 'method' | 'url' | 'headers'>

/** Routes for the build listener's dispatcher. */
export type OciRoute = {
  readonly method: 'GET'
  readonly path: (typeof OCI_PATHS)[number]
  readonly respond: (context: {
    readonly request: RegistryRequest
    readonly address: () => string
  }) => Promise<Response>
}

type Summary = { readonly sha256: string; readonly bytes: Uint8Array }

export type RegistryContents = {
  readonly images: BootImages
  /** Verification summaries of images. They are not layers, but are found by their digests, which results contain. */
  readonly summaries: () => readonly Summary[]
}

/** Returns the routes. `admit` may throw for an address with too many requests; public content requires no key. */
export function ociRoutes({
  images,
  admit,
  summaries,
}: RegistryContents & { readonly admit?: (address: string) => void }): OciRoute[] {
  return OCI_PATHS.map(path => ({
    method: 'GET',
    path,
    respond: async ({ request, address }) => {
      admit?.(address())
      return await serveOci({ images, summaries }, request)
    },
  }))
}

/** Handles every path below /v2/. Fault internal if an image's files are unreadable. */
export async function serveOci({ images, summaries }: RegistryContents, request: RegistryRequest): Promise<Response> {
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    return errorResponse('UNSUPPORTED', 'This registry is read-only.', { Allow: 'GET, HEAD' })
  }
  const [, version, name = '', kind = '', reference = '', ...more] = pathOf(request.url).split('/')
  if (version === 'v2' && name === '' && kind === '') return answer(request, utf8('{}'), 'application/json', {})
  const image = version === 'v2' && more.length === 0 ? await images.open(name) : null
  if (image === null)
    return errorResponse('NAME_UNKNOWN', `Image not found; the registry has ${images.names.join(', ')}.`)
  if (kind === 'manifests') return manifestResponse(request, image, reference)
  if (kind === 'blobs') return blobResponse(request, { image, summaries: summaries() }, reference)
  if (kind === 'tags' && reference === 'list') return tagsResponse(request, name)
  if (kind === 'referrers') return referrersResponse(request, reference)
  return errorResponse('NAME_UNKNOWN', 'There is nothing at this path.')
}

/** Returns the path as sent, because a name or digest has only one spelling. */
function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  const query = url.indexOf('?', start)
  return start < 0 ? '/' : url.slice(start, query < 0 ? undefined : query)
}

function manifestResponse(request: RegistryRequest, { digest, manifest }: ServedImage, reference: string): Response {
  if (reference.includes(':') && !digestPattern.test(reference)) return badDigest()
  if (reference !== tag && reference !== digest) {
    return errorResponse('MANIFEST_UNKNOWN', `Manifest not found; ${tag} is ${digest}.`)
  }
  return answer(request, manifest, MEDIA_TYPES.manifest, { 'Docker-Content-Digest': digest, ETag: `"${digest}"` })
}

function blobResponse(
  request: RegistryRequest,
  { image, summaries }: { readonly image: ServedImage; readonly summaries: readonly Summary[] },
  digest: string,
): Response {
  if (!digestPattern.test(digest)) return badDigest()
  const headers = { 'Docker-Content-Digest': digest, ETag: `"${digest}"`, 'Accept-Ranges': 'bytes' }
  if (digest === emptyDigest) return answer(request, emptyBlob, MEDIA_TYPES.file, headers)
  const file = image.files.find(file => file.digest === digest)
  if (file !== undefined) {
    return fileResponse(request, { ...file, headers, contentHeaders: { 'Content-Type': MEDIA_TYPES.file } })
  }
  const summary = summaries.find(({ sha256 }) => digest === `sha256:${sha256}`)
  if (summary === undefined) return errorResponse('BLOB_UNKNOWN', 'Layer not found in this image.')
  return answer(request, summary.bytes, MEDIA_TYPES.envelope, headers)
}

function tagsResponse(request: RegistryRequest, name: string): Response {
  const query = new URL(request.url).searchParams
  const isPast = (query.get('last') ?? '') >= tag || query.get('n') === '0'
  return answer(request, utf8(JSON.stringify({ name, tags: isPast ? [] : [tag] })), 'application/json', {})
}

/** Returns an empty index, because images have no referrers here, and the specification forbids 404. */
function referrersResponse(request: RegistryRequest, digest: string): Response {
  if (!digestPattern.test(digest)) return badDigest()
  const index = { schemaVersion: 2, mediaType: MEDIA_TYPES.index, manifests: [] }
  return answer(request, utf8(JSON.stringify(index)), MEDIA_TYPES.index, {})
}

function badDigest(): Response {
  return errorResponse('DIGEST_INVALID', 'A digest must be sha256: and 64 lowercase hexadecimal digits.')
}

function answer(
  { method }: RegistryRequest,
  bytes: Uint8Array,
  mediaType: string,
  headers: Readonly<Record<string, string>>,
): Response {
  const all = { ...headers, ...apiVersion, 'Content-Type': mediaType, 'Content-Length': String(bytes.length) }
  return new Response(method === 'HEAD' ? null : Uint8Array.from(bytes), { headers: all })
}

/** Some clients expect this header at /v2/. */
const apiVersion = { 'Docker-Distribution-Api-Version': 'registry/2.0' }

function errorResponse(code: ErrorCode, message: string, headers: Readonly<Record<string, string>> = {}): Response {
  return Response.json(
    { errors: [{ code, message }] },
    { status: ERRORS[code], headers: { ...apiVersion, ...headers } },
  )
}
