// Converts the arguments of `fetch` to a request for the attested gateway. Throws RequestError for any other.

import { messageOf } from '../../base/fault.ts'
import { RequestError } from './errors.ts'
import type { Limits, Settings } from './options.ts'
import type { WireRequest } from './transport.ts'

export type FetchInput = string | URL | Request

/**
 * Hop-by-hop headers (RFC 9110 7.6.1), and headers set by each connection itself. Requests ask for no content coding,
 * because it would have to be decoded.
 */
export const HOP_HEADERS: readonly string[] = [
  ...['accept-encoding', 'connection', 'content-length', 'expect', 'host', 'keep-alive'],
  ...['proxy-authenticate', 'proxy-authorization', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
]

/** Options with which Bun, Node or undici would bypass the attested connection. */
const DETOURS = ['agent', 'client', 'dispatcher', 'proxy', 'tls', 'unix', 'verbose'] as const

export async function readRequest(
  input: FetchInput,
  init: RequestInit | undefined,
  { origin, prefix, requestBytesMax }: Pick<Settings, 'origin' | 'prefix'> & Pick<Limits, 'requestBytesMax'>,
): Promise<WireRequest> {
  const detour = DETOURS.find(name => Reflect.get(init ?? {}, name) !== undefined)
  if (detour !== undefined) {
    throw new RequestError(`${detour}: an attested request takes its own connection; leave it out`)
  }
  const signal = init?.signal ?? (typeof input === 'object' && 'signal' in input ? input.signal : null)
  signal?.throwIfAborted()
  const request = requestOf(input, init)
  const url = new URL(request.url)
  url.hash = ''
  if (url.origin !== origin.origin || !url.pathname.startsWith(`${prefix}/`)) {
    const own = `${origin.origin}${prefix}`
    throw new RequestError(
      `${url.origin}${prefix === '' ? '' : url.pathname} is not the attested gateway, which is ${own}; give the client ${own}/v1 as baseURL`,
    )
  }
  const headers = new Headers(request.headers)
  for (const name of HOP_HEADERS) headers.delete(name)
  const body = new Uint8Array(await request.arrayBuffer())
  if (body.length > requestBytesMax) {
    throw new RequestError(`the body has ${body.length} bytes, and requestBytesMax is ${requestBytesMax}`)
  }
  return { method: request.method, url, headers, body: body.length === 0 ? null : body, signal }
}

function requestOf(input: FetchInput, init: RequestInit | undefined): Request {
  try {
    // Without `duplex` a streamed body is rejected. The signal is observed here; a Request would only follow it.
    const { signal: _, ...rest } = init ?? {}
    return new Request(input as string, { ...rest, ...(rest.body == null ? {} : { duplex: 'half' }) })
  } catch (error) {
    throw new RequestError(`no request can be made of it: ${messageOf(error)}`, { cause: error })
  }
}
