// Schema 42: names of keys.

export const keyNames = {
  to: 42,
  sql: `
-- The operator's name for a key, unique among the valid keys of its organization; NULL: none.
ALTER TABLE keys ADD COLUMN name TEXT;
ALTER TABLE gateway_keys ADD COLUMN name TEXT;
`,
} as const
