// Migration 5: addresses rest before they are used again; what an instance's VM runs on; an index for what an organization has created lately.

export const rest = `
CREATE TABLE resting_addresses (
  address TEXT PRIMARY KEY,
  since_ms INTEGER NOT NULL
) STRICT;

ALTER TABLE vms ADD COLUMN platform TEXT CHECK (platform IN ('snp', 'kvm', 'tcg'));
ALTER TABLE instances ADD COLUMN platform TEXT CHECK (platform IN ('snp', 'kvm', 'tcg'));
CREATE INDEX instances_organization_created ON instances (organization_id, created_at_ms, id);
`
