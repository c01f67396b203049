// Whether the command line takes a line as a shell would hand it over. Effects: a shell that splits the line.

import type { Command } from 'commander'
import { silentProgram } from '../../../scripts/package/command-tree.ts'

/** Null, or what is wrong with it. Nothing is run. */
export function commandFault(line: string): string | null {
  const [first, ...argv] = wordsOf(line)
  if (first !== 'strongroom') return `${line}: not a command of ours`
  const program = silentProgram()
  withoutWork(program)
  try {
    program.parse(argv, { from: 'user' })
    return null
  } catch (error) {
    return `${line}: ${error instanceof Error ? error.message : String(error)}`
  }
}

function withoutWork(command: Command): void {
  command.exitOverride()
  command.configureOutput({ writeOut: () => {}, writeErr: () => {} })
  // One with commands below it may do something by itself, too; a mere group must go on to refuse other words.
  if (Reflect.get(command, '_actionHandler') !== null) command.action(() => {})
  for (const child of command.commands) withoutWork(child)
}

function wordsOf(line: string): string[] {
  const { stdout } = Bun.spawnSync(['sh', '-c', `set -f; printf '%s\\0' ${line}`])
  return stdout.toString().split('\0').slice(0, -1)
}
