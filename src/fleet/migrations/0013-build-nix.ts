// Schema 13: fields of a build request that apply only to Nix, as in a host's own database. Pure.

import type { FleetMigration } from './migration.ts'

export const buildNix: FleetMigration = {
  to: 13,
  release: 1,
  name: 'build-nix',
  sql: `
-- JSON; NULL if the request has none of these fields. Another host's statement may not change it.
ALTER TABLE builds ADD COLUMN nix text;

CREATE FUNCTION guard_build_nix() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  PERFORM refuse('change this of a build', OLD.id);
END $$;

CREATE TRIGGER guard_update_nix AFTER UPDATE ON builds FOR EACH ROW
  WHEN (OLD.nix IS DISTINCT FROM NEW.nix
    AND (is_judged() OR (pg_has_role(session_user, current_user, 'MEMBER') AND pg_trigger_depth() = 0)))
  EXECUTE FUNCTION guard_build_nix();

REVOKE ALL ON FUNCTION guard_build_nix() FROM PUBLIC;
`,
}
