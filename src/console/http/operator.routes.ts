// The operator's interface for a session: the same operations, documents, refusals and records as on the socket.
// Effects: those of the operations.

import type { Person } from '../person.ts'
import type { Session } from '../sessions/sessions.ts'

/** The admin interface, asked by a person of the console. */
export type AskOperator = (request: Request, person: Person) => Promise<Response>

const prefix = '/api/operator'
/** The console's own word for passkeys, which the operator's interface has for the command line as well. */
const passkeyPrefix = '/api/passkeys'

/** Path in the operator's interface; null if the request is for another part. */
export function operatorPath(path: string, method: string): string | null {
  if (path.startsWith(`${prefix}/`)) return path.slice(prefix.length)
  if (path === passkeyPrefix && method === 'GET') return '/console/passkeys'
  if (path.startsWith(`${passkeyPrefix}/`) && method === 'DELETE') {
    return `/console/passkeys${path.slice(passkeyPrefix.length)}`
  }
  return null
}

/** `rest`: path and query there. */
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

/** Nothing else of a browser's request decides anything there. */
const PASSED = ['accept', 'content-type', 'content-length'] as const
