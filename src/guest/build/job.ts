// The one build of this VM as the host sees it: its lines, what it waits for, and how it ended. No effects but through what it is given.

import type { BuildStep } from '../../contract/build.ts'
import type { AttestedStage, BuildLine, BuildProgress } from '../../contract/build-agent.ts'
import { createLineSplitter } from '../../linux/lines.ts'
import { BuildFailure } from './failure.ts'

/** Per answer, as BuildProgress of contract/build-agent.ts says. */
const linesPerAnswerMax = 64
const answerBytesMax = 60 * 1024
/** Of `msg`; its schema allows more. */
const messageCharsMax = 4000
/** What stands in the log beyond these is not sent as events. */
const linesMax = 50_000
/** Of the log's end, in the message of a failure. */
const tailCharsMax = 4000
const errorCharsMax = 8000
const outputLineBytesMax = 16_384

export class Job {
  readonly #lines: BuildLine[] = []
  readonly #log: Uint8Array[] = []
  readonly #cancelled = new AbortController()
  #network: BuildProgress['network'] = 'unused'
  #waiting: { readonly stage: AttestedStage; readonly done: () => void } | null = null
  #result: BuildProgress['result'] = null
  /** The last lines that a program printed. */
  #tail: string[] = []

  /** Aborted with a failure `cancelled`. */
  get signal(): AbortSignal {
    return this.#cancelled.signal
  }

  get waitsFor(): AttestedStage | null {
    return this.#waiting?.stage ?? null
  }

  get networkIsDone(): boolean {
    return this.#network === 'done'
  }

  /** A line of our own. */
  say(type: BuildStep, text: string): void {
    const msg = cleanLine(text).slice(0, messageCharsMax).toWellFormed()
    this.#log.push(Buffer.from(`[${type}] ${msg}\n`))
    this.#push(type, msg)
  }

  /** What a program prints: into the log as it is, as lines of this type without what a terminal would act on. Whatever it looks like, it stays text. */
  output(type: 'fetch' | 'build' | 'init'): (chunk: Uint8Array) => void {
    const decoder = new TextDecoder()
    const splitter = createLineSplitter({
      lineBytesMax: outputLineBytesMax,
      onLine: line => {
        const msg = cleanLine(decoder.decode(line)).slice(0, messageCharsMax).toWellFormed()
        if (msg.trim() === '') return
        this.#tail = [...this.#tail.slice(-39), msg]
        this.#push(type, msg)
      },
      onOverlong: () => this.#push(type, `(a line of more than ${outputLineBytesMax} bytes: see build.log)`),
    })
    return chunk => {
      this.#log.push(chunk.slice())
      splitter.push(chunk)
    }
  }

  logBytes(): Uint8Array {
    return Buffer.concat(this.#log)
  }

  /** The end of what programs have printed, for the message of a failure. */
  tail(): string {
    return this.#tail.join('\n').slice(-tailCharsMax).toWellFormed()
  }

  wantNetwork(): void {
    if (this.#network === 'done') throw new Error('invariant broken: the network was taken away for good')
    this.#network = 'wanted'
  }

  endNetwork(): void {
    this.#network = 'done'
  }

  /** Until the evidence of this stage is complete. Failure `cancelled`. */
  waitFor(stage: AttestedStage): Promise<void> {
    this.signal.throwIfAborted()
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#waiting = null
        reject(this.signal.reason)
      }
      this.signal.addEventListener('abort', stop, { once: true })
      const done = () => {
        this.signal.removeEventListener('abort', stop)
        this.#waiting = null
        resolve()
      }
      this.#waiting = { stage, done }
    })
  }

  evidenceIsComplete(): void {
    this.#waiting?.done()
  }

  succeed(result: { sizeBytes: number; sha256: string; provenanceSha256: string }): void {
    this.#result = { status: 'ok', ...result }
  }

  fail({ errorType, message }: BuildFailure): void {
    const error = message.slice(0, errorCharsMax).toWellFormed()
    this.#result = { status: 'failed', error, errorType }
  }

  cancel(): void {
    if (this.#result === null) this.#cancelled.abort(new BuildFailure('cancelled', 'the build was cancelled'))
  }

  progress(from: number): BuildProgress {
    const lines: BuildLine[] = []
    let bytes = 0
    for (const line of this.#lines.slice(from, from + linesPerAnswerMax)) {
      bytes += Buffer.byteLength(JSON.stringify(line)) + 1
      if (bytes > answerBytesMax && lines.length > 0) break
      lines.push(line)
    }
    const isLast = from + lines.length >= this.#lines.length
    // With the last line, so that a host that ends at the result has them all.
    return { lines, network: this.#network, waitsFor: this.waitsFor, result: isLast ? this.#result : null }
  }

  #push(type: BuildStep, msg: string): void {
    const seq = this.#lines.length
    if (seq > linesMax && type === 'build') return
    this.#lines.push({ seq, type, msg: seq === linesMax ? '(more lines are in build.log alone)' : msg })
  }
}

/** Without escape sequences (ECMA-48), control characters and marks that change the direction of text. */
export function cleanLine(text: string): string {
  return text
    .replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g, '')
    .replaceAll('\t', '  ')
    .replace(/[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu, '')
}
