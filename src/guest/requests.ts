// Handles lines of the host: parses, bounds the requests in progress, turns failures into refusals. Effects: the log.

import { messageOf } from '../base/fault.ts'
import { type Logger, redact } from '../base/log.ts'
import { type GuestResponse, type ParsedRequest, type ReceivedLine, type Refusal, refuse } from './wire.codec.ts'

/** Never rejects. Null for no response. The caller calls `next` once the response is sent. */
export type HandleLine = (
  line: ReceivedLine,
) => Promise<{ readonly response: GuestResponse; readonly next: 'go_on' | 'power_off' } | null>

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
/** A response without the id of its request. */
export type Outcome = WithoutId<Extract<GuestResponse, { ok: true }>> | Refusal

type HandlerDeps<Request> = {
  readonly parse: (text: string) => ParsedRequest<Request>
  readonly answer: (request: Request) => Promise<Outcome>
  readonly log: Logger
}

/** Requests in progress; more are refused. */
const requestsMax = 64

export function createHandler<Request extends { readonly id: string; readonly op: string }>(
  deps: HandlerDeps<Request>,
): HandleLine {
  const { parse, answer, log } = deps
  let requests = 0
  let droppedCount = 0

  /** Logs the 1st, 10th, 100th, …: a flood must not become a flood of log lines. */
  const drop = (reason: string): null => {
    droppedCount += 1
    if (Number.isInteger(Math.log10(droppedCount))) log.warn('line dropped', { reason, count: droppedCount })
    return null
  }

  const perform = async (request: Request): Promise<Outcome> => {
    if (requests >= requestsMax) return tooMany
    requests += 1
    try {
      const outcome = await answer(request)
      if (!outcome.ok) log.warn('request refused', { op: request.op, code: outcome.code, reason: outcome.message })
      return outcome
    } catch (error) {
      const reason = redact(messageOf(error))
      log.error('request failed', { op: request.op, reason })
      return refuse('failed', reason)
    } finally {
      requests -= 1
    }
  }

  return async line => {
    if (line.kind === 'dropped') return drop(line.reason)
    const parsed = parse(line.text)
    if (parsed === null) return drop('no_request')
    if (parsed.kind === 'refused') {
      return { response: { id: parsed.id, ...refuse('bad_request', parsed.message) }, next: 'go_on' }
    }
    const { id, op } = parsed.request
    const outcome = await perform(parsed.request)
    return { response: { id, ...outcome }, next: op === 'shutdown' && outcome.ok ? 'power_off' : 'go_on' }
  }
}

export const tooMany = refuse('failed', 'too many requests at once')
