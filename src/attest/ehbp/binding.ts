// The binding of a bound request (session.ts): method, path with query, and API key. Client and server compute it in
// the same way, each from the request that it sends or receives. Pure.

import { toHex, utf8 } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'

export type BoundRequest = {
  readonly method: string
  /** Path and query as the gateway serves them: `/v1/...`. */
  readonly target: string
  readonly headers: { readonly get: (name: string) => string | null }
}

/** Returns SHA-256 of method, target and the digest of the key's secret in hexadecimal (empty without a key). */
export function bindingOf({ method, target, headers }: BoundRequest): Uint8Array {
  // The gateway authenticates by the same header: x-api-key counts only if Authorization is absent.
  const text = headers.get('authorization') ?? `Bearer ${headers.get('x-api-key') ?? ''}`
  const key = text.replace(/^bearer +/i, '')
  const keyDigest = key === '' ? '' : toHex(sha256(utf8(key.slice(key.lastIndexOf('_') + 1))))
  // Unambiguous: none of the three can contain a line feed.
  return sha256(utf8(`strongroom binding\n${method}\n${target}\n${keyDigest}`))
}
