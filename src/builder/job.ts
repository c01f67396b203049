// The build of this VM in the form that the host polls: its lines, its pending step and its result. No effects except
// through its deps.

import type { BuildStep } from '../contract/http/build.ts'
import type { AttestedStage, BuildLine, BuildProgress } from '../contract/vm/build-agent.ts'
import { BuildFailure } from './failure.ts'

/** Limits per response, as in BuildProgress of contract/vm/build-agent.ts. */
const linesPerAnswerMax = 64
const answerBytesMax = 60 * 1024
/** Limit on `msg`; its schema allows more. */
const messageCharsMax = 4000
/** Lines beyond this are not sent as events: the host fetches them in portions, before the result. */
const linesMax = 10_000
/** The end of the log that a failure's message quotes. */
const tailCharsMax = 4000
const errorCharsMax = 8000
const outputLineCharsMax = 16_384

export class Job {
  readonly #lines: BuildLine[] = []
  readonly #log: Uint8Array[] = []
  #tailFrom = 0
  readonly #cancelled = new AbortController()
  #network: BuildProgress['network'] = 'unused'
  #waiting: { readonly stage: AttestedStage; readonly done: () => void } | null = null
  #result: BuildProgress['result'] = null

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

  /** Adds a line by the builder itself. */
  say(type: BuildStep, text: string): void {
    const msg = cleanLine(text).slice(0, messageCharsMax).toWellFormed()
    this.#log.push(Buffer.from(`[${type}] ${msg}\n`))
    this.#push(type, msg)
  }

  /**
   * Returns a consumer of a program's output: unchanged into the log, and as lines of this type without control
   * characters.
   */
  output(type: 'fetch' | 'build' | 'init'): (chunk: Uint8Array) => void {
    this.#tailFrom = this.#log.length
    const decoder = new TextDecoder()
    let held = ''
    let isOverlong = false
    const push = (line: string) => {
      const msg = line.slice(0, messageCharsMax).toWellFormed()
      if (msg.trim() !== '') this.#push(type, msg)
    }
    return chunk => {
      this.#log.push(chunk.slice())
      // Many short lines are costly, so beyond the limit they are not split.
      if (type === 'build' && this.#lines.length > linesMax) return
      const text = held + decoder.decode(chunk, { stream: true })
      const end = text.lastIndexOf('\n') + 1
      // Clean all lines of the chunk with one call.
      const [first = '', ...others] = cleanText(text.slice(0, end)).split('\n')
      if (end > 0) {
        if (!isOverlong) push(first)
        isOverlong = false
        for (const line of others) push(line)
      }
      held = isOverlong ? '' : text.slice(end)
      if (held.length <= outputLineCharsMax) return
      push(`${cleanText(held).slice(0, 200)}… (build.log has the whole line)`)
      held = ''
      isOverlong = true
    }
  }

  logBytes(): Uint8Array {
    return Buffer.concat(this.#log)
  }

  /** Returns the end of the last program's log, for a failure's message. */
  tail(): string {
    const parts: Uint8Array[] = []
    let bytes = 0
    for (let at = this.#log.length - 1; at >= this.#tailFrom && bytes < tailCharsMax; at -= 1) {
      const part = this.#log[at]?.subarray(-tailCharsMax) ?? new Uint8Array(0)
      parts.unshift(part)
      bytes += part.length
    }
    return cleanText(new TextDecoder().decode(Buffer.concat(parts)))
      .trim()
      .slice(-tailCharsMax)
      .toWellFormed()
  }

  wantNetwork(): void {
    if (this.#network === 'done') throw new Error('invariant broken: the network was taken away for good')
    this.#network = 'wanted'
  }

  endNetwork(): void {
    this.#network = 'done'
  }

  /** Resolves when the evidence of this stage is complete. Failure `cancelled`. */
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
    // Send the result with the last line, so that a host that stops at the result has all lines.
    return { lines, network: this.#network, waitsFor: this.waitsFor, result: isLast ? this.#result : null }
  }

  #push(type: BuildStep, msg: string): void {
    const seq = this.#lines.length
    if (seq > linesMax && type === 'build') return
    this.#lines.push({ seq, type, msg: seq === linesMax ? '(build.log has the remaining lines)' : msg })
  }
}

/**
 * Returns one line without escape sequences (ECMA-48), control characters and marks that change the direction of
 * text.
 */
export function cleanLine(text: string): string {
  return cleanText(text).replaceAll('\n', '')
}

/** Does the same as cleanLine, but keeps line ends. */
function cleanText(text: string): string {
  return text
    .replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g, '')
    .replaceAll('\t', '  ')
    .replace(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, '')
}
