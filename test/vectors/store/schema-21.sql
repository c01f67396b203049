-- A database of schema 21: as the 21 migrations before the first release left it, with rows in every table.
PRAGMA foreign_keys = OFF;
BEGIN;

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO meta VALUES ('host_id', '01932f00-0000-7000-8000-000000000001');

CREATE TABLE organizations (
  id TEXT PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at_ms INTEGER NOT NULL
, budget_nano_usd INTEGER, budget_tokens INTEGER) STRICT;
INSERT INTO organizations VALUES ('o1', 'acme', 'active', 1, 5000000000, NULL);
INSERT INTO organizations VALUES ('o2', 'globex', 'suspended', 2, NULL, NULL);

CREATE TABLE keys (
  prefix TEXT PRIMARY KEY,
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  secret_sha256 BLOB NOT NULL CHECK (length(secret_sha256) = 32),
  scope TEXT NOT NULL CHECK (scope IN ('write', 'read')),
  created_at_ms INTEGER NOT NULL,
  revoked_at_ms INTEGER,
  last_used_at_ms INTEGER
) STRICT;
INSERT INTO keys VALUES ('srk_a', 'o1', X'0000000000000000000000000000000000000000000000000000000000000000', 'write', 1, NULL, 9);
INSERT INTO keys VALUES ('srk_b', 'o2', X'0000000000000000000000000000000000000000000000000000000000000000', 'read', 2, 3, NULL);

CREATE TABLE vms (
  id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  image TEXT NOT NULL,
  desired TEXT NOT NULL CHECK (desired IN ('running', 'gone')),
  state TEXT NOT NULL CHECK (state IN ('waiting', 'launching', 'booting', 'running', 'stopping', 'failed', 'gone')),
  vcpus INTEGER NOT NULL,
  memory_mib INTEGER NOT NULL,
  address TEXT,
  failure_code TEXT,
  failure_message TEXT,
  created_at_ms INTEGER NOT NULL,
  changed_at_ms INTEGER NOT NULL
, platform TEXT CHECK (platform IN ('snp', 'kvm', 'tcg')), opened_at_ms INTEGER, scratch_gib INTEGER NOT NULL DEFAULT 0, exchange_gib INTEGER NOT NULL DEFAULT 0, closed_at_ms INTEGER, network TEXT NOT NULL DEFAULT 'world' CHECK (network IN ('world', 'fetch', 'gateway')), workload TEXT, model_disk TEXT, egress_limit_bytes INTEGER, address_v6 TEXT) STRICT;
INSERT INTO vms VALUES ('v1', 'h', 'instance', 'running', 'running', 2, 2048, '10.77.0.2', NULL, NULL, 1, 5, 'kvm', 4, 0, 0, NULL, 'world', NULL, NULL, NULL, 'fd00::2');
INSERT INTO vms VALUES ('v2', 'h', 'builder', 'gone', 'gone', 4, 8192, NULL, NULL, NULL, 1, 7, 'kvm', 4, 0, 0, NULL, 'fetch', NULL, NULL, NULL, NULL);
INSERT INTO vms VALUES ('v3', 'h', 'inference', 'running', 'running', 2, 4096, '10.77.0.4', NULL, NULL, 2, 6, 'kvm', NULL, 0, 0, NULL, 'gateway', NULL, NULL, NULL, NULL);

CREATE TABLE egress (
  vm_id TEXT PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
  used_bytes INTEGER NOT NULL,
  observed_at_ms INTEGER NOT NULL,
  blocked_at_ms INTEGER
, rescue_bytes INTEGER NOT NULL DEFAULT 0, tap_bytes INTEGER) STRICT;
INSERT INTO egress VALUES ('v1', 4321, 7, NULL, 5, 4400);

CREATE TABLE instance_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
  status TEXT NOT NULL CHECK (status IN ('provisioning', 'ready', 'failed', 'terminating', 'terminated')),
  at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO instance_changes VALUES (1, 'i1', 'provisioning', 1);
INSERT INTO instance_changes VALUES (2, 'i1', 'ready', 2);

