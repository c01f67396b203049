// Server-sent events (WHATWG HTML 9.2) that name what changed, so that a page fetches it again. Effects: timers.
//
// A slow client loses nothing: its unread changes are a set of topics, not a queue.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import { LimitedFault } from '../../http/limited.ts'
import { type Changes, TOPICS, type Topic } from './changes.ts'

/** Streams of all sessions. Share: a sixteenth for one session. */
const streamsMax = 128
const sessionParts = 16
/** Poll interval: at most one message per second and topic. */
const lookMs = 1_000
/** Interval of keep-alive messages, shorter than the idle timeouts of proxies and browsers. */
const quietMs = 15_000
/** A client that has read nothing for this time is disconnected. */
const stalledMs = 60_000

type Client = {
  readonly controller: ReadableStreamDefaultController<Uint8Array>
  readonly pending: Set<Topic>
  readonly end: () => void
  sentAtMs: number
  /** Time since which the client has not read what was sent; null if it has read everything. */
  fullSinceMs: number | null
}

export type StreamsDeps = {
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly log: Logger
  readonly changes: Pick<Changes, 'look' | 'forget' | 'since'>
  /** Ends expired sessions, and with them their streams. */
  readonly sweep: () => void
}

export class Streams {
  readonly #deps: StreamsDeps
  readonly #places = new FairSlots(streamsMax)
  readonly #clients = new Set<Client>()
  #stopping: AbortController | null = null

  constructor(deps: StreamsDeps) {
    this.#deps = deps
  }

  get count(): number {
    return this.#clients.size
  }

  /**
   * Opens a stream that ends with its session. It starts with changes after the cursor `since`, or all topics if null.
   * Fault rate_limited if there are too many.
   */
  open({ id, ended }: { readonly id: string; readonly ended: AbortSignal }, since: string | null): Response {
    const release = this.#places.take([{ name: id, parts: sessionParts }])
    if (typeof release === 'string') throw new LimitedFault('Too many pages of this session are open.', quietMs)
    // Start before determining pending changes, so that none is lost in between.
    this.#run()
    const pending = new Set(this.#changedSince(since))
    let client: Client | null = null
    const end = () => {
      ended.removeEventListener('abort', end)
      release()
      if (client !== null) this.#remove(client)
    }
    const body = new ReadableStream<Uint8Array>(
      {
        start: controller => {
          const nowMs = this.#deps.clock.monotonicMs()
          // Send a line even without changes, because a browser reports the stream as open only then.
          client = { controller, pending, end, sentAtMs: Number.NEGATIVE_INFINITY, fullSinceMs: null }
          this.#clients.add(client)
          this.#send(client, nowMs)
        },
        cancel: end,
      },
      { highWaterMark: 4 },
    )
    ended.addEventListener('abort', end, { once: true })
    return new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8' } })
  }

  /** Ends all streams. */
  stop(): void {
    for (const client of [...this.#clients]) client.end()
  }

  #remove(client: Client): void {
    if (!this.#clients.delete(client)) return
    try {
      client.controller.close()
    } catch {
      // The client has disconnected.
    }
    if (this.#clients.size === 0) this.#stopping?.abort()
  }

  /** Polls while a stream is open. */
  #run(): void {
    if (this.#stopping !== null && !this.#stopping.signal.aborted) return
    const stopping = new AbortController()
    this.#stopping = stopping
    this.#deps.changes.forget()
    this.#look()
    void this.#repeat(stopping.signal)
  }

  async #repeat(signal: AbortSignal): Promise<void> {
    for (;;) {
      await pause(this.#deps.clock, lookMs, signal)
      if (signal.aborted) return
      this.#deps.sweep()
      const topics = this.#look()
      const nowMs = this.#deps.clock.monotonicMs()
      for (const client of [...this.#clients]) {
        for (const topic of topics) client.pending.add(topic)
        this.#send(client, nowMs)
      }
    }
  }

  #changedSince(cursor: string | null): readonly Topic[] {
    if (cursor === null) return TOPICS
    try {
      return this.#deps.changes.since(cursor)
    } catch (error) {
      this.#deps.log.debug('what changed is not known', { error })
      return TOPICS
    }
  }

  /** Polls for changes. Reports none if the database is unreadable at the moment. */
  #look(): Topic[] {
    try {
      return this.#deps.changes.look()
    } catch (error) {
      this.#deps.log.debug('what changed is not known', { error })
      return []
    }
  }

  #send(client: Client, nowMs: number): void {
    const isQuiet = nowMs - client.sentAtMs >= quietMs
    if (client.pending.size === 0 && !isQuiet) return
    if ((client.controller.desiredSize ?? 0) <= 0) {
      client.fullSinceMs ??= nowMs
      if (nowMs - client.fullSinceMs >= stalledMs) client.end()
      return
    }
    client.fullSinceMs = null
    client.sentAtMs = nowMs
    const topics = [...client.pending]
    client.pending.clear()
    client.controller.enqueue(encoder.encode(topics.length === 0 ? ': here\n\n' : messageOf(topics)))
  }
}

const encoder = new TextEncoder()

function messageOf(topics: readonly Topic[]): string {
  return `event: changed\ndata: ${JSON.stringify({ topics })}\n\n`
}
