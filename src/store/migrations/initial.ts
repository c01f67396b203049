// The schema of a new database, made in one step; the upgrades beside it lead an older database to the same schema.
// Frozen with the first release: a later change is a new upgrade, which new databases get as well.
// Texts are as SQLite keeps them after ALTER TABLE, so that both ways compare equal.

export const initial = {
  to: 22,
  sql: `
-- Facts about this database: its host id.
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

-- Budgets hold for a calendar month (UTC); null: no bound.
CREATE TABLE organizations (
  id TEXT PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at_ms INTEGER NOT NULL
, budget_nano_usd INTEGER, budget_tokens INTEGER) STRICT;

CREATE TABLE keys (
  prefix TEXT PRIMARY KEY,
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  secret_sha256 BLOB NOT NULL CHECK (length(secret_sha256) = 32),
  scope TEXT NOT NULL CHECK (scope IN ('write', 'read')),
  created_at_ms INTEGER NOT NULL,
  revoked_at_ms INTEGER,
  last_used_at_ms INTEGER
) STRICT;

CREATE INDEX keys_organization ON keys (organization_id);

-- A VM's network, scratch and exchange disk; a gateway's VM has a workload, which its HOST_DATA commits to, and a model's disk.
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

CREATE INDEX vms_state ON vms (state);

-- rescue_bytes: allowance after the cap was reached. tap_bytes: the tap's counter when egress was sampled.
CREATE TABLE egress (
  vm_id TEXT PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
  used_bytes INTEGER NOT NULL,
  observed_at_ms INTEGER NOT NULL,
  blocked_at_ms INTEGER
, rescue_bytes INTEGER NOT NULL DEFAULT 0, tap_bytes INTEGER) STRICT;

CREATE TABLE instance_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  instance_id TEXT NOT NULL REFERENCES instances (id) ON DELETE CASCADE,
  status TEXT NOT NULL CHECK (status IN ('provisioning', 'ready', 'failed', 'terminating', 'terminated')),
  at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX instance_changes_instance ON instance_changes (instance_id, at_ms);

CREATE TABLE idempotency (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  key TEXT NOT NULL,
  body_sha256 BLOB NOT NULL CHECK (length(body_sha256) = 32),
  response_status INTEGER NOT NULL,
  response_data TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  PRIMARY KEY (organization_id, key)
) STRICT;

CREATE INDEX idempotency_created ON idempotency (created_at_ms);

CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;

CREATE INDEX events_subject ON events (subject, id);

-- models and aliases are JSON; null: every model, no alias.
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

CREATE INDEX gateway_keys_organization ON gateway_keys (organization_id);

CREATE INDEX gateway_keys_instance ON gateway_keys (instance_id);

-- tokens_source: who counted the tokens.
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

CREATE INDEX usage_organization ON usage (organization_id, at_ms, cost_nano_usd);

-- Used attestation nonces.
CREATE TABLE nonces (
  nonce BLOB PRIMARY KEY CHECK (length(nonce) = 32),
  at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX nonces_at ON nonces (at_ms);

-- vm_id has no foreign key: none leads from the directory to the ledger.
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

CREATE UNIQUE INDEX instances_organization_name ON instances (organization_id, name);

CREATE UNIQUE INDEX instances_hostname ON instances (hostname);

CREATE INDEX instances_status ON instances (status);

CREATE INDEX instances_vm ON instances (vm_id);

-- Addresses rest before they are given out again.
CREATE TABLE resting_addresses (
  address TEXT PRIMARY KEY,
  since_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX instances_organization_created ON instances (organization_id, created_at_ms, id);

-- The attestation of each claim.
CREATE TABLE instance_attestations (
  instance_id TEXT PRIMARY KEY REFERENCES instances (id) ON DELETE CASCADE,
  nonce TEXT NOT NULL CHECK (length(nonce) = 43),
  ssh_host_key TEXT NOT NULL,
  attested_at_ms INTEGER NOT NULL,
  document TEXT NOT NULL
) STRICT;

-- The launch document of each VM.
CREATE TABLE launches (
  vm_id TEXT PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
  document TEXT NOT NULL,
  measurement TEXT NOT NULL,
  host_data TEXT NOT NULL,
  operator_key TEXT NOT NULL,
  launched_at_ms INTEGER NOT NULL
, workload TEXT) STRICT;

-- The warm pool. In the directory, so that a create takes a VM in the transaction that inserts the instance.
CREATE TABLE pool_vms (
  vm_id TEXT PRIMARY KEY,
  host_id TEXT NOT NULL,
  image_digest TEXT NOT NULL,
  shape TEXT NOT NULL,
  box_key TEXT,
  created_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX pool_vms_host ON pool_vms (host_id, created_at_ms);

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
, fetch_ca_sha256 TEXT, crates_mirror TEXT) STRICT;

CREATE INDEX builds_state ON builds (state, created_at_ms);

CREATE INDEX builds_organization ON builds (organization_id, created_at_ms);

CREATE UNIQUE INDEX builds_vm ON builds (vm_id) WHERE vm_id IS NOT NULL;

CREATE INDEX builds_open ON builds (host_id) WHERE closed_at_ms IS NULL;

-- Nonces that accepted builds have used.
CREATE TABLE build_nonces (
  owner TEXT NOT NULL,
  nonce TEXT NOT NULL,
  build_id TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  PRIMARY KEY (owner, nonce)
) STRICT, WITHOUT ROWID;

CREATE INDEX build_nonces_build ON build_nonces (build_id);

-- Build VMs that no build has taken yet.
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

-- The VMs of the gateway, and how much of the usage of each is booked.
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

CREATE TABLE "resources" (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  vm_id TEXT NOT NULL REFERENCES vms (id),
  kind TEXT NOT NULL CHECK (kind IN ('address', 'address_v6', 'directory', 'disk', 'tap', 'nft', 'uid', 'tpm', 'qemu')),
  name TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX resources_kind_name ON resources (kind, name);

CREATE UNIQUE INDEX resources_vm_kind ON resources (vm_id, kind);

-- Usage of each calendar month (UTC), by key and by organization (an empty key). A trigger writes it with the row of usage;
-- a sum stops at the largest integer that a double holds exactly.
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

-- Usage of each key, model and day (UTC), written by a trigger as well.
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
`,
}
