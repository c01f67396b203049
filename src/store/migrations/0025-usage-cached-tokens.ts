// Schema 25: how many tokens of a request's prompt came out of a cache, in the usage ledger.

export const usageCachedTokens = {
  to: 25,
  sql: `
ALTER TABLE usage ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
`,
}
