// Schema 42: names of keys, and quotas of organizations.

export const keyNamesAndQuotas = {
  to: 42,
  sql: `
-- The operator's name for a key, unique among the valid keys of its organization; NULL: none.
ALTER TABLE keys ADD COLUMN name TEXT;
ALTER TABLE gateway_keys ADD COLUMN name TEXT;
-- JSON: {"instances": …, …}; NULL: as configured.
ALTER TABLE organizations ADD COLUMN quotas TEXT;
`,
} as const
