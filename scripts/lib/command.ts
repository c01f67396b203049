// Runs one command to its end, with a bound on its time and on how much of its output is kept.

import type { Print } from './terminal.ts'

export type CommandOptions = {
  readonly timeoutMs: number
  readonly cwd?: string
  /** Added to this process's environment. */
  readonly env?: Readonly<Record<string, string>>
  /** Each line of standard output and standard error as it comes. */
  readonly onLine?: Print
}

export type CommandResult = {
  readonly exitCode: number | null
  readonly timedOut: boolean
  /** The last part of both outputs, interleaved as they came. */
  readonly output: string
  readonly durationMs: number
  /** Time of processors that the command and those of its children took that it waited for. */
  readonly cpuMs: number
}

const outputCharsMax = 4 * 1024 * 1024
/** After SIGTERM; then SIGKILL. */
const graceMs = 5_000
/** A daemon that a command left behind may hold its pipes open: wait no longer than this for them. */
const drainMs = 2_000

export async function runCommand(argv: readonly string[], options: CommandOptions): Promise<CommandResult> {
  const startedMs = performance.now()
  const lines: string[] = []
  let keptChars = 0
  const keep = (line: string) => {
    lines.push(line)
    keptChars += line.length + 1
    while (keptChars > outputCharsMax) keptChars -= (lines.shift()?.length ?? 0) + 1
    options.onLine?.(line)
  }
  const child = Bun.spawn([...argv], {
    cwd: options.cwd ?? process.cwd(),
    env: { ...process.env, ...options.env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  let timedOut = false
  const timers = [
    setTimeout(() => {
      timedOut = true
      child.kill('SIGTERM')
    }, options.timeoutMs),
    setTimeout(() => child.kill('SIGKILL'), options.timeoutMs + graceMs),
  ]
  const drained = Promise.all([readLines(child.stdout, keep), readLines(child.stderr, keep)])
  await child.exited
  for (const timer of timers) clearTimeout(timer)
  await Promise.race([drained, Bun.sleep(drainMs)])
  const durationMs = performance.now() - startedMs
  const cpuMs = Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1000
  return { exitCode: child.exitCode, timedOut, output: lines.join('\n'), durationMs, cpuMs }
}

async function readLines(stream: ReadableStream<Uint8Array>, onLine: Print): Promise<void> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of stream) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = parts.pop() ?? ''
    for (const line of parts) onLine(line)
  }
  if (rest !== '') onLine(rest)
}
