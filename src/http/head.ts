// The head of a request: its target, and the check of its headers that comes before all others. Pure.

import { Fault } from '../base/fault.ts'

/**
 * Throws Fault invalid_request for two Host headers (RFC 9112 3.2), because a proxy in front may use the other one. Bun
 * joins them with a comma, which no host contains.
 */
export function checkHost(headers: Headers): void {
  if (headers.get('host')?.includes(',') === true) {
    throw new Fault('invalid_request', 'The Host header must be sent once, with one host.')
  }
}

/** Path and query of an absolute URL, as they were sent. */
export function targetOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  return start < 0 ? '/' : url.slice(start)
}
