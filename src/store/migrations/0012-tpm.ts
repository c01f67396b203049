// Migration 12: the process that is a VM's TPM is a resource. SQLite changes a CHECK only with its table, so `resources` is made anew
// (https://www.sqlite.org/lang_altertable.html, section 7).

export const tpm = `
CREATE TABLE resources_with_tpm (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  vm_id TEXT NOT NULL REFERENCES vms (id),
  kind TEXT NOT NULL CHECK (kind IN ('address', 'directory', 'disk', 'tap', 'nft', 'uid', 'tpm', 'qemu')),
  name TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO resources_with_tpm SELECT seq, vm_id, kind, name, created_at_ms FROM resources;
DROP TABLE resources;
ALTER TABLE resources_with_tpm RENAME TO resources;
CREATE UNIQUE INDEX resources_kind_name ON resources (kind, name);
CREATE UNIQUE INDEX resources_vm_kind ON resources (vm_id, kind);
`
