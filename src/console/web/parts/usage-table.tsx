// Rows of usage with their sums, for operators and tenants.

import type { AdminUsage } from '../../../contract/admin/usage.ts'
import { countText, usdText } from '../core/format.ts'
import { Empty } from './page.tsx'
import { type Column, Table } from './table.tsx'
import { Foreign } from './text.tsx'

type Usage = Pick<AdminUsage, 'total'> & {
  readonly by: readonly string[]
  readonly rows: readonly (Pick<AdminUsage['rows'][number], 'day' | 'key' | 'model'> & AdminUsage['total'])[]
}
type Row = Usage['rows'][number]

const NAMES = { day: 'Day', key: 'Key', model: 'Model' } as const

export function UsageTable({ usage: { by, rows, total } }: { usage: Usage }) {
  if (rows.length === 0) return <Empty title="No usage in this period" />
  const groups = (['day', 'key', 'model'] as const).filter(name => by.includes(name))
  const columns: readonly Column<Row>[] = [
    ...groups.map(name => ({ name: NAMES[name], cell: (row: Row) => <Foreign text={row[name]} /> })),
    { name: 'Requests', isNumber: true, cell: row => countText(row.requests) },
    { name: 'Prompt tokens', isNumber: true, cell: row => countText(row.prompt_tokens) },
    { name: 'Completion tokens', isNumber: true, cell: row => countText(row.completion_tokens) },
    { name: 'Cost', isNumber: true, cell: row => usdText(row.cost_usd) },
  ]
  return (
    <>
      <Table label="Usage" columns={columns} rows={rows} keyOf={row => groups.map(name => row[name]).join(' ')} />
      <p class="count">
        Total: {countText(total.requests)} requests, {countText(total.prompt_tokens)} prompt and{' '}
        {countText(total.completion_tokens)} completion tokens, {usdText(total.cost_usd)}.
      </p>
    </>
  )
}
