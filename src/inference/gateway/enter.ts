// Admits a metered request (its key, the headers of its body, the key's limits) and opens its account. Effects:
// through its dependencies.

import type { Fault } from '../../base/fault.ts'
import { type AccountDeps, openAccount, type RequestAccount } from '../metering/account.ts'
import type { RequestTrace } from '../traces/tracer.ts'
import type { Admit, Authenticate, Caller, KeyHeaders, Operation, Prepare, Refusal, Ticket } from '../types.ts'

/** Header of Anthropic's clients that carries the key. */
export const apiKeyHeader = 'x-api-key'

/** Returns headers with the key in Authorization. If that header is absent, the key is read from the header `name`. */
export function withKeyFrom(headers: KeyHeaders, name: string | null): KeyHeaders {
  const key = name === null || headers.get('authorization') !== null ? null : headers.get(name)
  return key === null ? headers : new Headers({ authorization: `Bearer ${key}` })
}

export type EntryRequest = {
  readonly id: string
  readonly operation: Operation
  /** Headers with the key in Authorization. */
  readonly headers: KeyHeaders
  /** A fault in the headers of the body. Only callers with a valid key see it. */
  readonly fault: Fault | null
  /** Tokens reserved until they are counted. */
  readonly tokens: number
}

/** The sender, as the request path needs it. */
export type EnteredCaller = Pick<Caller, 'keyPrefix' | 'keyDigest' | 'organizationId' | 'madeBy' | 'rules'>

export type Entry<C extends EnteredCaller = EnteredCaller> =
  | {
      readonly ok: true
      readonly caller: C
      readonly headers: Ticket['headers']
      /** Called once, immediately after admission. */
      readonly open: (trace: RequestTrace | null) => RequestAccount
    }
  | { readonly ok: false; readonly refusal: Refusal }

/**
 * Admits a request. Synchronous in the process that decides, except while waiting for a fleet's share of the key's
 * limits. Throws or rejects with Faults: unauthenticated, metering_unavailable, rate_limited, and the given fault.
 */
export type Enter = (asked: EntryRequest) => Entry | Promise<Entry>

export type EnterDeps = AccountDeps & {
  readonly authenticate: Authenticate
  readonly admit: Admit
  /** Default: `admit` decides at once. */
  readonly prepare?: Prepare
}

/** Used by the process that decides. */
export function createEnter(deps: EnterDeps): (asked: EntryRequest) => Entry<Caller> | Promise<Entry<Caller>> {
  const enter = (asked: EntryRequest, isPrepared: boolean): Entry<Caller> | Promise<Entry<Caller>> => {
    const { id, operation, headers, fault, tokens } = asked
    const caller = deps.authenticate(headers)
    if (fault !== null) throw fault
    const prepared = isPrepared ? null : (deps.prepare?.(caller, tokens) ?? null)
    // The key may belong to another caller by then.
    if (prepared !== null) return prepared.then(() => enter(asked, true))
    const admission = deps.admit(caller, tokens)
    if (!admission.ok) return admission
    const { ticket } = admission
    const open = (trace: RequestTrace | null) => openAccount(deps, { id, operation, caller, ticket, trace })
    return { ok: true, caller, headers: ticket.headers, open }
  }
  return asked => enter(asked, false)
}
