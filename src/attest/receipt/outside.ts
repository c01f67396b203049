// Upstreams outside of a gateway's measured VM, as a relying party allows them: `NAME`, or `NAME=ORIGIN`, which also
// says where it must be. Pure.
//
// A host writes workload.json, names of upstreams among it: a name alone is its word for whatever it leads to.

type OutsideUpstream = {
  readonly name: string
  /** `https://HOST:PORT`; null means wherever its host says. */
  readonly origin: string | null
}

export function readOutside(entry: string): OutsideUpstream {
  const at = entry.indexOf('=')
  return at === -1 ? { name: entry, origin: null } : { name: entry.slice(0, at), origin: entry.slice(at + 1) }
}

export function outsideEntry(name: string, url: string): string {
  return `${name}=${originOf(url)}`
}

/** An invalid address is its own origin, which matches no other. */
export function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin : url
}

/** Whether the relying party allows this upstream; without `origin` the name decides. No list allows none. */
export function isAllowed(outside: readonly string[], name: string, origin?: string | null): boolean {
  if (!Array.isArray(outside)) return false
  return outside.map(readOutside).some(allowed => {
    if (allowed.name !== name) return false
    return origin === undefined || allowed.origin === null || allowed.origin === origin
  })
}

/** How a caller of the library allows an upstream; the command line has words of its own for it. */
export function outsideAdvice(entry: string): string {
  return `allow it by outside: [${JSON.stringify(entry)}]`
}
