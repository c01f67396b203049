// Requests cosignatures from witnesses (C2SP tlog-witness): after each entry, and again in time, because a
// cosignature has a time. Effects: HTTP to the addresses of the configuration.
//
// A third party runs a witness: one address, no redirects, bounded answers and times. It can refuse and be late; its
// signatures are verified before they count.

import { decodeCheckpoint } from '../attest/log/checkpoint.ts'
import { decodeNote, encodeNote, type NoteKey } from '../attest/log/note.ts'
import { toBase64, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { harmlessLine } from '../base/harmless.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import { readAtMost } from '../linux/net/bounded-http.ts'
import type { Outgoing } from '../linux/net/outgoing.ts'
import type { TransparencyLog } from './log.ts'

export type Witness = {
  readonly key: NoteKey
  /** The witness's add-checkpoint address; null if cosignatures are added by `strongroom log cosign`. */
  readonly url: string | null
}

export type WitnessesDeps = {
  readonly log: TransparencyLog
  readonly witnesses: readonly Witness[]
  readonly clock: Clock
  readonly logger: Logger
  readonly send: Outgoing
}

const requestTimeoutMs = 15_000
const answerBytesMax = 65_536
const sweepMs = 60_000
/** A cosignature is renewed at this age. */
const renewMs = 12 * 3_600_000
const retry = { minMs: 1_000, maxMs: 600_000 }
const problemCharsMax = 256

export class Witnesses {
  readonly #deps: WitnessesDeps
  readonly #workers: Workers
  readonly #problems = new Map<string, { readonly text: string; readonly sinceMs: number }>()
  readonly #stopping = new AbortController()

  constructor(deps: WitnessesDeps) {
    this.#deps = deps
    this.#workers = createWorkers({
      clock: deps.clock,
      work: name => this.#ask(name),
      retry,
      onFailure: ({ key, error, retryMs }) => {
        const problem = harmlessLine(messageOf(error)).slice(0, problemCharsMax)
        const before = this.#problems.get(key)
        if (before?.text !== problem)
          deps.logger.warn('a witness has not cosigned the log', { witness: key, retryMs, problem })
        this.#problems.set(key, { text: problem, sinceMs: before?.sinceMs ?? deps.clock.nowMs() })
      },
    })
  }

  start(): void {
    this.#deps.log.onAppended(() => this.#wakeAll())
    this.#workers.sweep(sweepMs, () => this.#wakeAll())
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#workers.stop()
  }

  /** Why a witness has not cosigned the newest tree; null if it has, or was not called yet. */
  problem(name: string): string | null {
    return this.#problems.get(name)?.text ?? null
  }

  /** By the wall clock; null if its last answer was good, or it was not called yet. */
  failingSinceMs(name: string): number | null {
    return this.#problems.get(name)?.sinceMs ?? null
  }

  #wakeAll(): void {
    for (const { key, url } of this.#deps.witnesses) if (url !== null) this.#workers.wake(key.name)
  }

  async #ask(name: string): Promise<void> {
    const { log, witnesses, clock } = this.#deps
    const url = witnesses.find(({ key }) => key.name === name)?.url ?? null
    const head = log.head()
    if (url === null || head === null) return
    const known = log.cosignatures().find(({ witness }) => witness === name)
    if (known?.size === head.size && clock.nowMs() - known.atMs < renewMs) return
    const first = await this.#send(url, known?.size ?? 0, head.size)
    // The witness reports the tree that it has seen.
    const answer = first.status === conflict ? await this.#send(url, seenSize(first.body, head.size), head.size) : first
    if (answer.status !== 200) throw new Error(`it answers ${answer.status}: ${answer.body.trim()}`)
    const text = log.signed(head.size)?.text ?? ''
    const note = decodeNote(utf8(`${text}\n${answer.body}`))
    const taken = await log.cosign(note, decodeCheckpoint(text))
    if (!taken.includes(name)) throw new Error('its answer has no cosignature of the key that log.witnesses names')
    this.#problems.delete(name)
  }

  async #send(url: string, oldSize: number, size: number): Promise<{ readonly status: number; readonly body: string }> {
    const { log, send } = this.#deps
    const note = log.signed(size)
    if (note === null) throw new Fault('internal', 'the log has no tree of this size')
    const proof = log.consistency(oldSize, size).map(toBase64)
    const response = await send(url, {
      method: 'POST',
      body: `${[`old ${oldSize}`, ...proof].join('\n')}\n\n${encodeNote(note)}`,
      signal: AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(requestTimeoutMs)]),
    })
    const body = await readAtMost(response, answerBytesMax)
    if (body === null) throw new Error(`it answers with more than ${answerBytesMax} bytes`)
    return { status: response.status, body: Buffer.from(body).toString('utf8') }
  }
}

const conflict = 409

/** A larger tree than ours was shown by this key before: this host has lost entries, or another one has its key. */
function seenSize(body: string, size: number): number {
  const seen = /^(0|[1-9][0-9]{0,15})\n$/.exec(body)?.[1]
  if (seen === undefined) throw new Error('it answers with a conflict, and not with a size')
  if (Number(seen) <= size) return Number(seen)
  throw new Error(
    `it has seen this log with ${seen} entries, and there are ${size}: entries were lost, or another host has this key`,
  )
}
