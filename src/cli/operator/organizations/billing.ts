// strongroom billing: instance-hours of organizations. Effects: requests to the daemon.

import { Option } from 'commander'
import {
  AdminInstanceHours,
  HOUR_GROUPS,
  instanceHoursCsv,
} from '../../../contract/admin/organizations/instance-hours.ts'
import { dash, json, type Paint, table } from '../../../terminal/render.ts'
import type { Command } from '../../operator-run.ts'

type BillingOptions = {
  readonly from: string
  readonly to: string
  readonly by: string
  readonly format?: 'json' | 'csv'
}

const timeoutMs = 600_000

export function addBilling(program: Command): void {
  program
    .command('billing')
    .description('print the hours for which instances were ready, by organization, instance and day')
    .argument('[org]', 'slug of one organization; without it all, deleted ones included')
    .requiredOption('--from <day>', 'first day, in UTC, like 2026-11-01')
    .requiredOption('--to <day>', 'last day, in UTC; it is included')
    .option(
      '--by <groups>',
      'what to group by, separated by commas: organization, instance, day',
      'organization,instance',
    )
    .addOption(
      new Option('--format <format>', 'csv for spreadsheets; json is the same as --json').choices(['json', 'csv']),
    )
    .examples(
      'strongroom billing --from 2026-11-01 --to 2026-11-30 --format csv > hours.csv',
      'strongroom billing acme --from 2026-11-01 --to 2026-11-30 --by day',
    )
    .runs(async (run, organization: string | undefined, { from, to, by, format }: BillingOptions) => {
      const query = { from, to, by, organization }
      const hours = await run
        .client()
        .request({ path: '/billing/instance-hours', query, response: AdminInstanceHours, timeoutMs })
      if (format === 'csv') await run.io.stdout(instanceHoursCsv(hours))
      else if (format === 'json') await run.io.stdout(json(hours))
      else await run.result(hours, hoursText(hours, run.paint))
    })
}

function hoursText({ by, rows, total }: AdminInstanceHours, paint: Paint): string {
  const groups = HOUR_GROUPS.filter(group => by.includes(group))
  return table(
    paint,
    [...groups.map(group => group.toUpperCase()), 'HOURS'],
    [
      ...rows.map(row => [...groups.map(group => dash(row[group])), row.instance_hours]),
      [...groups.map((_, at) => (at === 0 ? 'total' : '')), total.instance_hours],
    ],
  )
}
