// Migration 1: the first schema. Never edited once released; a change is a new migration.

export const initial = `
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE organizations (
  id TEXT PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at_ms INTEGER NOT NULL
) STRICT;

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
) STRICT;
CREATE INDEX vms_state ON vms (state);

CREATE TABLE resources (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  vm_id TEXT NOT NULL REFERENCES vms (id),
  kind TEXT NOT NULL CHECK (kind IN ('address', 'directory', 'tap', 'nft', 'qemu')),
  name TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX resources_kind_name ON resources (kind, name);
CREATE UNIQUE INDEX resources_vm_kind ON resources (vm_id, kind);

CREATE TABLE egress (
  vm_id TEXT PRIMARY KEY REFERENCES vms (id) ON DELETE CASCADE,
  used_bytes INTEGER NOT NULL,
  observed_at_ms INTEGER NOT NULL,
  blocked_at_ms INTEGER
) STRICT;

CREATE TABLE instances (
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
  vm_id TEXT REFERENCES vms (id),
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
) STRICT;
CREATE UNIQUE INDEX instances_organization_name ON instances (organization_id, name);
CREATE UNIQUE INDEX instances_hostname ON instances (hostname);
CREATE INDEX instances_status ON instances (status);
CREATE INDEX instances_vm ON instances (vm_id);

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
`
