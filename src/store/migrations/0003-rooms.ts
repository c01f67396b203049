// Migration 3: an instance names its VM without a foreign key, for no key leads from the directory to the ledger. SQLite drops a
// foreign key only with its table, so `instances` is made anew (https://www.sqlite.org/lang_altertable.html, section 7).

export const rooms = `
CREATE TABLE instances_without_key (
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
) STRICT;
INSERT INTO instances_without_key SELECT
  id, host_id, organization_id, name, hostname, desired, status, agent, public_key, inference_mode, inference_model, vm_id,
  failure_code, failure_message, terminated_reason, egress_bytes, egress_observed_at_ms, egress_block_applied_at_ms,
  created_at_ms, ready_at_ms, terminated_at_ms, changed_at_ms
FROM instances;
DROP TABLE instances;
ALTER TABLE instances_without_key RENAME TO instances;
CREATE UNIQUE INDEX instances_organization_name ON instances (organization_id, name);
CREATE UNIQUE INDEX instances_hostname ON instances (hostname);
CREATE INDEX instances_status ON instances (status);
CREATE INDEX instances_vm ON instances (vm_id);
`
