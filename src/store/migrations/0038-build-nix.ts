// Schema 38: fields of a build request that concern Nix alone.

export const buildNix = {
  to: 38,
  sql: `
-- JSON; NULL if the request has none of these fields.
ALTER TABLE builds ADD COLUMN nix TEXT;
`,
} as const
