// Schema 18: names of keys and quotas of organizations, as in a host's own database (store/migrations). Pure.

import type { FleetMigration } from './migration.ts'

export const keyNamesAndQuotas: FleetMigration = {
  to: 18,
  release: 1,
  name: 'key-names-and-quotas',
  sql: `
ALTER TABLE keys ADD COLUMN name text;
ALTER TABLE gateway_keys ADD COLUMN name text;
-- A host may change them, and each change is on record (guard_organizations).
ALTER TABLE organizations ADD COLUMN quotas text;

-- A name is on record when its key is added. No host may change it later, because operators find keys by it. For
-- gateway_keys the guard refuses that already: a name is not one of its terms.
DO $$
DECLARE
  of_keys text := pg_get_functiondef('guard_keys'::regproc);
BEGIN
  of_keys := replace(of_keys, '''client_made'', NEW.client_made)',
    '''client_made'', NEW.client_made, ''name'', NEW.name)');
  EXECUTE replace(of_keys, 'AND (OLD.revoked_at_ms IS NULL OR',
    'AND OLD.name IS NOT DISTINCT FROM NEW.name AND (OLD.revoked_at_ms IS NULL OR');
  EXECUTE replace(pg_get_functiondef('guard_gateway_keys'::regproc), '''client_made'', NEW.client_made)',
    '''client_made'', NEW.client_made, ''name'', NEW.name)');
END $$;
`,
}
