// Migration 4: a usage row says who counted its tokens. Rows from before were counted by the upstream, or by estimate; which, nobody knows.

export const tokensSource = `
ALTER TABLE usage ADD COLUMN tokens_source TEXT NOT NULL DEFAULT 'reported'
  CHECK (tokens_source IN ('reported', 'estimated', 'implausible'));
`