CREATE TABLE idempotency (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  key TEXT NOT NULL,
  body_sha256 BLOB NOT NULL CHECK (length(body_sha256) = 32),
  response_status INTEGER NOT NULL,
  response_data TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  PRIMARY KEY (organization_id, key)
) STRICT;
INSERT INTO idempotency VALUES ('o1', 'again', X'0000000000000000000000000000000000000000000000000000000000000000', 202, '{"id":"i1"}', 1);

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;
INSERT INTO events VALUES (2, 9, 'vm.gone', 'v2', 'it''s gone');

CREATE TABLE gateway_keys (
  prefix TEXT PRIMARY KEY,
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  instance_id TEXT REFERENCES instances (id) ON DELETE SET NULL,
  secret_sha256 BLOB NOT NULL CHECK (length(secret_sha256) = 32),
  requests_per_minute INTEGER,
  tokens_per_minute INTEGER,
  concurrency_max INTEGER,
  created_at_ms INTEGER NOT NULL,
  expires_at_ms INTEGER,
  revoked_at_ms INTEGER,
  last_used_at_ms INTEGER
, models TEXT, aliases TEXT, budget_nano_usd INTEGER, budget_tokens INTEGER) STRICT;
INSERT INTO gateway_keys VALUES ('sgk_a', 'o1', 'i1', X'0000000000000000000000000000000000000000000000000000000000000000', 60, NULL, NULL, 1, NULL, NULL, NULL, '["tiny"]', NULL, NULL, 1000);
INSERT INTO gateway_keys VALUES ('sgk_b', 'o1', NULL, X'0000000000000000000000000000000000000000000000000000000000000000', NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL);

CREATE TABLE usage (
  id TEXT PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  key_prefix TEXT NOT NULL,
  instance_id TEXT,
  model TEXT NOT NULL,
  upstream TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('completed', 'aborted', 'failed'))
, tokens_source TEXT NOT NULL DEFAULT 'reported'
  CHECK (tokens_source IN ('reported', 'estimated', 'implausible'))) STRICT;
INSERT INTO usage VALUES ('u1', 1763812800000, 'o1', 'sgk_a', 'i1', 'tiny', 'local', 10, 5, 7, 'completed', 'reported');
INSERT INTO usage VALUES ('u2', 1763899200000, 'o1', 'sgk_a', 'i1', 'tiny', 'local', 20, 6, 8, 'aborted', 'estimated');
INSERT INTO usage VALUES ('u3', 1764633600000, 'o1', 'sgk_b', NULL, 'tiny', 'local', 30, 7, 9, 'completed', 'reported');

