// Migration 15: the VMs that the gateway runs in, and how far the usage of each is in the books.

export const gateways = `
CREATE TABLE gateways (
  vm_id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  shape TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('starting', 'serving', 'draining', 'gone')),
  reason TEXT,
  receipt_key TEXT,
  booked INTEGER NOT NULL DEFAULT 0,
  booked_digest TEXT NOT NULL DEFAULT '0000000000000000000000000000000000000000000000000000000000000000',
  created_at_ms INTEGER NOT NULL,
  changed_at_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX gateways_serving ON gateways (host_id) WHERE state = 'serving';
CREATE INDEX gateways_state ON gateways (host_id, state, created_at_ms);
`
