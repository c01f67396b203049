// Cookies: of a session, and of a sign-in at the identity provider that has begun. Pure.
//
// RFC 6265bis 4.1.3.2: `__Host-` means Secure, only this host, every path; no other host can set it for this one.

const name = '__Host-strongroom'
/** Strict is enough: the console's own page sends the provider's answer, not the provider's redirect. */
const attemptName = '__Host-strongroom-oidc'

export function sessionCookie(token: string, lifeMs: number): string {
  return `${name}=${token}; Path=/; Max-Age=${Math.floor(lifeMs / 1000)}; Secure; HttpOnly; SameSite=Strict`
}

export const noSessionCookie = `${name}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict`

export function attemptCookie(token: string, lifeMs: number): string {
  return `${attemptName}=${token}; Path=/; Max-Age=${Math.floor(lifeMs / 1000)}; Secure; HttpOnly; SameSite=Strict`
}

export const noAttemptCookie = `${attemptName}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict`

/** Returns the secret of the session in a Cookie header; null if there is none, or there are two. */
export function tokenOf(header: string | null): string | null {
  return cookieValue(name, header)
}

/** Returns the secret of a sign-in at the identity provider in a Cookie header; null if there is none, or two. */
export function attemptTokenOf(header: string | null): string | null {
  return cookieValue(attemptName, header)
}

function cookieValue(name: string, header: string | null): string | null {
  const own = (header ?? '')
    .split(';')
    .map(pair => pair.trim())
    .filter(pair => pair.startsWith(`${name}=`))
  const [only] = own
  return only === undefined || own.length > 1 ? null : only.slice(name.length + 1)
}
