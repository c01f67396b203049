// Schema 7: builds, their nonces and reserved build VMs, copied by every host. Pure.
//
// Names and meanings are those of a host's own database (store/migrations).

import type { FleetMigration } from '../migration.ts'

export const builds: FleetMigration = {
  to: 7,
  release: 1,
  name: 'builds',
  sql: `
CREATE TABLE builds (
  id                text   PRIMARY KEY,
  -- Runs it; while it waits, the host that has its source. Changes with claims alone.
  host_id           text   NOT NULL,
  claims            bigint NOT NULL DEFAULT 0,
  source_host_id    text,
  organization_id   text   REFERENCES organizations,
  state             text   NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'ok', 'failed', 'cancelled')),
  nonce             text   NOT NULL,
  source_kind       text   NOT NULL CHECK (source_kind IN ('archive', 'git')),
  source_name       text,
  source_bytes      bigint,
  source_sha256     text,
  repo_url          text,
  repo_ref          text,
  project_dir       text,
  toolchain         text,
  reproduce         bigint NOT NULL,
  -- Clients see it, and its address leads to its host.
  vm_id             text,
  network           text   NOT NULL CHECK (network IN ('unused', 'open', 'closed')),
  evidence          text,
  simulated         bigint,
  measurement       text,
  result_bytes      bigint,
  result_sha256     text,
  provenance_sha256 text,
  error_type        text,
  error             text,
  disk_bytes        bigint NOT NULL,
  created_at_ms     bigint NOT NULL,
  started_at_ms     bigint,
  ordered_at_ms     bigint,
  finished_at_ms    bigint,
  closed_at_ms      bigint,
  removed_at_ms     bigint,
  fetch_ca_sha256   text,
  crates_mirror     text
);
CREATE INDEX builds_living ON builds (host_id) WHERE state IN ('queued', 'starting', 'running');

CREATE TABLE build_nonces (
  owner    text NOT NULL,
  nonce    text NOT NULL,
  build_id text NOT NULL REFERENCES builds ON DELETE CASCADE,
  PRIMARY KEY (owner, nonce)
);
CREATE INDEX build_nonces_build ON build_nonces (build_id);

CREATE TABLE build_reservations (
  vm_id           text   PRIMARY KEY,
  host_id         text   NOT NULL,
  organization_id text   REFERENCES organizations,
  expires_at_ms   bigint NOT NULL
);

CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON builds
  FOR EACH ROW EXECUTE FUNCTION record_change('id');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON build_nonces
  FOR EACH ROW EXECUTE FUNCTION record_change('owner', 'nonce');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON build_reservations
  FOR EACH ROW EXECUTE FUNCTION record_change('vm_id');
`,
}
