// Entry point of `strongroom`: runs the command line, and ends the process on an uncaught error. Effects: the process.

import { writeSync } from 'node:fs'
import { systemErrorCode } from './base/fault.ts'
import { JOURNAL_PRIORITIES, redact } from './base/log.ts'
import { resultOr } from './base/result-or.ts'
import { relayCommand, schemaChildCommand, starterCommand, starterVariable } from './base/work/child-commands.ts'
import { compileAsUsual } from './base/work/compiler.ts'
import { isJournal, stderrFd } from './linux/journal.ts'
import type { Io } from './terminal/io.ts'
import { askPerson } from './terminal/person.ts'
import { isTerminal, standardStream } from './terminal/standard-stream.ts'

const failedExitCode = 1

/** Prints one line in the form of the log, whatever was thrown, and exits: the state of the process is unknown. */
function die(kind: string, error: unknown): never {
  const detail =
    error instanceof Error ? { name: error.name, message: error.message, stack: error.stack } : String(error)
  const line = JSON.stringify({ time: new Date().toISOString(), level: 'error', message: kind, error: detail })
  const priority = isJournal(stderrFd, process.env) ? JOURNAL_PRIORITIES.error : ''
  // A confined child cannot load a stream any more.
  resultOr(() => writeSync(stderrFd, `${priority}${redact(line)}\n`), 0)
  process.exit(failedExitCode)
}

/** Ends without a message when the reader of a pipe closes it early (`strongroom … | head`). */
function onStreamError(error: unknown): void {
  if (systemErrorCode(error) === 'EPIPE') process.exit(0)
  die('output failed', error)
}

process.on('unhandledRejection', error => die('unhandled rejection', error))
process.on('uncaughtException', error => die('uncaught exception', error))
// Before the command line is loaded, which a child has no use for: it is to be small and started soon.
if (process.argv[2] === schemaChildCommand) {
  compileAsUsual()
  const { runSchemaChild } = await import('./inference/schema-check/program.ts')
  runSchemaChild()
  process.exit(0)
}
if (process.argv[2] === relayCommand) {
  compileAsUsual()
  const { runRelay } = await import('./inference/relay/program.ts')
  const socket = process.env[starterVariable]
  const starter = socket === undefined ? null : (await import('./appliance/starter/client.ts')).createStarter(socket)
  await runRelay(starter?.startSchemaProcess)
}
if (process.argv[2] === starterCommand) {
  const { runStarter } = await import('./appliance/starter/program.ts')
  await runStarter()
  process.exit(0)
}

const stderrIsTerminal = await isTerminal(2)
const io: Io = {
  stdout: standardStream('stdout', onStreamError),
  stderr: standardStream('stderr', onStreamError),
  stdoutIsTerminal: await isTerminal(1),
  stderrIsTerminal,
  ...(stderrIsTerminal && (await isTerminal(0)) ? { ask: askPerson } : {}),
  env: process.env,
  onSignal: (signal, listener) => {
    process.on(signal, listener)
    return () => process.off(signal, listener)
  },
}

const { runCli } = await import('./cli/index.ts')
process.exit(await runCli(process.argv.slice(2), io))
