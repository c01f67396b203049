// Migration 7: VMs are opened to the network once they have proved what they are, the allowance beyond a spent cap is counted, and the
// attestation of each claim is kept. Guests that run already have their traffic, and keep it.

export const attestedClaim = `
ALTER TABLE vms ADD COLUMN opened_at_ms INTEGER;
UPDATE vms SET opened_at_ms = changed_at_ms WHERE state = 'running';

ALTER TABLE egress ADD COLUMN rescue_bytes INTEGER NOT NULL DEFAULT 0;

CREATE TABLE instance_attestations (
  instance_id TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
  nonce TEXT NOT NULL CHECK (length(nonce) = 43),
  ssh_host_key TEXT NOT NULL,
  attested_at_ms INTEGER NOT NULL,
  document TEXT NOT NULL
) STRICT;
`
