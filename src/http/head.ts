// What is checked of a request before anything else looks at it. Pure.

import { Fault } from '../base/fault.ts'

/**
 * RFC 9112 3.2: two Host headers are refused, for proxies before us might believe the other one. Bun hands them over joined by a comma,
 * which no host has. Fault invalid_request.
 */
export function checkHost(headers: Headers): void {
  if (headers.get('host')?.includes(',') === true) {
    throw new Fault('invalid_request', 'The Host header must be sent once, with one host.')
  }
}
