// Commands that run to their end. Effects: starts processes and kills those that take too long.

import type { ReadableStreamDefaultReader } from 'node:stream/web'
import { Fault, messageOf } from '../base/fault.ts'

type Command = {
  readonly stdin?: string | Uint8Array
  readonly timeoutMs: number
  /** For stdout and stderr each. */
  readonly outputBytesMax: number
  /** The whole environment; a short one with a plain PATH and the C locale unless given. */
  readonly env?: Record<string, string>
}

type CommandOutput = { readonly stdout: string; readonly stderr: string }

/**
 * Runs a command to its end. Faults: host.command_failed (no start, exit code, too much output), host.command_timeout.
 */
export async function run(argv: readonly string[], command: Command): Promise<CommandOutput> {
  const name = argv[0] ?? ''
  const child = start(argv, command)
  let timer: ReturnType<typeof setTimeout> | undefined
  const expiry = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Fault('host.command_timeout', `${name}: not done within ${command.timeoutMs} ms`)),
      command.timeoutMs,
    )
  })
  const readers = [child.stdout.getReader(), child.stderr.getReader()] as const
  try {
    const whole = Promise.all([
      collect(readers[0], name, command.outputBytesMax),
      collect(readers[1], name, command.outputBytesMax),
      child.exited,
    ])
    const [stdout, stderr, exitCode] = await Promise.race([whole, expiry])
    if (exitCode !== 0) {
      const why = child.signalCode ?? `exit code ${exitCode}`
      throw new Fault('host.command_failed', `${name}: ${why}: ${(stderr || stdout).trim().slice(0, stderrCharsMax)}`)
    }
    return { stdout, stderr }
  } finally {
    clearTimeout(timer)
    // The command leads its own group (`detached`), so that what it started goes with it.
    if (child.exitCode === null && child.signalCode === null) killGroup(child.pid)
    for (const reader of readers) void reader.cancel().catch(() => {})
  }
}

export const stderrCharsMax = 2_000
/** The environment of our commands unless the caller gives another. */
export const plainEnv = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' }

function start(argv: readonly string[], command: Command) {
  try {
    return Bun.spawn([...argv], {
      stdin: command.stdin === undefined ? 'ignore' : Buffer.from(command.stdin),
      stdout: 'pipe',
      stderr: 'pipe',
      env: command.env ?? plainEnv,
      detached: true,
    })
  } catch (error) {
    throw new Fault('host.command_failed', `${argv[0]}: ${messageOf(error)}`, { cause: error })
  }
}

async function collect(
  reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>,
  name: string,
  bytesMax: number,
): Promise<string> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return Buffer.concat(chunks).toString('utf8')
    sizeBytes += value.length
    if (sizeBytes > bytesMax) throw new Fault('host.command_failed', `${name}: wrote more than ${bytesMax} bytes`)
    chunks.push(value)
  }
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // Gone in the meantime.
  }
}
