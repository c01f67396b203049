// The disk of a model's file for a daemon that was given the file: the one that is there, else one that is made now, by a process of its own,
// so that the event loop waits for none of it. Effects: starts `strongroom model add`; reads files.

import { Type } from '@sinclair/typebox'
import { onAbort } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { checkedJson } from '../../contract/shape.ts'
import { plainEnv } from '../../linux/command.ts'
import { ownProgram } from '../../linux/own-program.ts'
import { findModelOf, loadModel, type StoredModel } from './models.ts'

const Added = Type.Object({ name: Type.String() })
const Refused = Type.Object({ error: Type.Object({ message: Type.String() }) })
const outputBytesMax = 65_536

/**
 * A disk made so has no golden answer; one of the same bytes that `model add` has made is taken, whatever its name and with its golden answer.
 * Reading a whole model takes its time: minutes for many GB. Rejects when the signal is aborted. Fault config.file: it cannot be made.
 */
export async function ensureModel(stateDir: string, file: string, signal: AbortSignal): Promise<StoredModel> {
  const there = findModelOf(stateDir, file)
  if (there !== null) return there
  const options = ['--name-by-digest', '--golden', 'none', '--json', '--state-dir', stateDir]
  const printed = await runOwn(['model', 'add', ...options, '--', file], signal)
  return loadModel(stateDir, checkedJson(Added, printed, { what: 'strongroom model add', code: 'internal' }).name)
}

/** What this same executable prints on stdout. It ends when we do, however we end. */
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

/** Of the document that every command prints with --json when it fails. */
function problemIn(stdout: Uint8Array): string | null {
  try {
    return checkedJson(Refused, stdout, { what: 'strongroom model add', code: 'internal' }).error.message
  } catch (error) {
    return stdout.length === 0 ? null : messageOf(error)
  }
}
