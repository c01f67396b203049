// Steps with their times, and a cleanup that always runs: at the end, on failure, on SIGINT and on SIGTERM.

import { machineLoad } from './machine.ts'
import { type Print, print, seconds } from './terminal.ts'

export type Steps = {
  /**
   * Runs one step and prints its name, its duration and its result. A failure ends the run and prints how busy the
   * machine is.
   */
  readonly step: <T>(name: string, run: (signal: AbortSignal) => Promise<T> | T) => Promise<T>
  /** Prints a line under the step that is running. */
  readonly note: Print
  /** Registers an undo. Undos run last first, each once, whatever happens. */
  readonly defer: (name: string, undo: () => Promise<unknown> | unknown) => void
  /** Aborts on SIGINT and SIGTERM. */
  readonly signal: AbortSignal
}

export type StepsOptions = {
  readonly print?: Print
  /** For each undo. */
  readonly undoTimeoutMs?: number
  /** Where SIGINT and SIGTERM come from. */
  readonly signals?: Pick<NodeJS.Process, 'on' | 'off'>
}

type Undo = { readonly name: string; readonly undo: () => Promise<unknown> | unknown }

const interrupted = Symbol('interrupted')

/** Runs the body, then every undo. Returns the exit status: 0, 1 after a failure, 130 after an interruption. */
export async function runSteps(body: (steps: Steps) => Promise<void>, options: StepsOptions = {}): Promise<number> {
  const say = options.print ?? print
  const source = options.signals ?? process
  const undos: Undo[] = []
  const controller = new AbortController()
  const stop = () => controller.abort(interrupted)
  source.on('SIGINT', stop)
  source.on('SIGTERM', stop)
  const startedMs = performance.now()
  try {
    const status = await runBody(body, { say, undos, signal: controller.signal })
    const undone = await runUndos(undos, say, options.undoTimeoutMs ?? 30_000)
    say(`${seconds(performance.now() - startedMs)}  in all`)
    return undone ? status : status || 1
  } finally {
    source.off('SIGINT', stop)
    source.off('SIGTERM', stop)
  }
}

type Running = { readonly say: Print; readonly undos: Undo[]; readonly signal: AbortSignal }

async function runBody(body: (steps: Steps) => Promise<void>, { say, undos, signal }: Running): Promise<number> {
  const stopped = new Promise<never>((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
  stopped.catch(() => {})
  const step: Steps['step'] = async (name, run) => {
    signal.throwIfAborted()
    const startedMs = performance.now()
    try {
      const result = await Promise.race([Promise.resolve(run(signal)), stopped])
      const detail = typeof result === 'string' && result !== '' ? `: ${result}` : ''
      say(`${seconds(performance.now() - startedMs)}  ${name}${detail}`)
      return result
    } catch (error) {
      if (error !== interrupted) {
        say(`${seconds(performance.now() - startedMs)}  ${name}: FAILED`)
        say(`          machine: ${machineLoad()}`)
      }
      throw error
    }
  }
  const steps: Steps = {
    step,
    note: line => say(`          ${line}`),
    defer: (name, undo) => undos.push({ name, undo }),
    signal,
  }
  try {
    await body(steps)
    return signal.aborted ? 130 : 0
  } catch (error) {
    if (error === interrupted) {
      say('interrupted')
      return 130
    }
    say(error instanceof Error ? (error.stack ?? error.message) : String(error))
    return 1
  }
}

/** True when every undo succeeded in time. */
async function runUndos(undos: Undo[], say: Print, timeoutMs: number): Promise<boolean> {
  let allDone = true
  for (let next = undos.pop(); next !== undefined; next = undos.pop()) {
    const { name, undo } = next
    const startedMs = performance.now()
    try {
      await withTimeout(async () => undo(), timeoutMs)
      say(`${seconds(performance.now() - startedMs)}  clean up: ${name}`)
    } catch (error) {
      allDone = false
      say(`${seconds(performance.now() - startedMs)}  clean up: ${name}: FAILED: ${String(error)}`)
    }
  }
  return allDone
}

async function withTimeout(run: () => Promise<unknown>, timeoutMs: number): Promise<void> {
  let timer: Timer | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${timeoutMs} ms`)), timeoutMs)
  })
  try {
    await Promise.race([run(), late])
  } finally {
    clearTimeout(timer)
  }
}
