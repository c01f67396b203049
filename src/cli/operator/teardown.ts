// strongroom teardown: ends what the appliance holds on this host, and keeps its state. Effects: see the driver.

import { ConfigFault, defaultConfig } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { EXIT } from '../../terminal/exit.ts'
import { fields } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'
import { type TeardownStep, tearDown } from './teardown.driver.ts'

export function addTeardown(program: Command): void {
  program
    .command('teardown')
    .description(
      'end every VM and worker, and remove taps, firewall tables and forwarding; the state directory stays. The daemon must be stopped. Removing the package runs this command',
    )
    .examples('systemctl stop strongroom && strongroom teardown')
    .runs(async run => {
      const network = await networkOf(run)
      const steps = await tearDown({ stateDir: run.stateDir, network })
      await run.result({ ok: steps.every(isDone), steps }, stepsText(steps, run))
      if (!steps.every(isDone)) run.exitWith(EXIT.failed)
    })
}

function isDone({ problem }: TeardownStep): boolean {
  return problem === null
}

/** A file with a mistake must not keep VMs on this host: then the names are those of the defaults. */
async function networkOf(run: Run): Promise<Config['network']> {
  try {
    return (await run.config()).config.network
  } catch (error) {
    if (!(error instanceof ConfigFault)) throw error
    await run.hint(`${error.message}\nThe default names of table and taps are taken.`)
    return defaultConfig().network
  }
}

function stepsText(steps: readonly TeardownStep[], { paint }: Run): string {
  const rows = steps.map(({ name, ended, problem }) => {
    const done = ended.length === 0 ? 'nothing was there' : ended.join('\n')
    return [name, problem === null ? done : paint.bad(`failed: ${problem}`)] as const
  })
  return fields(paint, rows)
}
