// Runs one program to its end. Effects: a child process.

import { Fault, messageOf } from '../base/fault.ts'

/** Standard output. Faults: host.command_failed (not startable, non-zero exit, too much output), host.command_timeout. */
export async function runCommand(argv: readonly string[], { timeoutMs }: { timeoutMs: number }): Promise<string> {
  const name = argv[0] ?? ''
  let child: ReturnType<typeof spawn>
  try {
    child = spawn(argv, timeoutMs)
  } catch (error) {
    throw new Fault('host.command_failed', `${name}: ${messageOf(error)}`)
  }
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (child.exitCode === 0) return stdout
  if (child.signalCode === timeoutSignal)
    throw new Fault('host.command_timeout', `${name}: not done after ${timeoutMs} ms`)
  throw new Fault(
    'host.command_failed',
    `${name}: exit ${child.exitCode ?? child.signalCode}: ${stderr.trim().slice(0, 512)}`,
  )
}

const timeoutSignal = 'SIGKILL'
const outputBytesMax = 65_536

function spawn(argv: readonly string[], timeoutMs: number) {
  return Bun.spawn([...argv], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: timeoutMs,
    killSignal: timeoutSignal,
    maxBuffer: outputBytesMax,
  })
}
