// Requests to the identity provider: within time and size, over verified TLS, without redirects. Effects: the network;
// reads the file of the authorities.

import { readFileSync, statSync } from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import { readAtMost } from '../../linux/net/bounded-http.ts'
import type { Outgoing } from '../../linux/net/outgoing.ts'

/** The provider does not answer as it must. The message is for the operator's log, not for browsers. */
export class ProviderFailure extends Error {}

/** From the connection to the last byte. */
const answerTimeoutMs = 10_000
/** No share: limits one answer. A token with 10,000 groups has half a megabyte, once for each kind of token. */
const answerBytesMax = 2_097_152
const fileBytesMax = 1_048_576

export type ProviderFetchDeps = {
  /** '' for the authorities of the system. */
  readonly caFile: string
  readonly send: Outgoing
  readonly timeoutMs?: number
}

export function createProviderFetch({ caFile, send, timeoutMs = answerTimeoutMs }: ProviderFetchDeps) {
  return async (url: string, init: RequestInit): Promise<Response> => {
    const { origin } = new URL(url)
    const headers = { ...(init.headers as Record<string, string>), 'accept-encoding': 'identity' }
    const options: BunFetchRequestInit = {
      ...init,
      headers,
      // A compressed body would be larger than what is counted.
      decompress: false,
      keepalive: false,
      signal: AbortSignal.timeout(timeoutMs),
      ...(caFile === '' ? {} : { tls: { ca: readOperatorFile('console.oidc.ca_file', caFile) } }),
    }
    try {
      const response = await send(url, options)
      if (response.status >= 300 && response.status < 400) {
        await response.body?.cancel().catch(() => {})
        throw new ProviderFailure(`${origin} redirects, which is refused`)
      }
      const body = await readAtMost(response, answerBytesMax)
      if (body === null) throw new ProviderFailure(`${origin} answers with more than ${answerBytesMax} bytes`)
      if (response.status >= 500 || response.status === 429) {
        throw new ProviderFailure(`${origin} answers with status ${response.status}`)
      }
      // Statuses without a body are no valid answers here.
      if (response.status < 200 || response.status === 204 || response.status === 205) {
        throw new ProviderFailure(`${origin} answers with status ${response.status}`)
      }
      return new Response(Buffer.from(body), { status: response.status, headers: response.headers })
    } catch (error) {
      if (error instanceof ProviderFailure) throw error
      const isLate = error instanceof Error && error.name === 'TimeoutError'
      const what = isLate ? `no answer within ${timeoutMs} ms` : messageOf(error)
      throw new ProviderFailure(`${origin}: ${what}`, { cause: error })
    }
  }
}

export type DocumentKind = 'tokens' | 'keys'

/**
 * Returns the response of the endpoint for tokens or keys. Throws ProviderFailure unless it is such a document, or a
 * refusal of the client or the code (RFC 6749 5.2).
 */
export async function requireDocument(response: Response, kind: DocumentKind, url: string): Promise<Response> {
  const { status, headers } = response
  const document = await objectIn(response.clone() as Response)
  if (kind === 'tokens' && status >= 400) {
    if (typeof document?.error === 'string' || headers.has('www-authenticate')) return response
  }
  if (status === 200 && document !== null && (kind === 'tokens' || hasKeys(document))) return response
  const { origin, pathname } = new URL(url)
  throw new ProviderFailure(`${origin}${pathname} answers with status ${status} and no JSON document of ${kind}`)
}

function hasKeys({ keys }: Readonly<Record<string, unknown>>): boolean {
  return Array.isArray(keys) && keys.length > 0 && keys.every(isObject)
}

async function objectIn(response: Response): Promise<Readonly<Record<string, unknown>> | null> {
  try {
    const value: unknown = await response.json()
    return isObject(value) ? value : null
  } catch {
    return null
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Reads a small file of the configuration. Throws ProviderFailure with its field. */
export function readOperatorFile(field: string, file: string): string {
  try {
    const stat = statSync(file)
    // A FIFO would block.
    if (!stat.isFile()) throw new Error('it is no regular file')
    if (stat.size > fileBytesMax) throw new Error(`it is larger than ${fileBytesMax} bytes`)
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new ProviderFailure(`${field}: ${file} cannot be read: ${messageOf(error)}`)
  }
}
