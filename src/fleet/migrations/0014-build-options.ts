// Schema 14: options of a build request for one toolchain, as in a host's own database. Pure.

import type { FleetMigration } from './migration.ts'

export const buildOptions: FleetMigration = {
  to: 14,
  release: 1,
  name: 'build-options',
  sql: `
-- JSON; NULL if the request has none of these options. Another host's statement may not change it. It has what \`nix\`
-- had, which only hosts of before write.
ALTER TABLE builds ADD COLUMN options text;
UPDATE builds SET options = json_build_object('nix', nix::json)::text WHERE nix IS NOT NULL;

CREATE TRIGGER guard_update_options AFTER UPDATE ON builds FOR EACH ROW
  WHEN (OLD.options IS DISTINCT FROM NEW.options
    AND (is_judged() OR (pg_has_role(session_user, current_user, 'MEMBER') AND pg_trigger_depth() = 0)))
  EXECUTE FUNCTION guard_build_nix();
`,
}
