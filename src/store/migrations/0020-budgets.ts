// Migration 20: budgets of a calendar month (UTC), of keys and organizations; null: no bound.

export const budgets = `
ALTER TABLE gateway_keys ADD COLUMN budget_nano_usd INTEGER;
ALTER TABLE gateway_keys ADD COLUMN budget_tokens INTEGER;
ALTER TABLE organizations ADD COLUMN budget_nano_usd INTEGER;
ALTER TABLE organizations ADD COLUMN budget_tokens INTEGER;
`
