// Fields for limits, models, expiry and budget of a gateway key.

import { userBudgetExample } from '../../../../contract/admin/user-budget.ts'
import type { RequestProblem } from '../../core/request.ts'
import { TextField } from '../../parts/field.tsx'
import type { Terms } from './gateway-key-terms.ts'

const FIELDS = [
  ['requests_per_minute', 'Requests per minute', 'Empty: as configured', 'numeric'],
  ['tokens_per_minute', 'Tokens per minute', 'Empty: as configured', 'numeric'],
  ['concurrency_max', 'Requests at the same time', 'Empty: as configured', 'numeric'],
  ['budget_usd', 'Budget of a month in dollars', 'Empty: no bound', 'decimal'],
  ['budget_tokens', 'Budget of a month in tokens', 'Empty: no bound', 'numeric'],
  ['budget_day_usd', 'Budget of a day in dollars', 'Empty: no bound', 'decimal'],
  ['budget_day_tokens', 'Budget of a day in tokens', 'Empty: no bound', 'numeric'],
  ['budget_week_usd', 'Budget of a week in dollars', 'Empty: no bound', 'decimal'],
  ['budget_week_tokens', 'Budget of a week in tokens', 'Empty: no bound', 'numeric'],
  ['user_budget', 'Budget of each end user', `Dollars and period, like ${userBudgetExample}. Empty: no bound`, 'text'],
  ['models', 'Models', 'With commas in between. Empty: all', 'text'],
  ['aliases', 'Names for models', 'NAME=MODEL, with commas in between', 'text'],
] as const satisfies readonly (readonly [keyof Terms, string, string, 'numeric' | 'decimal' | 'text'])[]

export function TermsFields({
  terms,
  change,
  problem,
}: {
  terms: Terms
  change: (terms: Terms) => void
  problem: RequestProblem | null
}) {
  return (
    <div class="fields">
      {FIELDS.map(([name, label, hint, inputMode]) => (
        <TextField
          key={name}
          name={name}
          label={label}
          hint={hint}
          inputMode={inputMode}
          value={terms[name]}
          change={value => change({ ...terms, [name]: value.trim() })}
          problem={problem}
        />
      ))}
      <TextField
        name="expires_at"
        label="Ends at the begin of this day, UTC"
        hint="Empty: never"
        type="date"
        value={terms.expires_at}
        change={value => change({ ...terms, expires_at: value })}
        problem={problem}
      />
    </div>
  )
}
