// Migration 9: VMs of the warm pool. They stand in the directory, so that a create takes one in the transaction that inserts the instance.

export const pool = `
CREATE TABLE pool_vms (
  vm_id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  image_digest TEXT NOT NULL,
  shape TEXT NOT NULL,
  box_key TEXT,
  created_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX pool_vms_host ON pool_vms (host_id, created_at_ms);
`
