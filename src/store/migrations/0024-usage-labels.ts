// Schema 24: `user` and `metadata` of requests in the usage ledger.

export const usageLabels = {
  to: 24,
  sql: `
ALTER TABLE usage ADD COLUMN end_user TEXT;
ALTER TABLE usage ADD COLUMN tags TEXT;
`,
}
