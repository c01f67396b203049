// Schema 2: records of organizations, copied by every host, and how much each host has reported. Pure.
//
// Names and meanings are those of a host's own database (store/migrations). No foreign key refers to hosts: records
// remain after a host is removed.

import type { FleetMigration } from '../migration.ts'

export const directory: FleetMigration = {
  to: 2,
  release: 1,
  name: 'directory',
  sql: `
CREATE TABLE organizations (
  id              text   PRIMARY KEY,
  slug            text   NOT NULL UNIQUE,
  status          text   NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at_ms   bigint NOT NULL,
  budget_nano_usd bigint,
  budget_tokens   bigint,
  deleting_at_ms  bigint,
  deleted_at_ms   bigint
);

CREATE TABLE keys (
  prefix          text   PRIMARY KEY,
  organization_id text   NOT NULL REFERENCES organizations,
  secret_sha256   bytea  NOT NULL CHECK (length(secret_sha256) = 32),
  scope           text   NOT NULL CHECK (scope IN ('write', 'read')),
  created_at_ms   bigint NOT NULL,
  revoked_at_ms   bigint,
  last_used_at_ms bigint
);

-- Without the VM, which is its host's own business.
CREATE TABLE instances (
  id                         text   PRIMARY KEY,
  host_id                    text   NOT NULL,
  organization_id            text   NOT NULL REFERENCES organizations,
  name                       text   NOT NULL,
  hostname                   text   NOT NULL UNIQUE,
  desired                    text   NOT NULL CHECK (desired IN ('present', 'absent')),
  status                     text   NOT NULL
    CHECK (status IN ('provisioning', 'ready', 'failed', 'terminating', 'terminated')),
  agent                      text   NOT NULL,
  public_key                 text   NOT NULL,
  inference_mode             text   NOT NULL,
  inference_model            text   NOT NULL,
  failure_code               text,
  failure_message            text,
  terminated_reason          text,
  egress_bytes               bigint NOT NULL DEFAULT 0,
  egress_observed_at_ms      bigint,
  egress_block_applied_at_ms bigint,
  created_at_ms              bigint NOT NULL,
  ready_at_ms                bigint,
  terminated_at_ms           bigint,
  changed_at_ms              bigint NOT NULL,
  platform                   text,
  UNIQUE (organization_id, name)
);
CREATE INDEX instances_host ON instances (host_id) WHERE status <> 'terminated';

CREATE TABLE instance_changes (
  instance_id text   NOT NULL REFERENCES instances ON DELETE CASCADE,
  status      text   NOT NULL,
  at_ms       bigint NOT NULL,
  PRIMARY KEY (instance_id, status)
);

CREATE TABLE instance_attestations (
  instance_id    text   PRIMARY KEY REFERENCES instances ON DELETE CASCADE,
  nonce          text   NOT NULL,
  ssh_host_key   text   NOT NULL,
  attested_at_ms bigint NOT NULL,
  document       text   NOT NULL
);

CREATE TABLE instance_addresses (
  instance_id text PRIMARY KEY REFERENCES instances ON DELETE CASCADE,
  address     text,
  address_v6  text
);

CREATE TABLE gateway_keys (
  prefix              text   PRIMARY KEY,
  organization_id     text   NOT NULL REFERENCES organizations,
  instance_id         text   REFERENCES instances ON DELETE SET NULL,
  secret_sha256       bytea  NOT NULL CHECK (length(secret_sha256) = 32),
  requests_per_minute bigint,
  tokens_per_minute   bigint,
  concurrency_max     bigint,
  created_at_ms       bigint NOT NULL,
  expires_at_ms       bigint,
  revoked_at_ms       bigint,
  last_used_at_ms     bigint,
  models              text,
  aliases             text,
  budget_nano_usd     bigint,
  budget_tokens       bigint
);
CREATE INDEX gateway_keys_instance ON gateway_keys (instance_id);

CREATE TABLE idempotency (
  organization_id text   NOT NULL REFERENCES organizations,
  key             text   NOT NULL,
  body_sha256     bytea  NOT NULL CHECK (length(body_sha256) = 32),
  response_status bigint NOT NULL,
  response_data   text   NOT NULL,
  created_at_ms   bigint NOT NULL,
  PRIMARY KEY (organization_id, key)
);

-- The last batch of each host that was taken, in the transaction that took it.
CREATE TABLE outboxes (
  host_id text   PRIMARY KEY,
  batch   bigint NOT NULL
);

CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON organizations
  FOR EACH ROW EXECUTE FUNCTION record_change('id');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON keys
  FOR EACH ROW EXECUTE FUNCTION record_change('prefix');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON instances
  FOR EACH ROW EXECUTE FUNCTION record_change('id');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON instance_changes
  FOR EACH ROW EXECUTE FUNCTION record_change('instance_id', 'status');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON instance_attestations
  FOR EACH ROW EXECUTE FUNCTION record_change('instance_id');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON instance_addresses
  FOR EACH ROW EXECUTE FUNCTION record_change('instance_id');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON gateway_keys
  FOR EACH ROW EXECUTE FUNCTION record_change('prefix');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON idempotency
  FOR EACH ROW EXECUTE FUNCTION record_change('organization_id', 'key');
`,
}
