// Schema 3: an instance that fails before it is ready is retried once on another host. Pure.

import type { FleetMigration } from '../migration.ts'

export const attempts: FleetMigration = {
  to: 3,
  release: 1,
  name: 'attempts',
  sql: `
-- Counts the hosts that the instance was given to; host_id changes only with it.
ALTER TABLE instances ADD COLUMN attempt bigint NOT NULL DEFAULT 1;
`,
}
