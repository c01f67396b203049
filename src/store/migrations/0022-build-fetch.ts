// Schema 22: a build request may name a CA and a crates mirror for its fetch.

export const buildFetch = {
  to: 22,
  sql: `
ALTER TABLE builds ADD COLUMN fetch_ca_sha256 TEXT;
ALTER TABLE builds ADD COLUMN crates_mirror TEXT;
`,
}
