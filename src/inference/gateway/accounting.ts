// What one request costs and how it went, closed exactly once whichever way it ends: its ticket, its ledger row, its observation.

import type { Clock } from '../../base/clock.ts'
import type { UsageOutcome } from '../../store/directory/usage.table.ts'
import type { Operation } from '../openai/request.ts'
import type { Caller, Observe, RecordUsage, Ticket, Tokens } from '../types.ts'

export type Closing = {
  readonly outcome: UsageOutcome
  readonly tokens: Tokens
  readonly status: number
  readonly errorCode: string | null
}

export type Books = {
  /** The model, once it is known to be in the catalog. */
  model: string
  /** Who was asked last; null while nobody was, and then there is nothing for the ledger. */
  upstream: string | null
  queueMs: number
  promptEstimate: number
  readonly noteFirstChunk: () => void
  readonly close: (closing: Closing) => void
}

export const NO_TOKENS: Tokens = { prompt: 0, completion: 0 }

export function openBooks(
  deps: { readonly clock: Clock; readonly recordUsage: RecordUsage; readonly observe: Observe },
  request: { readonly id: string; readonly operation: Operation; readonly caller: Caller; readonly ticket: Ticket },
): Books {
  const startedMs = deps.clock.monotonicMs()
  let firstChunkMs: number | null = null
  let isOpen = true
  const books: Books = {
    model: 'unknown',
    upstream: null,
    queueMs: 0,
    promptEstimate: 0,
    noteFirstChunk: () => {
      firstChunkMs ??= deps.clock.monotonicMs() - startedMs
    },
    close: ({ outcome, tokens, status, errorCode }) => {
      if (!isOpen) return
      isOpen = false
      request.ticket.settle(tokens)
      const { model, upstream, queueMs } = books
      if (upstream !== null) {
        const { id, caller } = request
        deps.recordUsage({ id, atMs: deps.clock.nowMs(), caller, model, upstream, tokens, outcome })
      }
      const durationMs = deps.clock.monotonicMs() - startedMs
      const { operation } = request
      deps.observe({ operation, model, upstream, status, errorCode, tokens, durationMs, firstChunkMs, queueMs })
    },
  }
  return books
}

/** Four bytes of JSON a token: what is charged for the prompt where the upstream could not say any more. */
export function estimatePromptTokens(bodyBytes: number): number {
  return Math.ceil(bodyBytes / 4)
}
