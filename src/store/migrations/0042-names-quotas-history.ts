// Schema 42: names of keys, quotas of organizations, and the newest change of the directory that a host's copy has, so
// that a restored directory is recognized.

export const namesQuotasHistory = {
  to: 42,
  sql: `
-- The operator's name for a key, unique among the valid keys of its organization; NULL: none.
ALTER TABLE keys ADD COLUMN name TEXT;
ALTER TABLE gateway_keys ADD COLUMN name TEXT;
-- JSON: {"instances": …, …}; NULL: as configured.
ALTER TABLE organizations ADD COLUMN quotas TEXT;

-- Version and time of the newest change up to the copy's version; empty without one. A directory that was restored has
-- another change there.
ALTER TABLE replica ADD COLUMN change TEXT NOT NULL DEFAULT '';
-- Up to from_version.
ALTER TABLE copy_progress ADD COLUMN change TEXT NOT NULL DEFAULT '';
`,
} as const
