// Whether a request to the endpoint may come from a web page, which must not use it. Pure.
//
// Any page that a person visits can send requests to loopback. A browser adds Origin to each request that a page sends
// to another origin, except to plain reads, which have Sec-Fetch-Site (Fetch Metadata). After DNS rebinding the page's
// own name leads to loopback: such a request is of the same origin for the browser, and its Host is that name.

/** Returns why the request may come from a page; null if it does not. */
export function pageProblem(headers: Headers): string | null {
  if (headers.has('origin')) return 'it has an Origin header, so a web page sent it'
  const site = headers.get('sec-fetch-site')
  // A person who types the address sends `none`.
  if (site !== null && site !== 'none') return 'it has a Sec-Fetch-Site header, so a web page sent it'
  const host = headers.get('host')
  if (host !== null && loopbackHost.test(host)) return null
  return 'its Host is not a loopback address, as after DNS rebinding'
}

/** RFC 9110 7.2: a host, and a port unless it is the usual one. Only localhost is a name that no DNS can lead away. */
const loopbackHost = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i
