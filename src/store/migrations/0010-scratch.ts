// Migration 10: a VM's scratch disk is a resource, and how large it was promised is on record. SQLite changes a CHECK only with its table, so
// `resources` is made anew (https://www.sqlite.org/lang_altertable.html, section 7).

export const scratch = `
ALTER TABLE vms ADD COLUMN scratch_gib INTEGER NOT NULL DEFAULT 0;
CREATE TABLE resources_with_disk (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  vm_id TEXT NOT NULL REFERENCES vms (id),
  kind TEXT NOT NULL CHECK (kind IN ('address', 'directory', 'disk', 'tap', 'nft', 'uid', 'qemu')),
  name TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO resources_with_disk SELECT seq, vm_id, kind, name, created_at_ms FROM resources;
DROP TABLE resources;
ALTER TABLE resources_with_disk RENAME TO resources;
CREATE UNIQUE INDEX resources_kind_name ON resources (kind, name);
CREATE UNIQUE INDEX resources_vm_kind ON resources (vm_id, kind);
`
