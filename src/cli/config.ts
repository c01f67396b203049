// strongroom config: checks, shows and documents the configuration. Needs no daemon. Effects: reads it and its files.

import { ConfigFault, configFileDefault, locate } from '../config/load.ts'
import { problemText } from '../config/parse.ts'
import { configReference, configToml } from '../config/reference.ts'
import { Config } from '../config/schema.ts'
import { EXIT } from '../terminal/exit.ts'
import { checkFiles, type FileFinding } from './config-files.driver.ts'
import type { Command, Run } from './operator-run.ts'

export function addConfig(program: Command): void {
  const config = program
    .command('config')
    .description('the configuration file: check, show, reference')
    .examples('strongroom config check --config new.toml')

  config
    .command('check')
    .description('check the file and the files that it names, and print every problem with its line')
    .option('--strict', 'treat warnings as problems')
    .examples('strongroom config check', 'strongroom config check --config new.toml --json')
    .runs(async (run, options: { strict?: boolean }) => {
      await check(run, options.strict === true)
    })

  config
    .command('show')
    .description('print the configuration in effect, with defaults filled in')
    .examples('strongroom config show', 'strongroom config show --json')
    .runs(async run => {
      const loaded = await run.config()
      const source = loaded.file === null ? 'no file, all defaults' : loaded.file
      await run.result(loaded.config, `# ${source}\n${configToml(loaded.config)}`)
    })

  config
    .command('reference')
    .description('print a file with every field, its meaning and its default; with --json the JSON schema')
    .examples('strongroom config reference > /etc/strongroom/strongroom.toml')
    .runs(async run => {
      await run.result(Config, configReference())
    })
}

async function check(run: Run, isStrict: boolean): Promise<void> {
  try {
    const { config, file, warnings: removed } = await run.config()
    const found = checkFiles(config, Date.now())
    const place = (kind: FileFinding['kind']) =>
      locate(
        file ?? configFileDefault,
        found.filter(finding => finding.kind === kind),
      )
    const warnings = [...removed, ...place('warning')]
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
