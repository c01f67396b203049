// Migration 2: the inference gateway's keys, its usage ledger and used attestation nonces.

export const inference = `
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
) STRICT;
CREATE INDEX gateway_keys_organization ON gateway_keys (organization_id);
CREATE INDEX gateway_keys_instance ON gateway_keys (instance_id);

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
) STRICT;
CREATE INDEX usage_organization ON usage (organization_id, at_ms, cost_nano_usd);

CREATE TABLE nonces (
  nonce BLOB PRIMARY KEY CHECK (length(nonce) = 32),
  at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX nonces_at ON nonces (at_ms);
`
