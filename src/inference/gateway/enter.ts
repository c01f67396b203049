// Admission of a metered request: its key, the headers of its body, the key's limits. Opens its account. Pure but for
// its dependencies.

import type { Fault } from '../../base/fault.ts'
import { type AccountDeps, openAccount, type RequestAccount } from '../metering/account.ts'
import type { RequestTrace } from '../traces/tracer.ts'
import type { Admit, Authenticate, Caller, Operation, Refusal, Ticket } from '../types.ts'

export type AskedEntry = {
  readonly id: string
  readonly operation: Operation
  /** With the key in Authorization. */
  readonly headers: Headers
  /** Fault of the body's headers. Reported only to callers with a valid key. */
  readonly fault: Fault | null
  /** To be reserved until they are counted. */
  readonly tokens: number
}

/** The part of the caller that the request path needs. */
export type EnteredCaller = Pick<Caller, 'keyPrefix' | 'keyDigest' | 'organizationId' | 'rules'>

export type Entry<C extends EnteredCaller = EnteredCaller> =
  | {
      readonly ok: true
      readonly caller: C
      readonly headers: Ticket['headers']
      /** Called once, and at once. */
      readonly open: (trace: RequestTrace | null) => RequestAccount
    }
  | { readonly ok: false; readonly refusal: Refusal }

/** Synchronous if this process decides. Faults: unauthenticated, metering_unavailable, rate_limited, the given one. */
export type Enter = (asked: AskedEntry) => Entry | Promise<Entry>

export type EnterDeps = AccountDeps & { readonly authenticate: Authenticate; readonly admit: Admit }

/** In the process that decides. */
export function createEnter(deps: EnterDeps): (asked: AskedEntry) => Entry<Caller> {
  return ({ id, operation, headers, fault, tokens }) => {
    const caller = deps.authenticate(headers)
    if (fault !== null) throw fault
    const admission = deps.admit(caller, tokens)
    if (!admission.ok) return admission
    const { ticket } = admission
    const open = (trace: RequestTrace | null) => openAccount(deps, { id, operation, caller, ticket, trace })
    return { ok: true, caller, headers: ticket.headers, open }
  }
}
