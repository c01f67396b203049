// Migration 13: attested builds, the nonces that accepted ones have used, and build VMs that no build has taken yet.

export const builds = `
CREATE TABLE builds (
  id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  organization_id TEXT REFERENCES organizations (id),
  state TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'ok', 'failed', 'cancelled')),
  nonce TEXT NOT NULL,
  source_kind TEXT NOT NULL CHECK (source_kind IN ('archive', 'git')),
  source_name TEXT,
  source_bytes INTEGER,
  source_sha256 TEXT,
  repo_url TEXT,
  repo_ref TEXT,
  project_dir TEXT,
  toolchain TEXT CHECK (toolchain IN ('cargo', 'nix')),
  reproduce INTEGER NOT NULL,
  vm_id TEXT,
  network TEXT NOT NULL CHECK (network IN ('unused', 'open', 'closed')),
  evidence TEXT,
  simulated INTEGER,
  measurement TEXT,
  result_bytes INTEGER,
  result_sha256 TEXT,
  provenance_sha256 TEXT,
  error_type TEXT CHECK (error_type IN ('source_invalid', 'source_unreachable', 'lock_missing', 'toolchain_undetected', 'checksum_mismatch', 'build_failed', 'no_artifacts', 'limit_exceeded', 'cancelled', 'internal')),
  error TEXT,
  disk_bytes INTEGER NOT NULL,
  created_at_ms INTEGER NOT NULL,
  started_at_ms INTEGER,
  ordered_at_ms INTEGER,
  finished_at_ms INTEGER,
  closed_at_ms INTEGER,
  removed_at_ms INTEGER
) STRICT;
CREATE INDEX builds_state ON builds (state, created_at_ms);
CREATE INDEX builds_organization ON builds (organization_id, created_at_ms);
CREATE UNIQUE INDEX builds_vm ON builds (vm_id) WHERE vm_id IS NOT NULL;
CREATE INDEX builds_open ON builds (host_id) WHERE closed_at_ms IS NULL;
CREATE TABLE build_nonces (
  owner TEXT NOT NULL,
  nonce TEXT NOT NULL,
  build_id TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  PRIMARY KEY (owner, nonce)
) STRICT, WITHOUT ROWID;
CREATE INDEX build_nonces_build ON build_nonces (build_id);
CREATE TABLE build_vms (
  vm_id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('warm', 'reserved')),
  organization_id TEXT REFERENCES organizations (id),
  image_digest TEXT NOT NULL,
  shape TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  expires_at_ms INTEGER
) STRICT;
CREATE INDEX build_vms_host ON build_vms (host_id, kind, created_at_ms);
`
