// strongroom gateway usage: what an organization used of the inference gateway. Effects: requests to the daemon.

import { Option } from 'commander'
import { AdminUsage } from '../../contract/admin/usage.ts'
import { usageCsv } from '../../contract/http/usage-rows.ts'
import { dash, json, oneLine, type Paint, table } from '../../terminal/render.ts'
import { type Command, path } from '../operator-run.ts'

type UsageOptions = {
  readonly from: string
  readonly to: string
  readonly by: string
  readonly format?: 'json' | 'csv'
}

/** A year of a busy organization is read in pieces. */
const timeoutMs = 600_000

export function addUsage(gateway: Command): void {
  gateway
    .command('usage')
    .description(
      'print the usage of an organization by key, model, day and label; aborted requests count up to their end',
    )
    .argument('<org>', 'slug of the organization')
    .requiredOption('--from <day>', 'first day, in UTC, like 2026-11-01')
    .requiredOption('--to <day>', 'last day, in UTC; it is included')
    .option(
      '--by <groups>',
      'what to group by, separated by commas: key, model, day, user, tags (inference.usage_labels)',
      'key,model,day',
    )
    .addOption(
      new Option('--format <format>', 'csv for spreadsheets; json is the same as --json').choices(['json', 'csv']),
    )
    .examples(
      'strongroom gateway usage acme --from 2026-11-01 --to 2026-11-30 --by model',
      'strongroom gateway usage acme --from 2026-11-01 --to 2026-11-30 --format csv > usage.csv',
    )
    .runs(async (run, slug: string, { from, to, by, format }: UsageOptions) => {
      const query = { from, to, by }
      const usage = await run
        .client()
        .request({ path: path`/organizations/${slug}/usage`, query, response: AdminUsage, timeoutMs })
      if (format === 'csv') await run.io.stdout(usageCsv(usage))
      else if (format === 'json') await run.io.stdout(json(usage))
      else await run.result(usage, usageText(usage, run.paint))
    })
}

function usageText({ by, rows, total, key_names: keyNames }: AdminUsage, paint: Paint): string {
  const labels = (['user', 'tags'] as const).filter(label => by.includes(label))
  const keyText = (key: string | null) => {
    const name = key === null ? undefined : keyNames[key]
    return name === undefined ? key : `${key} (${name})`
  }
  const line = (names: readonly (string | null)[], sums: AdminUsage['total']) => [
    ...names.map(name => oneLine(dash(name))),
    String(sums.requests),
    String(sums.prompt_tokens),
    String(sums.completion_tokens),
    sums.cost_usd,
  ]
  return table(
    paint,
    [
      'DAY',
      'KEY',
      'MODEL',
      ...labels.map(label => label.toUpperCase()),
      'REQUESTS',
      'PROMPT',
      'COMPLETION',
      'COST (USD)',
    ],
    [
      ...rows.map(row => line([row.day, keyText(row.key), row.model, ...labels.map(label => row[label])], row)),
      line(['total', null, null, ...labels.map(() => null)], total),
    ],
  )
}
