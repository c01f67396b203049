// Runs commands whose output may be too long to hold, and reads it line by line as it arrives. Effects: starts
// processes, kills slow ones.

import { Fault, messageOf } from '../base/fault.ts'
import { plainEnv, stderrCharsMax } from './command.ts'
import { createLineSplitter } from './lines.ts'
import { piecesOf } from './output-pieces.ts'

export type LinesCommand = {
  readonly timeoutMs: number
  /** Longer lines are skipped. */
  readonly lineBytesMax: number
  /** Called for each line, without its end. False ends the command. */
  readonly onLine: (line: string) => boolean
}

/**
 * Runs a command until it ends or the caller stops. `whole`: every line was seen. Between pieces of output other work
 * of this thread goes on. Faults: host.command_failed (cannot start, exit code not 0), host.command_timeout.
 */
export async function runLines(argv: readonly string[], command: LinesCommand): Promise<{ readonly whole: boolean }> {
  const name = argv[0] ?? ''
  const child = start(argv, name)
  let late = false
  const timer = setTimeout(() => {
    late = true
    child.kill('SIGKILL')
  }, command.timeoutMs)
  let wanted = true
  const splitter = createLineSplitter({
    lineBytesMax: command.lineBytesMax,
    onLine: line => {
      if (wanted) wanted = command.onLine(Buffer.from(line).toString('utf8'))
    },
    onOverlong: () => {},
  })
  try {
    const stderr = beginningOf(child.stderr, stderrCharsMax)
    for await (const piece of piecesOf(child.stdout)) {
      splitter.push(piece)
      if (!wanted) return { whole: false }
    }
    const exitCode = await child.exited
    if (late) throw new Fault('host.command_timeout', `${name}: not done within ${command.timeoutMs} ms`)
    if (exitCode === 0) return { whole: true }
    const why = child.signalCode ?? `exit code ${exitCode}`
    throw new Fault('host.command_failed', `${name}: ${why}: ${(await stderr).trim()}`)
  } finally {
    clearTimeout(timer)
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
  }
}

function start(argv: readonly string[], name: string) {
  try {
    return Bun.spawn([...argv], { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe', env: plainEnv })
  } catch (error) {
    throw new Fault('host.command_failed', `${name}: ${messageOf(error)}`, { cause: error })
  }
}

/** Keeps the beginning, and reads to the end so that the command never waits. Never rejects. */
export async function beginningOf(stream: ReadableStream<Uint8Array>, charsMax: number): Promise<string> {
  let text = ''
  try {
    for await (const piece of piecesOf(stream)) {
      if (text.length < charsMax) text += Buffer.from(piece).toString('utf8')
    }
  } catch {
    // The command was ended.
  }
  return text.slice(0, charsMax)
}
