// A streamed answer on its way: upstream's bytes in, checked events out, as fast as the client reads. Effects: reads one answer.

import { receiptComment } from '../../attest/receipt/response.ts'
import { utf8 } from '../../base/bytes.ts'
import type { Deadlines } from '../../base/deadlines.ts'
import type { GatewayError } from '../../contract/inference.ts'
import { createStreamAnswer } from '../openai/chunk.ts'
import type { AnswerPlan, Usage } from '../openai/completion.ts'
import { createSseParser, sseEvent } from '../openai/sse.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import { UpstreamFault } from '../upstream/fault.ts'

export type StreamLimits = {
  /** Between two events; comments and half events do not count. */
  readonly idleTimeoutMs: number
  /** Until the first event, from when this begins to read. */
  readonly firstByteTimeoutMs: number
  readonly eventBytesMax: number
  readonly answerBytesMax: number
  /** For so long a client may take nothing of what is there. */
  readonly stallTimeoutMs: number
}

/** How a stream ended, told once. `error` is null unless the upstream failed. */
export type StreamEnd = {
  readonly outcome: 'completed' | 'aborted' | 'failed'
  readonly error: unknown
  readonly usage: Usage | null
  readonly deliveredCount: number
}

export type StreamDeps = {
  readonly deadlines: Deadlines
  readonly limits: StreamLimits
  readonly plan: AnswerPlan
  /** For an answer whose upstream did not count. */
  readonly estimate: (deliveredCount: number) => Usage
  /** Sees every byte that goes to the client. */
  readonly seal: (bytes: Uint8Array) => void
  /** The receipt's text once all bytes are sealed; null for none. */
  readonly receipt: (usage: Usage) => string | null
  /** The client has it all, is gone, or got an error. Before [DONE] goes out, so that the books are right when the client has it. */
  readonly onEnd: (end: StreamEnd) => void
  /** Aborts when the client goes. */
  readonly signal: AbortSignal
}

const DONE = utf8(sseEvent('[DONE]'))
const drainTimeoutMs = 1_000

type Batch = { readonly text: string; readonly isEnd: boolean }

/** Reads up to the first event, so that what is wrong by then can still be a status. UpstreamFault; afterwards errors are events. */
export async function openStream(upstream: UpstreamResponse, deps: StreamDeps): Promise<ReadableStream<Uint8Array>> {
  const { limits } = deps
  const parser = createSseParser(limits.eventBytesMax)
  const answer = createStreamAnswer(deps.plan, limits.answerBytesMax)
  let isLate = false
  const watch = createWatch(deps.deadlines, () => {
    isLate = true
    upstream.abort()
  })
  /** Nobody asks for more: the client does not read, and holds its place all the while. */
  const stalled = createWatch(deps.deadlines, () => {
    leave()
    controllerNow?.error(new Error('the client does not read'))
  })
  let controllerNow: Controller | null = null
  let isBegun = false
  let isEnded = false

  const end = (outcome: StreamEnd['outcome'], error: unknown) => {
    if (isEnded) return
    isEnded = true
    watch.pause()
    stalled.pause()
    deps.onEnd({ outcome, error, usage: answer.usage(), deliveredCount: answer.deliveredCount() })
  }
  const leave = () => {
    upstream.abort()
    end('aborted', null)
  }

  /** The next events that say something to the client. */
  const next = async (): Promise<Batch> => {
    watch.start(isBegun ? limits.idleTimeoutMs : limits.firstByteTimeoutMs)
    try {
      while (true) {
        const bytes = await upstream.read()
        if (bytes === null) throw new UpstreamFault(parser.isClean() ? 'unfinished' : 'cut')
        const events = parser.push(bytes)
        if (isBegun && events.length > 0) watch.start(limits.idleTimeoutMs)
        const batch = take(events)
        if (batch.text === '' && !batch.isEnd) continue
        isBegun = true
        return batch
      }
    } catch (error) {
      throw isLate ? new UpstreamFault(isBegun ? 'idle_timeout' : 'first_byte_timeout') : error
    } finally {
      watch.pause()
    }
  }

  const take = (events: readonly string[]): Batch => {
    let text = ''
    for (const data of events) {
      const chunk = answer.take(data)
      if (chunk === 'end') return { text, isEnd: true }
      if (chunk !== null) text += sseEvent(chunk)
    }
    return { text, isEnd: false }
  }

  const finish = (controller: Controller) => {
    const usage = answer.usage() ?? deps.estimate(answer.deliveredCount())
    if (deps.plan.request.includeUsage) deliver(controller, sseEvent(answer.usageChunk(usage)))
    deps.seal(DONE)
    const receipt = deps.receipt(usage)
    end('completed', null)
    controller.enqueue(receipt === null ? DONE : utf8(receiptComment(receipt) + sseEvent('[DONE]')))
    controller.close()
    void drain(upstream, deps.deadlines)
  }

  const deliver = (controller: Controller, text: string) => {
    const bytes = utf8(text)
    deps.seal(bytes)
    controller.enqueue(bytes)
  }

  const fail = (controller: Controller, error: unknown) => {
    upstream.abort()
    end('failed', error)
    controller.enqueue(utf8(sseEvent(JSON.stringify(errorEvent(error)))))
    controller.close()
  }

  let ready: Batch | null = await next()
  // Besides `cancel`, which comes only once somebody has begun to read.
  deps.signal.addEventListener('abort', leave, { once: true })
  return new ReadableStream<Uint8Array>(
    {
      start: controller => {
        controllerNow = controller
        stalled.start(limits.stallTimeoutMs)
      },
      pull: async controller => {
        stalled.pause()
        try {
          const batch = ready ?? (await next())
          ready = null
          if (isEnded) return
          if (batch.text !== '') deliver(controller, batch.text)
          if (batch.isEnd) finish(controller)
          else stalled.start(limits.stallTimeoutMs)
        } catch (error) {
          if (!isEnded) fail(controller, error)
        }
      },
      cancel: leave,
    },
    { highWaterMark: 0 },
  )
}

type Controller = ReadableStreamDefaultController<Uint8Array>

/** What a stream that has begun says in place of a status. */
function errorEvent(error: unknown): GatewayError {
  return error instanceof UpstreamFault
    ? { error: { code: 'upstream_failed', message: error.message } }
    : { error: { code: 'internal', message: 'An unexpected error occurred.' } }
}

/** What comes after [DONE] should be nothing; read so that the connection can be used again. */
async function drain(upstream: UpstreamResponse, deadlines: Deadlines): Promise<void> {
  const stop = deadlines.after(drainTimeoutMs, upstream.abort)
  const rest = await upstream.read().catch(() => null)
  stop()
  if (rest !== null) upstream.abort()
}

type Watch = {
  readonly start: (timeoutMs: number) => void
  readonly pause: () => void
}

/** One deadline that moves. */
function createWatch(deadlines: Deadlines, onLate: () => void): Watch {
  let forget: (() => void) | null = null
  // A client that does not read is no silence of the upstream.
  const pause = () => {
    forget?.()
    forget = null
  }
  return {
    start: ms => {
      pause()
      forget = deadlines.after(ms, onLate)
    },
    pause,
  }
}
