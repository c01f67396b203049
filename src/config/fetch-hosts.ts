// Hosts that builds may fetch from, in the configuration: HOST or HOST:PORT, either with =ADDRESS behind it. Pure.

import { isIPv4 } from 'node:net'

export type FetchHost = {
  /** A DNS name in lowercase. */
  readonly host: string
  readonly port: number
  /** IPv4 address to connect to, without a look-up. Null if the DNS decides, but never for a private address. */
  readonly address: string | null
}

export const fetchHostAllowed =
  'HOST or HOST:PORT (443 unless given), where the host is a DNS name in lowercase; =ADDRESS may follow, an IPv4 address, for a host that has a private one'

/** Null for any other form. */
export function parseFetchHost(text: string): FetchHost | null {
  const match = /^([a-z0-9.-]{1,253})(?::([0-9]{1,5}))?(?:=([0-9.]{7,15}))?$/.exec(text)
  if (match === null) return null
  const [, host = '', digits, address = null] = match
  const port = digits === undefined ? 443 : Number(digits)
  const isName = host.split('.').every(label => /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(label))
  // A last label of digits would read as an address.
  if (!isName || /(^|\.)[0-9]+$/.test(host) || port < 1 || port > 65_535) return null
  return address !== null && !isIPv4(address) ? null : { host, port, address }
}
