// strongroom clock: whether records are deleted by the host's clock, and the operator's word that it is right. Effects:
// requests to the daemon.

import type { Command } from 'commander'
import { AdminClock } from '../../contract/admin/clock.ts'
import { type Cli, helpText, runOf } from '../cli.ts'
import { fields, oneLine, type Paint } from '../render.ts'

export function addClock(program: Command, cli: Cli): void {
  const clock = program
    .command('clock')
    .description("show whether this host's clock is believed: nothing is deleted by age while it is not")
    .addHelpText('after', helpText('strongroom clock', 'strongroom clock confirm'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const found = await run.client().request({ path: '/clock', response: AdminClock })
      await run.result(found, clockFields(found, run.paint))
    })
  clock
    .command('confirm')
    .description(
      'say that the clock of this host is right, which the daemon does not believe; what is due by it is then deleted. Compare it with another clock first',
    )
    .addHelpText('after', helpText('strongroom clock confirm'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const found = await run.client().request({ method: 'POST', path: '/clock/confirm', response: AdminClock })
      await run.result(found, clockFields(found, run.paint))
    })
}

function clockFields({ state, now, problem, remedy }: AdminClock, paint: Paint): string {
  return fields(
    [
      ['clock', state === 'held' ? paint.bad('held') : state],
      ['now', now],
      ...(problem === null || remedy === null
        ? []
        : ([
            ['problem', oneLine(problem)],
            ['remedy', oneLine(remedy)],
          ] satisfies [string, string][])),
    ],
    paint,
  )
}
