// Schema 40: what a build request waives.

export const buildWaivers = {
  to: 40,
  sql: `
-- JSON, an array of names; NULL in rows from before there were waivers.
ALTER TABLE builds ADD COLUMN waivers TEXT;
`,
} as const
