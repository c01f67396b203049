// Shared by all commands: global options, output of results, the daemon's client. Effects: prints through Io.

import { join } from 'node:path'
import { type Command, Option } from 'commander'
import { type LoadedConfig, loadConfig, resolveStateDir } from '../config/load.ts'
import { adminSocketName } from '../contract/admin/admin.ts'
import { EXIT_HELP } from './exit.ts'
import type { Io } from './io.ts'
import { type AdminClient, createClient } from './operator/client.ts'
import { json, type Paint, paintFor, wantsColour } from './render.ts'

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
  readonly config: () => LoadedConfig
  /** The one result of the command: a document with --json, else text for people. */
  readonly result: (document: unknown, text: string) => Promise<void>
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

/** The Run of `command`, from the options that it was called with. */
export function runOf(cli: Cli, command: Command): Run {
  const options = command.optsWithGlobals<Globals>()
  const { io } = cli
  const asJson = options.json === true
  const stateDir = resolveStateDir({ path: options.stateDir, env: io.env })
  return {
    io,
    json: asJson,
    paint: paintFor(wantsColour({ isTerminal: io.stdoutIsTerminal, env: io.env })),
    stateDir,
    client: () => createClient(join(stateDir, adminSocketName)),
    config: () => loadConfig({ path: options.config, env: io.env }),
    result: (document, text) => io.stdout(asJson ? json(document) : text),
    hint: async text => {
      if (!asJson) await io.stderr(`${text}\n`)
    },
    exitWith: cli.exitWith,
  }
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