CREATE TABLE nonces (
  nonce BLOB PRIMARY KEY CHECK (length(nonce) = 32),
  at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO nonces VALUES (X'0000000000000000000000000000000000000000000000000000000000000000', 3);

CREATE TABLE "instances" (
  id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  name TEXT NOT NULL,
  hostname TEXT NOT NULL,
  desired TEXT NOT NULL CHECK (desired IN ('present', 'absent')),
  status TEXT NOT NULL CHECK (status IN ('provisioning', 'ready', 'failed', 'terminating', 'terminated')),
  agent TEXT NOT NULL,
  public_key TEXT NOT NULL,
  inference_mode TEXT NOT NULL,
  inference_model TEXT NOT NULL,
  vm_id TEXT,
  failure_code TEXT,
  failure_message TEXT,
  terminated_reason TEXT,
  egress_bytes INTEGER NOT NULL DEFAULT 0,
  egress_observed_at_ms INTEGER,
  egress_block_applied_at_ms INTEGER,
  created_at_ms INTEGER NOT NULL,
  ready_at_ms INTEGER,
  terminated_at_ms INTEGER,
  changed_at_ms INTEGER NOT NULL
, platform TEXT CHECK (platform IN ('snp', 'kvm', 'tcg'))) STRICT;
INSERT INTO instances VALUES ('i1', 'h', 'o1', 'n', 'n.x', 'present', 'ready', 'openclaw', 'ssh-ed25519 A', 'managed', 'tiny', 'v1', NULL, NULL, NULL, 77, NULL, NULL, 1, 2, NULL, 3, 'kvm');

CREATE TABLE resting_addresses (
  address TEXT PRIMARY KEY,
  since_ms INTEGER NOT NULL
) STRICT;
INSERT INTO resting_addresses VALUES ('10.77.0.3', 7);

CREATE TABLE instance_attestations (
  instance_id TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
  nonce TEXT NOT NULL CHECK (length(nonce) = 43),
  ssh_host_key TEXT NOT NULL,
  attested_at_ms INTEGER NOT NULL,
  document TEXT NOT NULL
) STRICT;
INSERT INTO instance_attestations VALUES ('i1', 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn', 'ssh-ed25519 B', 2, '{}');

CREATE TABLE launches (
  vm_id TEXT PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
  document TEXT NOT NULL,
  measurement TEXT NOT NULL,
  host_data TEXT NOT NULL,
  operator_key TEXT NOT NULL,
  launched_at_ms INTEGER NOT NULL
, workload TEXT) STRICT;
INSERT INTO launches VALUES ('v1', '{}', 'm', 'd', 'k', 2, NULL);
INSERT INTO launches VALUES ('v3', '{}', 'm', 'd', 'k', 2, '{"kind":"gateway"}');

CREATE TABLE pool_vms (
  vm_id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  image_digest TEXT NOT NULL,
  shape TEXT NOT NULL,
  box_key TEXT,
  created_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO pool_vms VALUES ('v4', 'h', 'd', 's', 'b', 1);

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
INSERT INTO builds VALUES ('b1', 'h', 'o1', 'ok', 'nn', 'archive', 'a.tar', 10, 'aa', NULL, NULL, '.', 'cargo', 1, 'v2', 'closed', 'ee', 0, 'm', 20, 'bb', 'cc', NULL, NULL, 30, 1, 2, 3, 4, 5, NULL);
INSERT INTO builds VALUES ('b2', 'h', NULL, 'queued', 'nn', 'git', NULL, NULL, NULL, 'https://example.org/r.git', 'main', NULL, NULL, 0, NULL, 'unused', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 6, NULL, NULL, NULL, NULL, NULL);

CREATE TABLE build_nonces (
  owner TEXT NOT NULL,
  nonce TEXT NOT NULL,
  build_id TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  PRIMARY KEY (owner, nonce)
) STRICT, WITHOUT ROWID;
INSERT INTO build_nonces VALUES ('o1', 'nn', 'b1');
INSERT INTO build_nonces VALUES ('', 'nn', 'b2');

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
INSERT INTO build_vms VALUES ('v5', 'h', 'reserved', 'o1', 'd', 's', 1, 99);

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
INSERT INTO gateways VALUES ('v3', 'h', 's', 'serving', NULL, NULL, 0, '0000000000000000000000000000000000000000000000000000000000000000', 2, 6);

CREATE TABLE "resources" (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  vm_id TEXT NOT NULL REFERENCES vms (id),
  kind TEXT NOT NULL CHECK (kind IN ('address', 'address_v6', 'directory', 'disk', 'tap', 'nft', 'uid', 'tpm', 'qemu')),
  name TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;
INSERT INTO resources VALUES (7, 'v1', 'address', '10.77.0.2', 1);
INSERT INTO resources VALUES (8, 'v1', 'uid', '70000', 1);
INSERT INTO resources VALUES (9, 'v1', 'qemu', '1:2', 2);

CREATE TABLE usage_months (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  month TEXT NOT NULL,
  key_prefix TEXT NOT NULL,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (organization_id, month, key_prefix)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_months VALUES ('o1', '2025-11', '', 2, 30, 11, 15);
INSERT INTO usage_months VALUES ('o1', '2025-11', 'sgk_a', 2, 30, 11, 15);
INSERT INTO usage_months VALUES ('o1', '2025-12', '', 1, 30, 7, 9);
INSERT INTO usage_months VALUES ('o1', '2025-12', 'sgk_b', 1, 30, 7, 9);

CREATE TABLE usage_days (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  key_prefix TEXT NOT NULL,
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (organization_id, key_prefix, day, model)
) STRICT, WITHOUT ROWID;
INSERT INTO usage_days VALUES ('o1', 'sgk_a', '2025-11-22', 'tiny', 1, 10, 5, 7);
INSERT INTO usage_days VALUES ('o1', 'sgk_a', '2025-11-23', 'tiny', 1, 20, 6, 8);
INSERT INTO usage_days VALUES ('o1', 'sgk_b', '2025-12-02', 'tiny', 1, 30, 7, 9);

-- The next numbers of AUTOINCREMENT.
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES ('resources', 9);
INSERT INTO sqlite_sequence VALUES ('instance_changes', 2);
INSERT INTO sqlite_sequence VALUES ('events', 2);

CREATE INDEX keys_organization ON keys (organization_id);
CREATE INDEX vms_state ON vms (state);
CREATE INDEX instance_changes_instance ON instance_changes (instance_id, at_ms);
CREATE INDEX idempotency_created ON idempotency (created_at_ms);
CREATE INDEX events_subject ON events (subject, id);
CREATE INDEX gateway_keys_organization ON gateway_keys (organization_id);
CREATE INDEX gateway_keys_instance ON gateway_keys (instance_id);
CREATE INDEX usage_organization ON usage (organization_id, at_ms, cost_nano_usd);
CREATE INDEX nonces_at ON nonces (at_ms);
CREATE UNIQUE INDEX instances_organization_name ON instances (organization_id, name);
CREATE UNIQUE INDEX instances_hostname ON instances (hostname);
CREATE INDEX instances_status ON instances (status);
CREATE INDEX instances_vm ON instances (vm_id);
CREATE INDEX instances_organization_created ON instances (organization_id, created_at_ms, id);
CREATE INDEX pool_vms_host ON pool_vms (host_id, created_at_ms);
CREATE INDEX builds_state ON builds (state, created_at_ms);
CREATE INDEX builds_organization ON builds (organization_id, created_at_ms);
CREATE UNIQUE INDEX builds_vm ON builds (vm_id) WHERE vm_id IS NOT NULL;
CREATE INDEX builds_open ON builds (host_id) WHERE closed_at_ms IS NULL;
CREATE INDEX build_nonces_build ON build_nonces (build_id);
CREATE INDEX build_vms_host ON build_vms (host_id, kind, created_at_ms);
CREATE UNIQUE INDEX gateways_serving ON gateways (host_id) WHERE state = 'serving';
CREATE INDEX gateways_state ON gateways (host_id, state, created_at_ms);
CREATE UNIQUE INDEX resources_kind_name ON resources (kind, name);
CREATE UNIQUE INDEX resources_vm_kind ON resources (vm_id, kind);
CREATE TRIGGER usage_counted AFTER INSERT ON usage BEGIN
  INSERT INTO usage_months VALUES
    (NEW.organization_id, coalesce(strftime('%Y-%m', NEW.at_ms / 1000, 'unixepoch'), '9999-12'), '', 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd),
    (NEW.organization_id, coalesce(strftime('%Y-%m', NEW.at_ms / 1000, 'unixepoch'), '9999-12'), NEW.key_prefix, 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd)
  ON CONFLICT (organization_id, month, key_prefix) DO UPDATE SET
    requests = requests + 1,
    prompt_tokens = min(9007199254740991, prompt_tokens + excluded.prompt_tokens),
    completion_tokens = min(9007199254740991, completion_tokens + excluded.completion_tokens),
    cost_nano_usd = min(9007199254740991, cost_nano_usd + excluded.cost_nano_usd);
END;
CREATE INDEX usage_days_day ON usage_days (day);
CREATE TRIGGER usage_counted_by_day AFTER INSERT ON usage BEGIN
  INSERT INTO usage_days VALUES
    (NEW.organization_id, NEW.key_prefix, coalesce(strftime('%Y-%m-%d', NEW.at_ms / 1000, 'unixepoch'), '9999-12-31'), NEW.model, 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd)
  ON CONFLICT (organization_id, key_prefix, day, model) DO UPDATE SET
    requests = requests + 1,
    prompt_tokens = min(9007199254740991, prompt_tokens + excluded.prompt_tokens),
    completion_tokens = min(9007199254740991, completion_tokens + excluded.completion_tokens),
    cost_nano_usd = min(9007199254740991, cost_nano_usd + excluded.cost_nano_usd);
END;

PRAGMA user_version = 21;
COMMIT;
