// Headers of every response of the console: what its page may load and do, and that it must not be framed. Pure.

/** CSP level 3: nothing inline, nothing from another origin, no text that becomes script. */
const pagePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

/** Documents of the interface are not pages: opened as one, they have no scripts and no origin. */
const dataPolicy = "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

const FIXED = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'permissions-policy':
    'publickey-credentials-create=(self), publickey-credentials-get=(self), clipboard-write=(self), camera=(), microphone=(), geolocation=(), payment=(), usb=()',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
} as const

/** Headers that a service behind the console must not set for the console's origin. */
const REMOVED = [
  'set-cookie',
  'access-control-allow-origin',
  'access-control-allow-credentials',
  'alt-svc',
  'clear-site-data',
  'strict-transport-security',
  // Browsers would report the pages' requests to addresses that the service chooses.
  'nel',
  'report-to',
  'reporting-endpoints',
  'content-security-policy-report-only',
  'service-worker-allowed',
  'link',
  'refresh',
  'speculation-rules',
  // A browser would ask for a password in the console's name.
  'www-authenticate',
]

/** Returns the response of a service with these headers, and `no-store` unless it sets its own cache lifetime. */
export function guarded(response: Response): Response {
  const headers = new Headers(response.headers)
  for (const name of REMOVED) headers.delete(name)
  return withFixed(response, headers, dataPolicy)
}

/** Returns a response of the console itself, which may set its cookie. */
export function ownGuarded(response: Response): Response {
  return withFixed(response, new Headers(response.headers), dataPolicy)
}

/** Returns a response with a file of the page. */
export function pageGuarded(response: Response): Response {
  return withFixed(response, new Headers(response.headers), pagePolicy)
}

function withFixed(response: Response, headers: Headers, policy: string): Response {
  headers.set('content-security-policy', policy)
  for (const [name, value] of Object.entries(FIXED)) headers.set(name, value)
  if (!headers.has('cache-control')) headers.set('cache-control', 'no-store')
  return new Response(response.body, { status: response.status, headers })
}
