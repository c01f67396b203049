// Migration 17: a VM may have an IPv6 address, which is a resource of its own kind. SQLite changes a CHECK only with its table, so `resources` is
// made anew (https://www.sqlite.org/lang_altertable.html, section 7).

export const ipv6 = `
ALTER TABLE vms ADD COLUMN address_v6 TEXT;
CREATE TABLE resources_with_ipv6 (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  vm_id TEXT NOT NULL REFERENCES vms (id),
  kind TEXT NOT NULL CHECK (kind IN ('address', 'address_v6', 'directory', 'disk', 'tap', 'nft', 'uid', 'tpm', 'qemu')),
  name TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO resources_with_ipv6 SELECT seq, vm_id, kind, name, created_at_ms FROM resources;
DROP TABLE resources;
ALTER TABLE resources_with_ipv6 RENAME TO resources;
CREATE UNIQUE INDEX resources_kind_name ON resources (kind, name);
CREATE UNIQUE INDEX resources_vm_kind ON resources (vm_id, kind);
`
