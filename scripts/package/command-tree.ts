// The commands of the executable as data, for completions and the man page, from the commander tree. Pure.

import type { Command, Option } from 'commander'
import { loadCommands } from '../../src/cli/commands.ts'
import { createProgram } from '../../src/cli/index.ts'
import type { Run } from '../../src/cli/operator-run.ts'
import type { AddCommand } from '../../src/terminal/loading.ts'

export type CommandOption = {
  /** With its dashes: `--json`. */
  readonly flag: string
  readonly description: string
  /** The word that follows it. */
  readonly value: OptionValue
}

export type OptionValue =
  | { readonly kind: 'none' }
  | { readonly kind: 'choices'; readonly choices: readonly string[] }
  | { readonly kind: 'file' }
  | { readonly kind: 'text' }

export type CommandNode = {
  /** From the program's name on: ['strongroom', 'org', 'create']. */
  readonly path: readonly string[]
  readonly description: string
  /** Arguments as usage shows them. */
  readonly usage: string
  readonly options: readonly CommandOption[]
  readonly commands: readonly string[]
  /** Whether an argument is a file or directory. */
  readonly takesFile: boolean
}

const everyCommand = await loadCommands()

/** Every command, each before its subcommands. The program itself comes first and has the options of all. */
export function commandTree(): CommandNode[] {
  return nodesOf(silentProgram(), [])
}

/** The program with these commands, to look at: it writes nothing and never exits. */
export function silentProgram(commands: readonly AddCommand<Run>[] = everyCommand): Command {
  const io = {
    stdout: async () => {},
    stderr: async () => {},
    stdoutIsTerminal: false,
    stderrIsTerminal: false,
    env: {},
    onSignal: () => () => {},
  }
  return createProgram({ io, exitWith: () => {} }, { commands, asJson: false, written: [] })
}

function nodesOf(command: Command, above: readonly string[]): CommandNode[] {
  const path = [...above, command.name()]
  const words = command.registeredArguments.map(argument => {
    const name = argument.variadic ? `${argument.name()}...` : argument.name()
    return argument.required ? `<${name}>` : `[${name}]`
  })
  const node = {
    path,
    description: command.description(),
    usage: words.join(' '),
    options: command.options.map(optionOf),
    commands: command.commands.map(child => child.name()),
    takesFile: command.registeredArguments.some(argument => isFileName(argument.name())),
  }
  return [node, ...command.commands.flatMap(child => nodesOf(child, path))]
}

function optionOf(option: Option): CommandOption {
  return { flag: option.long ?? option.flags, description: option.description, value: valueKindOf(option) }
}

function valueKindOf({ argChoices, flags, required, optional }: Option): OptionValue {
  if (!required && !optional) return { kind: 'none' }
  if (argChoices !== undefined) return { kind: 'choices', choices: argChoices }
  const name = /[<[]([^>\]]+)[>\]]/.exec(flags)?.[1] ?? ''
  return { kind: isFileName(name) ? 'file' : 'text' }
}

function isFileName(name: string): boolean {
  return ['file', 'path', 'dir', 'directory', 'source', 'image', 'project'].includes(name)
}
