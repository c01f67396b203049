// Schema 41: what programs of an instance may reach, as its create request says.

export const egressPolicy = {
  to: 41,
  sql: `
-- Canonical JSON; NULL without one.
ALTER TABLE instances ADD COLUMN egress_policy TEXT;
`,
} as const
