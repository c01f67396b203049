// strongroom alerts: a test of the receivers that are notified of problems. Effects: one request to the daemon.

import { AdminAlertsTest } from '../../contract/admin/alerts.ts'
import { EXIT } from '../../terminal/exit.ts'
import { dash, oneLine, type Paint, table } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'

/** Each receiver has 45 s. */
const timeoutMs = 60_000

export function addAlerts(program: Command): void {
  const alerts = program
    .command('alerts')
    .description('alerts, which notify a webhook or e-mail addresses of problems ([alerts] of the configuration)')
  alerts
    .command('test')
    .description('send a test message to each receiver. Exit code 1: one has not taken it')
    .examples('strongroom alerts test')
    .runs(async run => {
      const found = await run.show(
        { method: 'POST', path: '/alerts/test', response: AdminAlertsTest, timeoutMs },
        resultsText,
      )
      if (found.results.some(({ ok }) => !ok)) run.exitWith(EXIT.failed)
    })
}

function resultsText({ results }: AdminAlertsTest, paint: Paint): string {
  const rows = results.map(({ receiver, ok, detail, remedy }) => [
    receiver,
    ok ? paint.word('PASS') : paint.bad('FAIL'),
    oneLine(detail),
    oneLine(dash(remedy)),
  ])
  return table(paint, ['RECEIVER', 'RESULT', 'DETAIL', 'REMEDY'], rows)
}
