// strongroom clock: whether records are deleted by the host's clock, and the operator's word that it is right. Effects:
// requests to the daemon.

import { AdminClock } from '../../contract/admin/clock.ts'
import { fields, oneLine, type Paint } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'

export function addClock(program: Command): void {
  const clock = program
    .command('clock')
    .description("show whether this host's clock is trusted; otherwise age-based deletion is paused")
    .examples('strongroom clock', 'strongroom clock confirm')
    .runs(async run => {
      await run.show({ path: '/clock', response: AdminClock }, clockFields)
    })
  clock
    .command('confirm')
    .description(
      'confirm that the clock of this host is right; overdue records are then deleted. Compare it with another clock first',
    )
    .examples('strongroom clock confirm')
    .runs(async run => {
      await run.show({ method: 'POST', path: '/clock/confirm', response: AdminClock }, clockFields)
    })
}

function clockFields({ state, now, problem, remedy }: AdminClock, paint: Paint): string {
  return fields(paint, [
    ['clock', state === 'held' ? paint.bad('held') : state],
    ['now', now],
    ...(problem === null || remedy === null
      ? []
      : ([
          ['problem', oneLine(problem)],
          ['remedy', oneLine(remedy)],
        ] satisfies [string, string][])),
  ])
}
