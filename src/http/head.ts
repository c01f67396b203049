// The check of a request's headers that comes before all others. Pure.

import { Fault } from '../base/fault.ts'

/**
 * Fault invalid_request for two Host headers (RFC 9112 3.2), because a proxy in front may believe the other. Bun joins
 * them with a comma, which no host contains.
 */
export function checkHost(headers: Headers): void {
  if (headers.get('host')?.includes(',') === true) {
    throw new Fault('invalid_request', 'The Host header must be sent once, with one host.')
  }
}
