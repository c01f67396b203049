// Migration 11: VMs that builds run in have an exchange disk, a network of their own kind, and may lose it for good.

export const buildVms = `
ALTER TABLE vms ADD COLUMN exchange_gib INTEGER NOT NULL DEFAULT 0;
ALTER TABLE vms ADD COLUMN network TEXT NOT NULL DEFAULT 'world' CHECK (network IN ('world', 'fetch'));
ALTER TABLE vms ADD COLUMN closed_at_ms INTEGER;
`
