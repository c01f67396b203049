// strongroom config: checks, shows and documents the configuration file. Needs no daemon. Effects: reads the file.

import type { Command } from 'commander'
import { ConfigFault } from '../config/load.ts'
import { configReference, configToml } from '../config/reference.ts'
import { Config } from '../config/schema.ts'
import { type Cli, helpText, runOf } from './cli.ts'
import { EXIT } from './exit.ts'

export function addConfig(program: Command, cli: Cli): void {
  const config = program
    .command('config')
    .description('the configuration file: check, show, reference')
    .addHelpText('after', helpText('strongroom config check --config new.toml'))

  config
    .command('check')
    .description('check the file and print every problem with its line')
    .addHelpText('after', helpText('strongroom config check', 'strongroom config check --config new.toml --json'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      try {
        const { file } = run.config()
        await run.result(
          { ok: true, file, problems: [] },
          file === null ? 'no file, all defaults: ok\n' : `${file}: ok\n`,
        )
      } catch (error) {
        // People get the usual error message; a program gets every problem as data.
        if (!run.json || !(error instanceof ConfigFault)) throw error
        await run.result({ ok: false, file: error.problems[0]?.file ?? null, problems: error.problems }, '')
        run.exitWith(EXIT.usage)
      }
    })

  config
    .command('show')
    .description('print the configuration in effect, with defaults filled in')
    .addHelpText('after', helpText('strongroom config show', 'strongroom config show --json'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const loaded = run.config()
      const source = loaded.file === null ? 'no file, all defaults' : loaded.file
      await run.result(loaded.config, `# ${source}\n${configToml(loaded.config)}`)
    })

  config
    .command('reference')
    .description('print a file with every field, its meaning and its default; with --json the JSON schema')
    .addHelpText('after', helpText('strongroom config reference > /etc/strongroom/strongroom.toml'))
    .action(async (_options: unknown, command: Command) => {
      await runOf(cli, command).result(Config, configReference())
    })
}
