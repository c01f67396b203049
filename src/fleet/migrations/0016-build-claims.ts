// Schema 16: a host takes only builds whose request it can read completely. Pure.
//
// A host copies the columns that it supports, and would otherwise build a request without the others. Its lease names
// the newest schema that it supports. A later step that adds a column to requests replaces `schema_of_build`.

import type { FleetMigration } from './migration.ts'

export const buildClaims: FleetMigration = {
  to: 16,
  release: 1,
  name: 'build-claims',
  sql: `
-- The first schema with every column that the request has a value in.
CREATE FUNCTION schema_of_build(b builds) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN coalesce(b.waivers, '[]') <> '[]' THEN 15 WHEN b.options IS NOT NULL THEN 14
    WHEN b.nix IS NOT NULL THEN 13 ELSE 0 END
$$;

-- A SQLSTATE of its own: the host leaves this build to others, and makes its other changes.
CREATE FUNCTION guard_build_claim() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  known integer := (SELECT (l.report ->> 'schema')::integer FROM leases l WHERE l.host_id = NEW.host_id);
BEGIN
  IF is_owner() OR coalesce(known, 0) >= schema_of_build(NEW) THEN RETURN NULL; END IF;
  RAISE EXCEPTION 'build % has fields of schema %, and its host knows schema %: upgrade the host', NEW.id,
    schema_of_build(NEW), coalesce(known, 0) USING ERRCODE = 'SRB01';
END $$;

CREATE TRIGGER guard_update_claim AFTER UPDATE ON builds FOR EACH ROW
  WHEN (OLD.state = 'queued' AND OLD.host_id <> NEW.host_id
    AND (is_judged() OR (pg_has_role(session_user, current_user, 'MEMBER') AND pg_trigger_depth() = 0)))
  EXECUTE FUNCTION guard_build_claim();

-- Hosts of schema 13 write \`nix\` alone, and later ones read \`options\` alone.
CREATE FUNCTION options_of_nix() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  NEW.options := json_build_object('nix', NEW.nix::json)::text;
  RETURN NEW;
END $$;

CREATE TRIGGER options_of_nix BEFORE INSERT ON builds FOR EACH ROW
  WHEN (NEW.nix IS NOT NULL AND NEW.options IS NULL) EXECUTE FUNCTION options_of_nix();

REVOKE ALL ON FUNCTION schema_of_build(builds), guard_build_claim(), options_of_nix() FROM PUBLIC;
`,
}
