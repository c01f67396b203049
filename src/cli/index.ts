// The command line: arguments in, exit code out. Effects: those of the commands; prints through Io only.

import { CommanderError } from 'commander'
import { Fault, messageOf } from '../base/fault.ts'
import { harmless } from '../base/harmless.ts'
import { JOURNAL_PRIORITIES } from '../base/log.ts'
import { version } from '../base/version.ts'
import { isJournal, stderrFd } from '../linux/journal.ts'
import { addBackup, addRestore } from './backup/backup.ts'
import { addDowngrade } from './backup/downgrade.ts'
import { addBuild } from './build/build.ts'
import { type Cli, Command, globalOptions } from './cli.ts'
import { addConfig } from './config.ts'
import { addDoctor } from './doctor/doctor.ts'
import { EXIT, exitCodeOf, remedyOf } from './exit.ts'
import { addHelp } from './help/help.ts'
import { addInit } from './init/init.ts'
import type { Io } from './io.ts'
import { addIgvm } from './measure/igvm.ts'
import { addMeasure } from './measure/measure.ts'
import { addVerity } from './measure/verity.ts'
import { addBuilds } from './operator/builds.ts'
import { addClock } from './operator/clock.ts'
import { addEvents } from './operator/events.ts'
import { addGateway, addMetrics } from './operator/gateway.ts'
import { addInference } from './operator/inference.ts'
import { addInstance } from './operator/instance.ts'
import { addKey } from './operator/key.ts'
import { addModels } from './operator/model.ts'
import { addOperatorKey } from './operator/operator-key.ts'
import { addOrg } from './operator/org.ts'
import { addStatus } from './operator/status.ts'
import { addTeardown } from './operator/teardown.ts'
import { json, paintFor, wantsColour } from './render.ts'
import { addServe } from './serve.ts'
import { addSsh } from './ssh.ts'
import { addUpgrade } from './upgrade/upgrade.ts'
import { addVerify } from './verify/verify.ts'
import { addVersion } from './version.ts'

/** Runs one command line (without executable and script). Never rejects. */
export async function runCli(argv: readonly string[], io: Io): Promise<number> {
  let exitCode: number = EXIT.ok
  const asJson = asksForJson(argv)
  const written: string[] = []
  const exitWith = (code: number) => {
    exitCode = code
  }
  const program = createProgram({ io, exitWith }, { asJson, written })
  try {
    await program.parseAsync([...argv], { from: 'user' })
    return exitCode
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.ok
    await report(error, { io, asJson })
    return error instanceof CommanderError ? EXIT.usage : exitCodeOf(error)
  } finally {
    for (const text of written) await io.stdout(text)
  }
}

/** The whole tree of commands. `written` collects what commander prints on stdout: help. */
export function createProgram(cli: Cli, { asJson, written }: { asJson: boolean; written: string[] }): Command {
  const program = new Command(cli, 'strongroom')
    .description('One executable that turns an AMD SEV-SNP server into a confidential-compute appliance.')
    .version(version, '--version', 'print the version and nothing else')
    .exitOverride()
    .configureHelp({ showGlobalOptions: true, helpWidth: 100 })
    .configureOutput({
      writeOut: text => written.push(text),
      // Commander prints help here when a command is missing: an error, kept apart from the JSON that reports it.
      writeErr: text => void (asJson ? undefined : cli.io.stderr(text)),
      // `report` prints errors.
      outputError: () => {},
    })
    .showSuggestionAfterError(true)
    .examples('strongroom serve', 'strongroom org create acme', 'strongroom key create acme')
  for (const option of globalOptions()) program.addOption(option)
  const operator = [
    addInit,
    addServe,
    addStatus,
    addOrg,
    addKey,
    addGateway,
    addInstance,
    addBuilds,
    addInference,
    addModels,
    addMetrics,
    addClock,
    addEvents,
    addDoctor,
    addConfig,
    addOperatorKey,
    addBackup,
    addRestore,
    addUpgrade,
    addDowngrade,
    addTeardown,
  ]
  const anyone = [addVerify, addSsh, addBuild, addMeasure, addIgvm, addVerity, addHelp, addVersion]
  for (const add of [...operator, ...anyone]) add(program)
  return program
}

/** Known before the arguments are parsed, so that bad usage too is reported as JSON. */
function asksForJson(argv: readonly string[]): boolean {
  const end = argv.indexOf('--')
  return argv.slice(0, end === -1 ? argv.length : end).includes('--json')
}

async function report(error: unknown, { io, asJson }: { io: Io; asJson: boolean }): Promise<void> {
  const { code, message, param, remedy } = explain(error)
  if (asJson) {
    await io.stdout(json({ error: { code, message, ...(param === undefined ? {} : { param }) } }))
    return
  }
  if (message === '') return
  const paint = paintFor(wantsColour({ isTerminal: io.stderrIsTerminal, env: io.env }))
  const text = `${paint.bad('strongroom:')} ${harmless(message)}\n${paint.weak(`remedy: ${remedy}`)}\n`
  // Why the daemon did not start is an error in the journal, each line of it.
  await io.stderr(isJournal(stderrFd, io.env) ? text.replace(/^(?=.)/gm, JOURNAL_PRIORITIES.error) : text)
}

type Explained = { code: string; message: string; param: string | undefined; remedy: string }

function explain(error: unknown): Explained {
  if (error instanceof Fault) {
    return { code: error.code, message: error.message, param: error.param, remedy: remedyOf(error) }
  }
  if (error instanceof CommanderError) {
    // For a missing command, commander has printed the help on stderr already.
    const isMissing = error.code === 'commander.help'
    const message = isMissing ? 'a command is missing' : error.message.replace(/^error: /, '')
    return {
      code: 'invalid_request',
      message,
      param: undefined,
      remedy: 'see `strongroom --help`, or --help of the command',
    }
  }
  return { code: 'internal', message: messageOf(error), param: undefined, remedy: remedyOf(error) }
}
