// Schema 35: whoever appends to the usage ledger adds to its sums, once for a batch (usage-sums.query.ts). Triggers did
// so for each row.

export const usageSums = {
  to: 35,
  sql: `
DROP TRIGGER usage_counted;
DROP TRIGGER usage_counted_by_day;
`,
} as const
