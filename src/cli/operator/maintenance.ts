// strongroom maintenance: accept nothing new on this host, and tell tenants. Effects: requests to the daemon.

import { AdminMaintenance } from '../../contract/admin/maintenance.ts'
import { fields, oneLine, type Paint } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'

export function addMaintenance(program: Command): void {
  const maintenance = program
    .command('maintenance')
    .description('show whether this host is in maintenance, in which it accepts no new instances and builds')
    .examples('strongroom maintenance', 'strongroom maintenance begin --message "a disk is replaced"')
    .runs(async run => {
      await run.show({ path: '/maintenance', response: AdminMaintenance }, maintenanceText)
    })
  maintenance
    .command('begin')
    .description(
      'accept no new instances and builds until `maintenance end`; existing ones keep running, also over restarts, and the gateway keeps serving',
    )
    .option('--until <time>', 'when you expect to be done, in UTC, like 2026-11-30T23:00Z; nothing ends by itself')
    .option('--message <text>', 'words for tenants: 200 characters of ASCII', '')
    .examples('strongroom maintenance begin --until 2026-12-01T06:00Z --message "a disk is replaced"')
    .runs(async (run, { until = null, message }: { until?: string | null; message: string }) => {
      const body = { until, message }
      await run.show({ method: 'POST', path: '/maintenance/begin', body, response: AdminMaintenance }, maintenanceText)
      await run.hint(
        '`strongroom status` has the instances and builds that still run; end it with: strongroom maintenance end',
      )
    })
  maintenance
    .command('end')
    .description('accept new instances and builds again; no effect without maintenance')
    .examples('strongroom maintenance end')
    .runs(async run => {
      await run.show({ method: 'POST', path: '/maintenance/end', response: AdminMaintenance }, maintenanceText)
    })
}

function maintenanceText({ maintenance }: AdminMaintenance, paint: Paint): string {
  if (maintenance === null) return fields(paint, [['maintenance', 'no']])
  const { since, until, message } = maintenance
  return fields(paint, [
    ['maintenance', `since ${since}`],
    ['until', until ?? 'not given'],
    ['message', message === '' ? '-' : oneLine(message)],
  ])
}
