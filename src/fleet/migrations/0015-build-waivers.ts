// Schema 15: waivers of a build request, as in a host's own database. Pure.

import type { FleetMigration } from './migration.ts'

export const buildWaivers: FleetMigration = {
  to: 15,
  release: 1,
  name: 'build-waivers',
  sql: `
-- JSON, an array of names. Another host's statement may not change it.
ALTER TABLE builds ADD COLUMN waivers text;

CREATE TRIGGER guard_update_waivers AFTER UPDATE ON builds FOR EACH ROW
  WHEN (OLD.waivers IS DISTINCT FROM NEW.waivers
    AND (is_judged() OR (pg_has_role(session_user, current_user, 'MEMBER') AND pg_trigger_depth() = 0)))
  EXECUTE FUNCTION guard_build_nix();
`,
}
