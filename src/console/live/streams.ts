// Server-sent events (WHATWG HTML 9.2) that name what changed; a page then fetches again. Effects: timers.
//
// A client that reads slowly loses nothing: what it has not read yet is a set of topics, not a queue.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import { LimitedFault } from '../../http/limited.ts'
import { type Changes, TOPICS, type Topic } from './changes.ts'

/** Streams of all sessions. Share: a sixteenth for one session. */
const streamsMax = 128
const sessionParts = 16
/** At most one message a second for each topic. */
const lookMs = 1_000
/** Before a proxy or a browser takes the connection for dead. */
const quietMs = 15_000
/** A client that reads nothing for so long has gone. */
const stalledMs = 60_000

type Client = {
  readonly controller: ReadableStreamDefaultController<Uint8Array>
  readonly pending: Set<Topic>
  readonly end: () => void
  sentAtMs: number
  /** Since when it has not read what was sent; null if it has. */
  fullSinceMs: number | null
}

export type StreamsDeps = {
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly log: Logger
  readonly changes: Pick<Changes, 'look' | 'forget' | 'since'>
  /** Ends sessions whose time is over, and with them their streams. */
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
   * A stream for a session, which ends with it. It begins with what changed after the cursor `since`; null for all
   * topics. Fault rate_limited: there are too many.
   */
  open({ id, ended }: { readonly id: string; readonly ended: AbortSignal }, since: string | null): Response {
    const release = this.#places.take([{ name: id, parts: sessionParts }])
    if (typeof release === 'string') throw new LimitedFault('Too many pages of this session are open.', quietMs)
    // Before what is pending is found out, so that nothing falls in between.
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
          // Sends a line even without changes, because a browser reports the stream as open only then.
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

  /** Ends all of them. */
  stop(): void {
    for (const client of [...this.#clients]) client.end()
  }

  #remove(client: Client): void {
    if (!this.#clients.delete(client)) return
    try {
      client.controller.close()
    } catch {
      // The client has gone.
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

  /** A database that cannot be read now reports no changes. */
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
