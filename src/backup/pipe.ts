// Gives a sealed backup to a command's standard input, for stores that are no file system. Effects: starts the command.

import { Fault, messageOf } from '../base/fault.ts'
import { stderrCharsMax } from '../linux/command.ts'
import { COMMAND_OF_BACKUP } from './last.plan.ts'

export type PipeTarget = {
  /** Run by `/bin/sh -c`, with this process's environment. */
  readonly command: string
  /** Name of the backup by its time, in STRONGROOM_BACKUP_NAME. */
  readonly name: string
  readonly timeoutMs: number
}

/**
 * Returns the number of bytes that the command has read once it has exited with 0. If the stream fails, the command is
 * killed before its input ends, so that it takes no part for the whole. A command that leaves the last bytes unread,
 * which the kernel has buffered, and exits with 0 is not noticed. Faults: host.command_failed (an exit code, a
 * signal, the end before the last byte), host.command_timeout, and those of the stream.
 */
export async function pipeTo({ command, name, timeoutMs }: PipeTarget, stream: ReadableStream<Uint8Array>) {
  const child = Bun.spawn(['/bin/sh', '-c', command], {
    stdin: 'pipe',
    stdout: 'ignore',
    stderr: 'pipe',
    env: { ...process.env, STRONGROOM_BACKUP_NAME: name },
    // A group of its own, so that what it started ends with it.
    detached: true,
  })
  const stderr = lastText(child.stderr)
  const over = new AbortController()
  const timer = setTimeout(() => {
    over.abort(new Fault('host.command_timeout', `${COMMAND_OF_BACKUP} did not end within ${timeoutMs / 1000} s`))
    killGroup(child.pid)
  }, timeoutMs)
  try {
    const { bytes, brokeAt } = await copied(stream, child, over.signal)
    const exitCode = await child.exited
    over.signal.throwIfAborted()
    if (exitCode !== 0) {
      const why = child.signalCode ?? `exit code ${exitCode}`
      throw new Fault('host.command_failed', `${COMMAND_OF_BACKUP} failed: ${why}: ${await stderr}`)
    }
    if (brokeAt !== null) {
      const message = `${COMMAND_OF_BACKUP} ended with 0 before it had read everything: ${brokeAt}`
      throw new Fault('host.command_failed', message)
    }
    return bytes
  } catch (error) {
    over.signal.throwIfAborted()
    throw error
  } finally {
    clearTimeout(timer)
    if (child.exitCode === null && child.signalCode === null) killGroup(child.pid)
  }
}

type Child = { readonly pid: number; readonly stdin: Bun.FileSink; readonly exited: Promise<number> }

/** `brokeAt`: why a write failed; null if every byte was written. */
async function copied(
  stream: ReadableStream<Uint8Array>,
  { pid, stdin, exited }: Child,
  signal: AbortSignal,
): Promise<{ readonly bytes: number; readonly brokeAt: string | null }> {
  let bytes = 0
  const ended = exited.then(() => 'ended' as const)
  try {
    for await (const piece of stream) {
      signal.throwIfAborted()
      let broken: string | null = null
      const written = (async () => {
        await stdin.write(piece)
        await stdin.flush()
      })().catch((error: unknown) => {
        broken = messageOf(error)
      })
      if ((await Promise.race([written, ended])) === 'ended') return { bytes, brokeAt: `after ${bytes} bytes` }
      if (broken !== null) return { bytes, brokeAt: broken }
      bytes += piece.length
    }
  } catch (error) {
    killGroup(pid)
    throw error
  }
  try {
    await stdin.end()
    return { bytes, brokeAt: null }
  } catch (error) {
    return { bytes, brokeAt: messageOf(error) }
  }
}

/** The last characters of a stream. */
async function lastText(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const piece of stream) text = (text + decoder.decode(piece, { stream: true })).slice(-stderrCharsMax)
  return text.trim()
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The command has ended in the meantime.
  }
}
