// Schema 17: the egress policy of an instance's create request, as in a host's own database. Pure.
//
// A host that does not know the column would start the instance without the policy. Its lease names the newest schema
// that it supports, so the instance is not given to it.

import type { FleetMigration } from './migration.ts'

export const egressPolicy: FleetMigration = {
  to: 17,
  release: 1,
  name: 'egress-policy',
  sql: `
-- Canonical JSON; NULL without one. No statement changes it.
ALTER TABLE instances ADD COLUMN egress_policy text;

CREATE FUNCTION guard_egress_policy() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  known integer := (SELECT (l.report ->> 'schema')::integer FROM leases l WHERE l.host_id = NEW.host_id);
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.egress_policy IS DISTINCT FROM NEW.egress_policy THEN
    RAISE EXCEPTION 'the egress policy of instance % does not change', NEW.id USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF NOT is_owner() AND NEW.egress_policy IS NOT NULL AND NEW.status = 'provisioning' AND coalesce(known, 0) < 17 THEN
    RAISE EXCEPTION 'instance % has an egress policy, and its host knows schema %: upgrade the host', NEW.id,
      coalesce(known, 0);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER guard_insert_egress_policy AFTER INSERT ON instances FOR EACH ROW
  WHEN (NEW.egress_policy IS NOT NULL) EXECUTE FUNCTION guard_egress_policy();

CREATE TRIGGER guard_update_egress_policy AFTER UPDATE ON instances FOR EACH ROW
  WHEN (OLD.egress_policy IS DISTINCT FROM NEW.egress_policy
    OR (NEW.egress_policy IS NOT NULL AND OLD.host_id <> NEW.host_id))
  EXECUTE FUNCTION guard_egress_policy();

REVOKE ALL ON FUNCTION guard_egress_policy() FROM PUBLIC;
`,
}
