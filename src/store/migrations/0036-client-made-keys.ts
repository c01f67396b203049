// Schema 36: keys whose secret the client drew. The host stores the digest of such a secret and never had the secret.

export const clientMadeKeys = {
  to: 36,
  sql: `
-- 1: the client drew the secret and registered its digest. 0: this host, or another one of the fleet, minted it.
ALTER TABLE keys ADD COLUMN client_made INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gateway_keys ADD COLUMN client_made INTEGER NOT NULL DEFAULT 0;
`,
} as const
