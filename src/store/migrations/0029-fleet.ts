// Schema 29: what a host of a fleet keeps beside its records: how far it has copied the fleet's directory, what it has
// to report, and the addresses of instances on other hosts. Empty on a single host. Schema 43: sums of usage by start
// of the daemon. Schema 44: how far it has read the sums of other hosts.

export const fleetReplica = {
  to: 29,
  sql: `
-- One row while the host is in a fleet. version: of the directory, up to which its changes are here. is_applying: within
-- a transaction that copies them, so that they are not reported back. batch: the newest that was made of the outbox, all
-- lines up to sending_seq; null: none is on its way. is_seeding: this host's records become the directory's, and what it
-- reports is written as an owner's wish.
CREATE TABLE replica (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  fleet_id TEXT NOT NULL,
  timeline INTEGER NOT NULL,
  version INTEGER NOT NULL,
  is_applying INTEGER NOT NULL CHECK (is_applying IN (0, 1)),
  is_seeding INTEGER NOT NULL CHECK (is_seeding IN (0, 1)),
  batch INTEGER NOT NULL,
  sending_seq INTEGER
) STRICT;

-- Rows that changed here and that the directory does not have yet, each once. row_key: JSON of its primary key. Triggers
-- that exist only while the host is in a fleet write it.
CREATE TABLE outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  table_name TEXT NOT NULL,
  row_key TEXT NOT NULL,
  UNIQUE (table_name, row_key)
) STRICT;

CREATE TABLE instance_addresses (
  instance_id TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
  address TEXT,
  address_v6 TEXT
) STRICT;
`,
}

export const usageGenerations = {
  to: 43,
  sql: `
-- In the column host_id of new sums of usage it follows this host's id: a slash and a random number. So a host that was
-- restored from an older copy adds to what it reported. Empty until the daemon starts in the fleet.
ALTER TABLE replica ADD COLUMN generation TEXT NOT NULL DEFAULT '';
`,
} as const

export const sumsMark = {
  to: 44,
  sql: `
-- How far the sums of usage that hosts reported were read: server and snapshot; empty: not yet.
ALTER TABLE replica ADD COLUMN sums_mark TEXT NOT NULL DEFAULT '';
`,
} as const
