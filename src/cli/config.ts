// strongroom config: checks, shows and documents the configuration. Needs no daemon. Effects: reads it and its files.

import type { Command } from 'commander'
import { ConfigFault, configFileDefault, locate } from '../config/load.ts'
import { problemText } from '../config/parse.ts'
import { configReference, configToml } from '../config/reference.ts'
import { Config } from '../config/schema.ts'
import { type Cli, helpText, type Run, runOf } from './cli.ts'
import { checkFiles, type FileFinding } from './config-files.driver.ts'
import { EXIT } from './exit.ts'

export function addConfig(program: Command, cli: Cli): void {
  const config = program
    .command('config')
    .description('the configuration file: check, show, reference')
    .addHelpText('after', helpText('strongroom config check --config new.toml'))

  config
    .command('check')
    .description('check the file and the files that it names, and print every problem with its line')
    .option('--strict', 'let warnings count as problems')
    .addHelpText('after', helpText('strongroom config check', 'strongroom config check --config new.toml --json'))
    .action(async (options: { strict?: boolean }, command: Command) => {
      await check(runOf(cli, command), options.strict === true)
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

async function check(run: Run, isStrict: boolean): Promise<void> {
  try {
    const { config, file } = run.config()
    const found = checkFiles(config, Date.now())
    const place = (kind: FileFinding['kind']) =>
      locate(
        file ?? configFileDefault,
        found.filter(finding => finding.kind === kind),
      )
    const warnings = place('warning')
    const problems = [...place('problem'), ...(isStrict ? warnings : [])]
    if (problems.length > 0) throw new ConfigFault(problems)
    const source = file ?? 'no file, all defaults'
    await run.result({ ok: true, file, problems, warnings }, `${source}: ok\n`)
    for (const warning of warnings) await run.hint(`warning: ${problemText(warning)}`)
  } catch (error) {
    // People get the usual error message; a program gets every problem as data.
    if (!run.json || !(error instanceof ConfigFault)) throw error
    const { problems } = error
    await run.result({ ok: false, file: problems[0]?.file ?? null, problems, warnings: [] }, '')
    run.exitWith(EXIT.usage)
  }
}
