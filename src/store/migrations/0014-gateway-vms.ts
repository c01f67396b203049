// Migration 14: VMs that the gateway runs in have a network of their own kind, a workload that their HOST_DATA stands for, and a model's disk.
// SQLite drops a column with its CHECK (https://www.sqlite.org/lang_altertable.html, section 6); `vms` itself stays, with the order of its rows.

export const gatewayVms = `
ALTER TABLE vms RENAME COLUMN network TO network_before;
ALTER TABLE vms ADD COLUMN network TEXT NOT NULL DEFAULT 'world' CHECK (network IN ('world', 'fetch', 'gateway'));
UPDATE vms SET network = network_before;
ALTER TABLE vms DROP COLUMN network_before;
ALTER TABLE vms ADD COLUMN workload TEXT;
ALTER TABLE vms ADD COLUMN model_disk TEXT;
ALTER TABLE launches ADD COLUMN workload TEXT;
`
