// strongroom version: the version of this executable, and of the Bun inside it.

import type { Command } from 'commander'
import { version } from '../base/version.ts'
import { type Cli, helpText, runOf } from './cli.ts'

export function addVersion(program: Command, cli: Cli): void {
  program
    .command('version')
    .description('print the version of this executable')
    .addHelpText('after', helpText('strongroom version', 'strongroom version --json'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      await run.result({ version, bun: Bun.version }, `strongroom ${version} (Bun ${Bun.version})\n`)
    })
}
