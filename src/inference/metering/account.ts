// One request's account, closed exactly once however the request ends: its ticket, its ledger row, its observation.

import type { Clock } from '../../base/clock.ts'
import type { TokensSource, UsageOutcome } from '../../store/directory/usage/usage.table.ts'
import { BusyFault } from '../failure.ts'
import type { RequestTrace } from '../traces/tracer.ts'
import type { Caller, Observe, Operation, Ticket, Tokens } from '../types.ts'
import { type Budgets, hasBudget, type Release } from './budgets.ts'
import { type EndUser, NO_LABELS, type UsageLabels } from './labels.ts'
import type { RecordUsage, Spender } from './types.ts'

export type RequestEnd = {
  readonly outcome: UsageOutcome
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
  readonly status: number
  readonly errorCode: string | null
}

export type RequestAccount = {
  readonly owner: Spender
  /** Null if this request is not traced. */
  readonly trace: RequestTrace | null
  /** The model, once the request names a known one. */
  model: string
  /** The upstream of the last attempt. Null if none was called; then the ledger gets no row. */
  upstream: string | null
  queueMs: number
  bodyBytes: number
  promptEstimate: number
  /** Milliseconds from the beginning to the first chunk; null before it. */
  firstChunkMs: number | null
  /**
   * Returns the number of chunks of a stream that its client has received so far. Null without a stream or before its
   * start.
   */
  countDelivered: (() => number) | null
  /** Whether the client requests the cost. */
  wantsCost: boolean
  /** Nano-dollars in decimal, once closed; null if the client did not request it, or no upstream was called. */
  costNanoUsd: string | null
  /** Labels for the ledger. */
  labels: UsageLabels
  /** End user for budgets; null if the request names none. */
  endUser: EndUser | null
  /** Whether a budget applies. Without one nothing is reserved, and the maximum cost is not computed. */
  readonly hasBudget: boolean
  /** Whether a budget counts the end user. */
  readonly countsEndUser: boolean
  /** Reserves the maximum cost before an upstream is called. Faults: budget_exceeded, metering_unavailable. */
  readonly reserve: (worst: Tokens) => Promise<void>
  /** Adds to the tokens that the request has reserved of its key's limit. Throws BusyFault. */
  readonly reserveTokens: (tokens: number) => void | Promise<void>
  readonly noteFirstChunk: () => void
  /** Returns or resolves once the row is stored; the response ends only then. Further calls have no effect. */
  readonly close: (end: RequestEnd) => void | Promise<void>
}

export type AccountDeps = {
  readonly clock: Clock
  readonly recordUsage: RecordUsage
  readonly observe: Observe
  readonly budgets: Pick<Budgets, 'reserve' | 'costOf'>
}

type AccountedRequest = {
  readonly id: string
  readonly operation: Operation
  readonly caller: Caller
  readonly ticket: Ticket
  readonly trace: RequestTrace | null
}

export const NO_TOKENS: Tokens = { prompt: 0, completion: 0 }

export function openAccount(
  { clock, recordUsage, observe, budgets }: AccountDeps,
  { id, operation, caller, ticket, trace }: AccountedRequest,
): RequestAccount {
  const startedMs = clock.monotonicMs()
  let isOpen = true
  let reserved: { readonly worst: Tokens; readonly release: Release } | null = null
  const account: RequestAccount = {
    owner: { organizationId: caller.organizationId, keyPrefix: caller.keyPrefix },
    trace,
    model: 'unknown',
    upstream: null,
    queueMs: 0,
    bodyBytes: 0,
    promptEstimate: 0,
    firstChunkMs: null,
    countDelivered: null,
    wantsCost: false,
    costNanoUsd: null,
    labels: NO_LABELS,
    endUser: null,
    hasBudget: hasBudget(caller),
    countsEndUser: caller.budgets.endUser !== undefined,
    reserve: async worst => {
      // A second model answers instead of the first; only one of them is charged.
      reserved?.release()
      reserved = null
      const release = await budgets.reserve(caller, account.model, { worst, endUser: account.endUser?.name ?? null })
      if (release === null) return
      if (isOpen) reserved = { worst, release }
      else release()
    },
    reserveTokens: tokens => {
      const refusal = ticket.extend(tokens)
      if (refusal !== null) throw new BusyFault(refusal.message, refusal.retryAfterSeconds)
    },
    noteFirstChunk: () => {
      account.firstChunkMs ??= clock.monotonicMs() - startedMs
    },
    close: ({ outcome, tokens: used, tokensSource, status, errorCode }) => {
      if (!isOpen) return
      isOpen = false
      const tokens = reserved === null ? used : atMost(used, reserved.worst)
      ticket.settle(tokens)
      const { model, upstream, queueMs, firstChunkMs } = account
      if (account.wantsCost && upstream !== null) account.costNanoUsd = budgets.costOf(model, tokens).toString()
      const { labels } = account
      const kept =
        upstream === null
          ? undefined
          : recordUsage({ id, atMs: clock.nowMs(), caller, model, upstream, tokens, tokensSource, outcome, labels })
      // In the same turn, because the sums now hold the real cost.
      reserved?.release(upstream === null ? 0 : Number(budgets.costOf(model, tokens)))
      const durationMs = clock.monotonicMs() - startedMs
      observe({ operation, model, upstream, status, errorCode, tokens, durationMs, firstChunkMs, queueMs })
      trace?.end({ model, upstream, status, outcome, errorCode, tokens, tokensSource, queueMs, firstChunkMs })
      return kept
    },
  }
  return account
}

/** Caps an estimate, which may exceed what the request allows. */
export function atMost(tokens: Tokens, worst: Tokens): Tokens {
  const prompt = Math.min(tokens.prompt, worst.prompt)
  const completion = Math.min(tokens.completion, worst.completion)
  return tokens.cached === undefined
    ? { prompt, completion }
    : { prompt, completion, cached: Math.min(tokens.cached, prompt) }
}

/** Estimated tokens of a picture or a document, whatever its size. */
export const partTokens = 1_600

/** Returns the estimated tokens of a text: one per four characters, or bytes of JSON. */
export function estimateTokens(length: number): number {
  return Math.ceil(length / 4)
}
