// Finds the disk of a configured model file, or makes it in a child process, so that the event loop stays free.
// Effects: starts `strongroom model add`; reads files.

import { Type } from '@sinclair/typebox'
import { onAbort } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { plainEnv } from '../../linux/command.ts'
import { ownProgram } from '../../linux/own-program.ts'
import { findModelOf, loadModel, type StoredModel } from './models.ts'

const Added = Type.Object({ name: Type.String() })
const Refused = Type.Object({ error: Type.Object({ message: Type.String() }) })
const outputBytesMax = 65_536

/**
 * Returns the disk. One made here has no golden answer. A disk of the same bytes made by `model add` is used under any
 * name, with its golden answer. Reading a model of many GB takes minutes. Rejects if the signal is aborted. Throws
 * Fault config.file if the disk cannot be made.
 */
export async function ensureModel(stateDir: string, file: string, signal: AbortSignal): Promise<StoredModel> {
  const there = findModelOf(stateDir, file)
  if (there !== null) return there
  const options = ['--name-by-digest', '--golden', 'none', '--json', '--state-dir', stateDir]
  const printed = await runOwn(['model', 'add', ...options, '--', file], signal)
  return loadModel(stateDir, checkedJson(Added, printed, { what: 'strongroom model add', code: 'internal' }).name)
}

/** Runs this executable and returns its stdout. The child ends with this process, however this process ends. */
async function runOwn(argv: readonly string[], signal: AbortSignal): Promise<Uint8Array> {
  signal.throwIfAborted()
  const child = Bun.spawn(['setpriv', '--pdeathsig=KILL', '--', ...ownProgram(), ...argv], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'ignore',
    env: plainEnv,
    cwd: '/',
  })
  const stop = onAbort(signal, () => child.kill('SIGKILL'))
  try {
    const [stdout, exitCode] = await Promise.all([readAtMost(child.stdout), child.exited])
    signal.throwIfAborted()
    if (exitCode === 0) return stdout
    const problem = problemIn(stdout) ?? child.signalCode ?? `exit code ${exitCode}`
    throw new Fault('config.file', `make the model's disk: ${problem}`, { param: 'inference.worker.model_file' })
  } finally {
    stop()
    child.kill('SIGKILL')
  }
}

async function readAtMost(stream: ReadableStream<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of stream) {
    sizeBytes += chunk.length
    if (sizeBytes > outputBytesMax) throw new Fault('internal', `strongroom model add: over ${outputBytesMax} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** Returns the message in the document that every failing command prints with --json. */
function problemIn(stdout: Uint8Array): string | null {
  try {
    return checkedJson(Refused, stdout, { what: 'strongroom model add', code: 'internal' }).error.message
  } catch (error) {
    return stdout.length === 0 ? null : messageOf(error)
  }
}
