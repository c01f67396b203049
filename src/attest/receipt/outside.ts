// Upstreams outside of a gateway's measured VM, as allowed by a relying party: `NAME`, or `NAME=ORIGIN`, which also
// fixes the address. Pure.
//
// The host writes workload.json, including the names of upstreams, so a bare name trusts the host for its address.

type OutsideUpstream = {
  readonly name: string
  /** `https://HOST:PORT`; null for any address that the host chooses. */
  readonly origin: string | null
}

export function readOutside(entry: string): OutsideUpstream {
  const at = entry.indexOf('=')
  return at === -1 ? { name: entry, origin: null } : { name: entry.slice(0, at), origin: entry.slice(at + 1) }
}

export function outsideEntry(name: string, url: string): string {
  return `${name}=${originOf(url)}`
}

/** Returns a URL's origin. An invalid address is returned unchanged and matches no origin. */
export function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin : url
}

/** Reports whether the relying party allows this upstream; without `origin`, the name decides. No list allows none. */
export function isAllowed(outside: readonly string[], name: string, origin?: string | null): boolean {
  if (!Array.isArray(outside)) return false
  return outside.map(readOutside).some(allowed => {
    if (allowed.name !== name) return false
    return origin === undefined || allowed.origin === null || allowed.origin === origin
  })
}

/** Explains to a caller of the library how to allow an upstream. The command line has its own text. */
export function outsideAdvice(entry: string): string {
  return `allow it by outside: [${JSON.stringify(entry)}]`
}
