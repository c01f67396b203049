// Schema 12: daily and weekly budgets, as in a host's own database (store/migrations). Pure.

import type { FleetMigration } from './migration.ts'

export const shortBudgets: FleetMigration = {
  to: 12,
  release: 1,
  name: 'short-budgets',
  sql: `
ALTER TABLE organizations ADD COLUMN short_budgets text;
ALTER TABLE gateway_keys ADD COLUMN short_budgets text;

-- A host may change them, and each change is on record, as those of the other terms of a key.
DO $$
BEGIN
  EXECUTE replace(pg_get_functiondef('guard_gateway_keys'::regproc), '''budget_tokens''',
    '''budget_tokens'', ''short_budgets''');
END $$;
`,
}
