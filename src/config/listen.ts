// Listen addresses as configuration has them. Pure.

import { parseListen } from './cross-checks.ts'

/** An address that the schema and its cross-checks have passed. */
export function listenAddress(text: string): { hostname: string; port: number } {
  const parsed = parseListen(text)
  if (parsed === null) throw new Error(`invariant broken: unchecked listen address ${text}`)
  return parsed
}

/** Address of a listener for clients on this machine. */
export function localUrl(listen: string, port: number): string {
  const { hostname } = listenAddress(listen)
  if (hostname === '0.0.0.0' || hostname === '::') return `https://127.0.0.1:${port}`
  return hostname.includes(':') ? `https://[${hostname}]:${port}` : `https://${hostname}:${port}`
}
