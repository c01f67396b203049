// Schema 37: budgets of a day and of a week, for keys and organizations.

export const shortBudgets = {
  to: 37,
  sql: `
-- JSON: {"day": {"nanoUsd": …, "tokens": …}, "week": …}; NULL: none.
ALTER TABLE organizations ADD COLUMN short_budgets TEXT;
ALTER TABLE gateway_keys ADD COLUMN short_budgets TEXT;
`,
} as const
