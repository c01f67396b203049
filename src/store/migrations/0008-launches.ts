// Migration 8: what each VM was launched from.

export const launches = `
CREATE TABLE launches (
  vm_id TEXT PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
  document TEXT NOT NULL,
  measurement TEXT NOT NULL,
  host_data TEXT NOT NULL,
  operator_key TEXT NOT NULL,
  launched_at_ms INTEGER NOT NULL
) STRICT;
`
