// Shared by all commands: global options, output of results, examples. Effects: prints through Io.

import { Command as BareCommand, Option } from 'commander'
import { EXIT_HELP } from './exit.ts'
import type { Io } from './io.ts'
import { json, type Paint, paintFor, wantsColour } from './render.ts'

/** Values of the global options. */
export type Globals = { readonly json?: boolean; readonly config?: string; readonly stateDir?: string }

/** Context of one run of one command. */
export type Run = {
  readonly io: Io
  /** The words of the command line after the executable, for commands that print it with changes. */
  readonly argv: readonly string[]
  readonly json: boolean
  /** For stdout. */
  readonly paint: Paint
  /**
   * Prints the result of the command, once: a document with --json, otherwise text for people. Functions are called if
   * needed.
   */
  readonly result: (document: unknown, text: string | (() => string)) => Promise<void>
  /** A remark for people, on stderr; not printed with --json. */
  readonly hint: (text: string) => Promise<void>
  /** Exit code after a printed result that is no success: one of EXIT, or that of a program that was run. */
  readonly exitWith: (code: number) => void
}

export type Cli = {
  readonly io: Io
  readonly exitWith: (code: number) => void
  /** See `Run`. Default: none. */
  readonly argv?: readonly string[]
}

/** Options of the program; commander accepts them before and after the command. */
export function globalOptions(): Option[] {
  return [
    new Option('--json', 'print one JSON document on stdout, errors included'),
    new Option(
      '--config <file>',
      'configuration file (env STRONGROOM_CONFIG; default /etc/strongroom/strongroom.toml)',
    ),
    new Option('--state-dir <dir>', 'state directory (env STRONGROOM_STATE_DIR; default /var/lib/strongroom)'),
  ]
}

/** Makes the run that the commands of a program get from the run that every command gets. */
export type ExtendRun<R extends Run> = (run: Run, globals: Globals) => R

/** A command whose work gets a run, with examples and exit codes under its help. */
export class Command<R extends Run = Run> extends BareCommand {
  readonly #cli: Cli
  readonly #extend: ExtendRun<R>

  constructor(cli: Cli, extend: ExtendRun<R>, name?: string) {
    super(name)
    this.#cli = cli
    this.#extend = extend
  }

  override createCommand(name?: string): Command<R> {
    return new Command(this.#cli, this.#extend, name)
  }

  examples(...examples: string[]): this {
    return this.addHelpText('after', helpText(...examples))
  }

  /** `work` gets the arguments after its run, then the options. */
  runs<Given extends unknown[]>(work: (run: R, ...given: Given) => void | Promise<void>): this {
    return this.action((...given) => work(this.#run(), ...(given as Given)))
  }

  #run(): R {
    const globals = this.optsWithGlobals<Globals>()
    const { json: asJson = false } = globals
    const { io, exitWith, argv = [] } = this.#cli
    const made = <T>(part: T | (() => T)) => (typeof part === 'function' ? (part as () => T)() : part)
    const run: Run = {
      io,
      argv,
      json: asJson,
      paint: paintFor(wantsColour({ isTerminal: io.stdoutIsTerminal, env: io.env })),
      result: (document, text) => io.stdout(asJson ? json(made(document)) : made(text)),
      hint: async text => {
        if (!asJson) await io.stderr(`${text}\n`)
      },
      exitWith,
    }
    return this.#extend(run, globals)
  }
}

/** Examples and exit codes under a command's help. */
export function helpText(...examples: string[]): string {
  return `\nExamples:\n${examples.map(example => `  ${example}\n`).join('')}\n${EXIT_HELP}`
}
