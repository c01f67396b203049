// Progress of a build for people: on a terminal a moving line and one line per finished phase; otherwise a line per
// event. Effects: prints on stderr; a timer while there is a spinner.

import type { BuildEvent } from '../contract/http/build.ts'
import type { Io } from './io.ts'
import { oneLine, type Paint } from './render.ts'

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'] as const
const frameMs = 100
/** To the begin of the line, and clear it (ECMA-48 8.3.41). */
const clearLine = '\r\u001b[K'

export type Progress = {
  readonly show: (event: BuildEvent) => Promise<void>
  /** A phase of the client's own, such as packing. */
  readonly phase: (name: string, words: string) => Promise<void>
  /** A line that stays on the screen. */
  readonly note: (words: string) => Promise<void>
  /** Takes the spinner away; the last phase gets a cross if it failed. Idempotent. */
  readonly stop: (isFailed?: boolean) => Promise<void>
}

export type ProgressOptions = {
  readonly io: Pick<Io, 'stderr' | 'stderrIsTerminal' | 'env'>
  readonly paint: Paint
  readonly isQuiet: boolean
  readonly monotonicMs: () => number
}

export function createProgress(options: ProgressOptions): Progress {
  if (options.isQuiet) return quiet
  return options.io.stderrIsTerminal && options.io.env.TERM !== 'dumb' ? new Spinner(options) : plain(options)
}

const quiet: Progress = { show: async () => {}, phase: async () => {}, note: async () => {}, stop: async () => {} }

function plain({ io }: ProgressOptions): Progress {
  return {
    show: async event => {
      const { name, words } = wordsOf(event)
      await io.stderr(`${name}: ${words}\n`)
    },
    phase: (name, words) => io.stderr(`${name}: ${words}\n`),
    note: words => io.stderr(`${words}\n`),
    stop: async () => {},
  }
}

class Spinner implements Progress {
  readonly #options: ProgressOptions
  readonly #timer: ReturnType<typeof setInterval>
  #name: string | null = null
  #words = ''
  #sinceMs = 0
  #frame = 0
  #isStopped = false

  constructor(options: ProgressOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.#draw(), frameMs)
  }

  async show(event: BuildEvent): Promise<void> {
    const { name, words } = wordsOf(event)
    if (event.type === 'complete') return
    // Messages between the phases, such as commands, stay on the screen.
    if (event.type === 'host') await this.note(words)
    else await this.phase(name, words)
  }

  async note(words: string): Promise<void> {
    await this.#options.io.stderr(`${clearLine}${words}\n`)
  }

  async phase(name: string, words: string): Promise<void> {
    if (name !== this.#name) {
      await this.#finishPhase()
      this.#name = name
      this.#sinceMs = this.#options.monotonicMs()
    }
    this.#words = words
    await this.#draw()
  }

  async stop(isFailed = false): Promise<void> {
    if (this.#isStopped) return
    clearInterval(this.#timer)
    await this.#finishPhase(isFailed)
    this.#isStopped = true
  }

  async #finishPhase(isFailed = false): Promise<void> {
    const { io, paint } = this.#options
    if (this.#name === null) return
    const mark = isFailed ? paint.bad('✗') : paint.good('✓')
    await io.stderr(`${clearLine}${mark} ${this.#name.padEnd(nameWidth)} ${this.#seconds()}\n`)
    this.#name = null
  }

  async #draw(): Promise<void> {
    if (this.#name === null || this.#isStopped) return
    this.#frame = (this.#frame + 1) % FRAMES.length
    const head = `${FRAMES[this.#frame]} ${this.#name.padEnd(nameWidth)} ${this.#seconds()}  `
    const columns = Number(this.#options.io.env.COLUMNS) || 80
    await this.#options.io.stderr(`${clearLine}${head}${this.#words.slice(0, Math.max(10, columns - head.length - 1))}`)
  }

  #seconds(): string {
    return `${((this.#options.monotonicMs() - this.#sinceMs) / 1000).toFixed(1)} s`.padStart(8)
  }
}

const nameWidth = 'provenance'.length

/** A build's output is untrusted output of build scripts: control characters become text. */
function wordsOf(event: BuildEvent): { readonly name: string; readonly words: string } {
  switch (event.type) {
    case 'queued':
      return { name: 'queued', words: event.position === 0 ? 'next in turn' : `${event.position} before this one` }
    case 'complete':
      return { name: 'complete', words: event.result.status }
    default:
      return { name: event.type, words: oneLine(event.msg) }
  }
}
