// Which requests a browser may have sent for a page of the console itself. Pure.
//
// A page of another site can make a browser send requests here with the person's cookie, and a name of that site can
// resolve to this host (DNS rebinding). A request must therefore name a host of the console, and a change must come
// from the console's page.

import { isIPv4, isIPv6 } from 'node:net'
import { Fault } from '../../base/fault.ts'

/** Returns the hosts that a request may name, in the form of `hostOf`. */
export function hostsOf(names: readonly string[]): ReadonlySet<string> {
  return new Set(['localhost', '127.0.0.1', '[::1]', ...names.map(canonical)])
}

/** Parses the Host header; null if it is malformed. */
export function hostOf(header: string | null): { readonly name: string; readonly authority: string } | null {
  const match = /^([a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([0-9]{1,5}))?$/.exec(header?.toLowerCase() ?? '')
  const [authority, name = '', port] = match ?? []
  if (authority === undefined) return null
  // Browsers omit https's default port from an origin.
  return { name: canonical(name), authority: port === '443' ? name : authority }
}

function canonical(name: string): string {
  const bare = name.startsWith('[') ? name.slice(1, -1) : name
  if (isIPv4(bare)) return bare
  return isIPv6(bare) ? new URL(`http://[${bare}]`).hostname : bare.toLowerCase()
}

/**
 * Returns a Fault for a request from another site's page; null if the request is allowed. `isChange`: whether it
 * changes something.
 */
export function crossSiteFault(
  headers: Headers,
  { origin, isChange }: { readonly origin: string; readonly isChange: boolean },
): Fault | null {
  const site = headers.get('sec-fetch-site')
  // `none`: a person typed the address, which changes nothing.
  const isOwnSite = site === null || site === 'same-origin' || (site === 'none' && !isChange)
  const from = headers.get('origin')
  const isOwnOrigin = from === null ? !isChange : from === origin
  if (isOwnSite && isOwnOrigin) return null
  return new Fault(
    'forbidden',
    'The request does not come from a page of this console; open the console and try there.',
  )
}
