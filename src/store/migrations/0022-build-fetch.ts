// Migration 22: what a build's request lets its fetch rest on beside the public authorities and the registry that a lock names.

export const buildFetch = `
ALTER TABLE builds ADD COLUMN fetch_ca_sha256 TEXT;
ALTER TABLE builds ADD COLUMN crates_mirror TEXT;
`
