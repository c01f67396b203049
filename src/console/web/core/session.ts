// The person who is logged in, and their rights. Effects: requests.

import { computed, signal } from '@preact/signals'
import type { OidcBegun, SessionDocument } from '../../../contract/admin/console.ts'
import { mayDo, OPERATIONS } from '../../../contract/admin/roles.ts'
import { forgetDocuments } from './loaded.ts'
import { problemFrom, type RequestOptions, RequestProblem, requestJson } from './request.ts'
import { address, go } from './router.ts'

export type SessionState =
  | { readonly kind: 'unknown' }
  | { readonly kind: 'out'; readonly problem: RequestProblem | null }
  | { readonly kind: 'in'; readonly session: SessionDocument }

export const sessionState = signal<SessionState>({ kind: 'unknown' })

export const session = computed(() => (sessionState.value.kind === 'in' ? sessionState.value.session : null))

/** Why a link or an answer of the identity provider did not count, in a browser whose session goes on; or null. */
export const entryProblem = signal<RequestProblem | null>(null)

/**
 * Reads the session. First exchanges a link's token in the fragment, or the identity provider's answer in the query,
 * for a session, and removes it from the address. If that fails, the browser's session stays.
 */
export async function enter(): Promise<void> {
  const token = tokenIn(location.hash)
  const { path } = address.peek()
  const answer = path === answerPath && location.search !== '' ? location.search : null
  const isLogIn = token !== null || answer !== null
  let refusal: RequestProblem | null = null
  try {
    if (answer !== null) {
      // Always the overview: an address from outside must not choose the page.
      go('/', { replace: true })
      await requestJson('/api/session/oidc', { method: 'POST', body: { answer } })
    } else if (token !== null) {
      history.replaceState(null, '', location.pathname + location.search)
      await requestJson('/api/session', { method: 'POST', body: { token } })
    }
    if (isLogIn) forgetDocuments()
  } catch (error) {
    refusal = problemFrom(error)
  }
  try {
    begin(await requestJson<SessionDocument>('/api/session'))
    entryProblem.value = refusal
  } catch (error) {
    const problem = problemFrom(error)
    sessionState.value = {
      kind: 'out',
      problem: refusal ?? (problem.status === 401 && !isLogIn ? null : problem),
    }
  }
}

/** Path to which the identity provider sends the browser back. */
const answerPath = '/oidc'

/** Leaves the page for the identity provider. */
export async function goToProvider(): Promise<void> {
  const { url } = await requestJson<OidcBegun>('/api/session/oidc/begin', { method: 'POST', body: {} })
  // No other scheme may run in this page.
  if (!url.startsWith('https://')) throw new Error('the address of the identity provider is no https URL')
  location.assign(url)
}

/**
 * Reads the session again: it may have ended, or belong to another person, because pages of a browser share the cookie.
 */
export async function lookAgain(): Promise<void> {
  try {
    const found = await requestJson<SessionDocument>('/api/session', { isBackground: true }).catch(noticeEnd)
    const { value: known } = session
    if (known === null) return
    if (found.actor !== known.actor || found.role !== known.role) forgetDocuments()
    sessionState.value = { kind: 'in', session: found }
  } catch {
    // The appliance does not respond, which the live stream reports.
  }
}

/** Begins with a session, before the page's first request. */
export function begin(found: SessionDocument): void {
  firstCursor = sessionState.peek().kind === 'in' ? null : found.cursor
  sessionState.value = { kind: 'in', session: found }
}

let firstCursor: string | null = null

/** Returns the cursor from before the page's first request, once: later content may be newer. */
export function takeCursor(): string | null {
  const cursor = firstCursor
  firstCursor = null
  return cursor
}

export async function leave(): Promise<void> {
  await requestJson('/api/session', { method: 'DELETE' }).catch(noticeEnd)
  forgetDocuments()
  sessionState.value = { kind: 'out', problem: null }
}

/** Returns the token in `#token=…`; null if there is none. */
export function tokenIn(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, '')).get('token')
}

/** Reports whether this session's role has the right for an operation, identified by method and route. */
export function may(operation: keyof typeof OPERATIONS): boolean {
  const { value } = session
  const right = OPERATIONS[operation]?.right
  return value !== null && right !== undefined && mayDo(value.role, right)
}

const operatorBase = '/api/operator'

/**
 * Requests a document of the operator's interface, by its path on the admin socket. Logs out if the session has ended.
 */
export async function operate<T>(path: string, options: RequestOptions = {}): Promise<T> {
  return await requestJson<T>(operatorBase + path, options).catch(noticeEnd)
}

export function operatorPath(path: string): string {
  return operatorBase + path
}

/** Shows that the session has ended, if that is the error. Always throws. */
export function noticeEnd(error: unknown): never {
  if (error instanceof RequestProblem && error.status === 401) {
    forgetDocuments()
    const ended = new RequestProblem({ code: error.code, message: 'your session has ended', status: 401 })
    sessionState.value = { kind: 'out', problem: ended }
  }
  throw error
}
