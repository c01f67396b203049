// A build's events to a client as server-sent events, at the client's pace. Effects: reads the log on disk.

import { utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import type { EventReader } from '../events/events.ts'
import { ping, retryLine, toServerSentEvent } from '../events/line.codec.ts'

/** Interval of pings: short enough for proxies, and for people who are watching. */
const pingMs = 15_000

export type StreamHooks = {
  /** Called once, at the end of the stream, for any reason. */
  readonly onEnd: () => void
  /** Called for an internal failure. */
  readonly onFailure: (error: unknown) => void
}

/** Streams events until `complete`. `signal`: aborted when the client disconnects, or the daemon stops. */
export function eventStream(
  reader: Pick<EventReader, 'next'>,
  signal: AbortSignal,
  hooks: StreamHooks,
): ReadableStream<Uint8Array> {
  let isEnded = false
  let isBegun = false
  let isCancelled = false
  const end = () => {
    if (isEnded) return
    isEnded = true
    hooks.onEnd()
  }
  signal.addEventListener('abort', end, { once: true })
  return new ReadableStream<Uint8Array>(
    {
      pull: async controller => {
        try {
          if (!isBegun) {
            isBegun = true
            controller.enqueue(utf8(retryLine))
            return
          }
          const lines = isEnded ? null : await reader.next(pingMs)
          if (isCancelled) return
          if (lines === null || isEnded) {
            end()
            controller.close()
          } else controller.enqueue(utf8(lines.length === 0 ? ping : lines.map(toServerSentEvent).join('')))
        } catch (error) {
          end()
          // After the client has disconnected, the runtime has closed the stream, and closing it again fails.
          if (isCancelled || signal.aborted) return
          hooks.onFailure(error)
          controller.error(error)
        }
      },
      cancel: () => {
        isCancelled = true
        end()
      },
    },
    { highWaterMark: 0 },
  )
}

/**
 * Returns the id after which the client continues: `?from=`, otherwise Last-Event-ID, otherwise 0. Fault
 * invalid_request.
 */
export function startOf(request: Pick<Request, 'url' | 'headers'>): number {
  // For HTTP/1.0 without a Host header, the URL has no origin.
  const from = new URL(request.url, 'https://host.invalid').searchParams.getAll('from')
  if (from.length > 1) throw new Fault('invalid_request', 'from must occur only once.', { param: 'from' })
  const [text, param] =
    from[0] === undefined ? [request.headers.get('last-event-id') ?? '', 'Last-Event-ID'] : [from[0], 'from']
  if (text === '' && param !== 'from') return 0
  if (!/^[0-9]{1,15}$/.test(text)) {
    throw new Fault('invalid_request', `${param} must be the id of an event, a whole number.`, { param })
  }
  return Number(text)
}
