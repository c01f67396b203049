// Schema 9: keys whose secret the client generated, as in a host's own database (store/migrations). Pure.

import type { FleetMigration } from '../migration.ts'

export const clientMadeKeys: FleetMigration = {
  to: 9,
  release: 1,
  name: 'client-made-keys',
  sql: `
-- 1: the client drew the secret and registered its digest. 0: a host minted it.
ALTER TABLE keys ADD COLUMN client_made bigint NOT NULL DEFAULT 0;
ALTER TABLE gateway_keys ADD COLUMN client_made bigint NOT NULL DEFAULT 0;
`,
}
