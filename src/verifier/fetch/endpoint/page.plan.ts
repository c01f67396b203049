// Detects requests to the endpoint that may come from a web page, which must not use it. Pure.
//
// Any page that a person visits can send requests to loopback. A browser adds Origin to a page's requests to another
// origin, except to plain reads, which have Sec-Fetch-Site (Fetch Metadata). After DNS rebinding, the page's own name
// resolves to loopback: the browser considers such a request same-origin, and its Host is that name.

/** Returns why the request may come from a page; null if it does not. */
export function pageProblem(headers: Headers): string | null {
  if (headers.has('origin')) return 'it has an Origin header, so a web page sent it'
  const site = headers.get('sec-fetch-site')
  // A browser sends `none` if a person typed the address.
  if (site !== null && site !== 'none') return 'it has a Sec-Fetch-Site header, so a web page sent it'
  const host = headers.get('host')
  if (host !== null && loopbackHost.test(host)) return null
  return 'its Host is not a loopback address, as after DNS rebinding'
}

/** Host with an optional port (RFC 9110 7.2). localhost is the only name that DNS cannot redirect. */
const loopbackHost = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/i
