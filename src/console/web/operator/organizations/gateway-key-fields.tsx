// Fields for limits, models, expiry and budget of a gateway key.

import { userBudgetExample } from '../../../../contract/admin/user-budget.ts'
import type { RequestProblem } from '../../core/request.ts'
import { TextField } from '../../parts/field.tsx'
import type { Terms } from './gateway-key-terms.ts'

const FIELDS = [
  ['requests_per_minute', 'Requests per minute', 'The configured limit if empty', 'numeric'],
  ['tokens_per_minute', 'Tokens per minute', 'The configured limit if empty', 'numeric'],
  ['concurrency_max', 'Concurrent requests', 'The configured limit if empty', 'numeric'],
  ['budget_usd', 'Monthly budget (USD)', 'No limit if empty', 'decimal'],
  ['budget_tokens', 'Monthly budget (tokens)', 'No limit if empty', 'numeric'],
  ['budget_day_usd', 'Daily budget (USD)', 'No limit if empty', 'decimal'],
  ['budget_day_tokens', 'Daily budget (tokens)', 'No limit if empty', 'numeric'],
  ['budget_week_usd', 'Weekly budget (USD)', 'No limit if empty', 'decimal'],
  ['budget_week_tokens', 'Weekly budget (tokens)', 'No limit if empty', 'numeric'],
  [
    'user_budget',
    'Budget per end user',
    `Amount and period, for example ${userBudgetExample}; no limit if empty`,
    'text',
  ],
  ['models', 'Models', 'Comma-separated; all if empty', 'text'],
  ['aliases', 'Model aliases', 'Comma-separated, each NAME=MODEL', 'text'],
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
        label="Expires on"
        hint="At 00:00 UTC; never if empty"
        type="date"
        value={terms.expires_at}
        change={value => change({ ...terms, expires_at: value })}
        problem={problem}
      />
    </div>
  )
}
