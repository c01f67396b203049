// The operator's interface for a session: the same operations, documents, errors and records as on the socket. Effects:
// those of the operations.

import type { Person } from '../person.ts'
import type { Session } from '../sessions/sessions.ts'

/** Sends a person's request to the admin interface. */
export type AskOperator = (request: Request, person: Person) => Promise<Response>

const prefix = '/api/operator'
/** The console's own path for passkeys, which the operator's interface also has for the command line. */
const passkeyPrefix = '/api/passkeys'

/** Returns the path in the operator's interface; null for any other path. */
export function operatorPath(path: string, method: string): string | null {
  if (path.startsWith(`${prefix}/`)) return path.slice(prefix.length)
  if (path === passkeyPrefix && method === 'GET') return '/console/passkeys'
  if (path.startsWith(`${passkeyPrefix}/`) && method === 'DELETE') {
    return `/console/passkeys${path.slice(passkeyPrefix.length)}`
  }
  return null
}

/** Forwards a request. `rest`: path and query in the operator's interface. */
export function askOperator(
  ask: AskOperator,
  { request, rest, session }: { readonly request: Request; readonly rest: string; readonly session: Session },
): Promise<Response> {
  const headers = new Headers()
  for (const name of PASSED) {
    const value = request.headers.get(name)
    if (value !== null) headers.set(name, value)
  }
  const { method } = request
  const body = method === 'GET' || method === 'HEAD' ? null : request.body
  const signal = AbortSignal.any([request.signal, session.ended])
  return ask(new Request(`http://strongroom${rest}`, { method, headers, body, signal }), session.person)
}

/** Forwarded headers. All others of a browser's request are dropped. */
const PASSED = ['accept', 'content-type', 'content-length'] as const
