// The command line: arguments in, exit code out. Effects: those of the commands; prints through Io only.

import { CommanderError } from 'commander'
import { Fault, messageOf } from '../base/fault.ts'
import { harmless } from '../base/harmless.ts'
import { JOURNAL_PRIORITIES } from '../base/log.ts'
import { version } from '../base/version.ts'
import { isJournal, stderrFd } from '../linux/journal.ts'
import { type Cli, Command, globalOptions } from '../terminal/command.ts'
import { EXIT, exitCodeOf, remedyOf } from '../terminal/exit.ts'
import type { Io } from '../terminal/io.ts'
import type { AddCommand } from '../terminal/loading.ts'
import { json, paintFor, wantsColour } from '../terminal/render.ts'
import { loadCommands } from './commands.ts'
import { type Command as OperatorCommand, operatorRun, type Run } from './operator-run.ts'

/** Runs one command line (without executable and script). Never rejects. */
export async function runCli(argv: readonly string[], io: Io): Promise<number> {
  let exitCode: number = EXIT.ok
  const asJson = asksForJson(argv)
  const written: string[] = []
  const exitWith = (code: number) => {
    exitCode = code
  }
  try {
    const commands = await loadCommands(argv)
    const program = createProgram({ io, exitWith, argv }, { commands, asJson, written })
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

type ProgramOptions = { commands: readonly AddCommand<Run>[]; asJson: boolean; written: string[] }

/** The tree of these commands. `written` collects what commander prints on stdout: help. */
export function createProgram(cli: Cli, { commands, asJson, written }: ProgramOptions): OperatorCommand {
  const program = new Command(cli, operatorRun, 'strongroom')
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
  for (const add of commands) add(program)
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
  const text = `${paint.bad('strongroom:')} ${harmless(message)}\n${paint.weak(`remedy: ${harmless(remedy)}`)}\n`
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
