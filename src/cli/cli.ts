// Shared by all commands: global options, output of results, the daemon's client. Effects: prints through Io.

import { join } from 'node:path'
import type { Static, TSchema } from '@sinclair/typebox'
import { Command as BareCommand, Option } from 'commander'
import type { LoadedConfig } from '../config/load.ts'
import { adminSocketName, monitorSocketName } from '../contract/admin/sockets.ts'
import { EXIT_HELP } from './exit.ts'
import type { Io } from './io.ts'
import type { AdminClient, AdminRequest, createClient } from './operator/client.ts'
import { json, type Paint, paintFor, wantsColour } from './render.ts'
import { resolveStateDir } from './state-dir.ts'

type Globals = { json?: boolean; config?: string; stateDir?: string }

/** Context of one run of one command. */
export type Run = {
  readonly io: Io
  readonly json: boolean
  /** For stdout. */
  readonly paint: Paint
  readonly stateDir: string
  readonly client: () => AdminClient
  /** Faults: config.invalid. */
  readonly config: () => Promise<LoadedConfig>
  /** The path of the configuration file, which may be missing. */
  readonly configFile: () => Promise<string>
  /** The one result of the command: a document with --json, else text for people. Functions are called if needed. */
  readonly result: (document: unknown, text: string | (() => string)) => Promise<void>
  /** Sends a request to the daemon and prints its response, which it returns. */
  readonly show: <S extends TSchema>(
    request: AdminRequest<S>,
    text: (found: Static<S>, paint: Paint) => string,
  ) => Promise<Static<S>>
  /** A remark for people, on stderr; not printed with --json. */
  readonly hint: (text: string) => Promise<void>
  /** Exit code after a printed result that is no success: one of EXIT, or that of a program that was run. */
  readonly exitWith: (code: number) => void
}

export type Cli = { readonly io: Io; readonly exitWith: (code: number) => void }

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

/** A command whose work gets a Run, with examples and exit codes under its help. */
export class Command extends BareCommand {
  readonly #cli: Cli

  constructor(cli: Cli, name?: string) {
    super(name)
    this.#cli = cli
  }

  override createCommand(name?: string): Command {
    return new Command(this.#cli, name)
  }

  examples(...examples: string[]): this {
    return this.addHelpText('after', helpText(...examples))
  }

  /** `work` gets the arguments after its Run, then the options. */
  runs<Given extends unknown[]>(work: (run: Run, ...given: Given) => void | Promise<void>): this {
    return this.action((...given) => work(this.#run(), ...(given as Given)))
  }

  #run(): Run {
    const { json: asJson = false, config, ...globals } = this.optsWithGlobals<Globals>()
    const { io, exitWith } = this.#cli
    const stateDir = resolveStateDir({ path: globals.stateDir, env: io.env })
    const paint = paintFor(wantsColour({ isTerminal: io.stdoutIsTerminal, env: io.env }))
    const client = () => clientOf(join(stateDir, adminSocketName), lookSocket(join(stateDir, monitorSocketName)))
    const made = <T>(part: T | (() => T)) => (typeof part === 'function' ? (part as () => T)() : part)
    const result: Run['result'] = (document, text) => io.stdout(asJson ? json(made(document)) : made(text))
    return {
      io,
      json: asJson,
      paint,
      stateDir,
      client,
      config: async () => (await import('../config/load.ts')).loadConfig({ path: config, env: io.env }),
      configFile: async () => (await import('../config/load.ts')).configFile({ path: config, env: io.env }),
      result,
      show: async (request, text) => {
        const found = await client().request(request)
        await result(found, text(found, paint))
        return found
      },
      hint: async text => {
        if (!asJson) await io.stderr(`${text}\n`)
      },
      exitWith,
    }
  }
}

/** Loaded with the first request: commands that need no daemon start without it. */
function clientOf(...sockets: Parameters<typeof createClient>): AdminClient {
  const load = async () => (await import('./operator/client.ts')).createClient(...sockets)
  return {
    request: async request => (await load()).request(request),
    async *stream(request) {
      yield* (await load()).stream(request)
    },
  }
}

/** Root asks the one socket that is always there. */
function lookSocket(path: string): string | null {
  return process.geteuid?.() === 0 ? null : path
}

/** Examples and exit codes under a command's help. */
export function helpText(...examples: string[]): string {
  return `\nExamples:\n${examples.map(example => `  ${example}\n`).join('')}\n${EXIT_HELP}`
}

/** A path of the admin interface; interpolated parts are encoded. */
export function path(texts: TemplateStringsArray, ...parts: string[]): string {
  return texts
    .map((text, index) => text + (index < parts.length ? encodeURIComponent(parts[index] ?? '') : ''))
    .join('')
}
