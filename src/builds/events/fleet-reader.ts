// Reads a build's events wherever they are written, on this host or another host of the fleet, and continues when the
// build changes hosts. Effects: reads the log on disk, requests to other hosts.

import { type Clock, pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Build } from '../../store/directory/build.table.ts'
import type { EventReader } from './events.ts'
import type { ReadLine } from './line.codec.ts'
import { ServerSentEvents } from './server-sent.codec.ts'

export type FleetReaderDeps = {
  readonly clock: Clock
  /** Returns the current row; null if its record was removed. */
  readonly look: () => Promise<Build | null>
  readonly hostId: string
  readonly local: (build: Build, afterId: number) => Pick<EventReader, 'next'>
  /** Fetches the events after an id from the host that has the build. Fault fleet.unavailable. */
  readonly remote: (hostId: string, afterId: number, signal: AbortSignal) => Promise<Response>
}

type Source =
  | { readonly kind: 'local'; readonly reader: Pick<EventReader, 'next'> }
  | { readonly kind: 'remote'; readonly stream: RemoteEvents }

const retryMs = 500
/** The stream ends if a build's host is unreachable for this many attempts; its client retries. */
const attemptsMax = 240

export class FleetReader {
  readonly #deps: FleetReaderDeps
  readonly #leaving = new AbortController()
  #afterId: number
  #source: Source | null = null
  #failures = 0
  #isDone = false

  /** `first`: the response of the host that has the build; null if it must be requested. */
  constructor(
    deps: FleetReaderDeps,
    { afterId, first }: { readonly afterId: number; readonly first: Response | null },
  ) {
    this.#deps = deps
    this.#afterId = afterId
    if (first !== null) this.#source = { kind: 'remote', stream: new RemoteEvents(first, afterId) }
  }

  /** See `EventReader.next`. */
  async next(waitMs: number): Promise<readonly ReadLine[] | null> {
    if (this.#isDone || this.#leaving.signal.aborted) return null
    this.#source ??= await this.#open()
    if (this.#source === null) return this.#isDone ? null : []
    const lines = await this.#read(this.#source, waitMs)
    if (lines === null) {
      // Another host writes the events from here on, or the build's host is unreachable.
      this.#source = null
      return []
    }
    const last = lines.at(-1)
    if (last === undefined) return lines
    this.#failures = 0
    this.#afterId = last.id
    if (last.type === 'complete') this.#isDone = true
    return lines
  }

  /** Ends reading. Call it when the client has disconnected. */
  close(): void {
    this.#leaving.abort()
  }

  async #read(source: Source, waitMs: number): Promise<readonly ReadLine[] | null> {
    if (source.kind === 'remote') return await source.stream.next(waitMs, this.#deps.clock)
    return await source.reader.next(waitMs)
  }

  /** Opens the source of events. Null if there is none at the moment, or reading is finished. */
  async #open(): Promise<Source | null> {
    const { look, hostId, local, remote } = this.#deps
    const build = await look()
    if (build === null || this.#failures >= attemptsMax) return this.#end()
    if (this.#failures > 0 && build.closedAtMs !== null && build.hostId === hostId) return this.#end()
    this.#failures += 1
    if (this.#failures > 1) await pause(this.#deps.clock, retryMs, this.#leaving.signal)
    if (build.hostId === hostId) {
      // Events written by another host come first.
      if (build.sourceHostId !== null && build.sourceHostId !== hostId && build.closedAtMs === null) return null
      return { kind: 'local', reader: local(build, this.#afterId) }
    }
    try {
      const answer = await remote(build.hostId, this.#afterId, this.#leaving.signal)
      if (answer.status === 200) return { kind: 'remote', stream: new RemoteEvents(answer, this.#afterId) }
      await answer.body?.cancel()
      // The events were removed, or the client may no longer read them.
      if (answer.status < 500 && answer.status !== 429) return this.#end()
    } catch (error) {
      if (!(error instanceof Fault)) throw error
    }
    return null
  }

  #end(): null {
    this.#isDone = true
    return null
  }
}

class RemoteEvents {
  readonly #reader: Pick<ReadableStreamDefaultReader<Uint8Array>, 'read'> | null
  readonly #parser: ServerSentEvents
  #reading: Promise<ReadLine[] | null> | null = null

  constructor(answer: Response, afterId: number) {
    this.#reader = answer.body?.getReader() ?? null
    this.#parser = new ServerSentEvents(afterId)
  }

  /** Returns the next events, possibly none after `waitMs`; null if the stream has ended. */
  async next(waitMs: number, clock: Clock): Promise<readonly ReadLine[] | null> {
    this.#reading ??= this.#read()
    const waited = new AbortController()
    const read = this.#reading.then(lines => ({ lines }))
    const late = pause(clock, waitMs, waited.signal).then(() => null)
    const first = await Promise.race([read, late])
    waited.abort()
    if (first === null) return []
    this.#reading = null
    return first.lines
  }

  async #read(): Promise<ReadLine[] | null> {
    try {
      for (;;) {
        const { done = true, value } = (await this.#reader?.read()) ?? {}
        if (done || value === undefined) return null
        const lines = this.#parser.push(value)
        if (lines.length > 0) return lines
      }
    } catch {
      // The stream broke off: complete events were forwarded, and the rest is requested again.
      return null
    }
  }
}
