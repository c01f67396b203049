// Schema 11: which rows of the shared tables a host's role may add, change and delete. Pure.
//
// Triggers run after the row was written, within the statement; if one rejects, the statement is rolled back. They
// judge statements by the role that sends them (is_judged). Nesting depth is no criterion, because a role may define
// triggers on temporary tables. The owner's own statements are recorded. Rows that follow from a judged one are written
// by the owner's role, and not judged again. A branch without a rule allows; each function ends by rejecting.

import type { FleetMigration } from './migration.ts'

export const guards: FleetMigration = {
  to: 11,
  release: 1,
  name: 'guards',
  sql: `
CREATE FUNCTION has_instance(instance text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM instances i JOIN hosts h ON h.id = i.host_id
    WHERE i.id = instance AND h.database_role = session_user)
$$;

-- Records of ended instances are kept for 31 days at least; clocks may differ by a day.
CREATE FUNCTION is_kept_instance(status text, terminated_at_ms bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT status <> 'terminated' OR coalesce(terminated_at_ms >= now_ms() - 30 * 86400000::bigint, true)
$$;

CREATE FUNCTION status_rank(status text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
  SELECT array_position(ARRAY['provisioning', 'ready', 'failed', 'terminating', 'terminated'], status)
$$;

CREATE FUNCTION guard_organizations() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM note_action('organization.added', NEW.slug, NEW.id, '{}');
    RETURN NULL;
  END IF;
  IF TG_OP = 'UPDATE' THEN
    PERFORM note_action('organization.changed', NEW.slug, NEW.id, changed_columns(to_jsonb(OLD), to_jsonb(NEW)));
    IF is_owner() THEN RETURN NULL; END IF;
    IF (OLD.id, OLD.slug, OLD.created_at_ms) = (NEW.id, NEW.slug, NEW.created_at_ms)
      AND (OLD.deleting_at_ms IS NULL OR OLD.deleting_at_ms IS NOT DISTINCT FROM NEW.deleting_at_ms)
      AND (OLD.deleted_at_ms IS NULL OR OLD.deleted_at_ms IS NOT DISTINCT FROM NEW.deleted_at_ms)
      AND (NEW.deleting_at_ms IS NULL OR NEW.status = 'suspended') THEN RETURN NULL; END IF;
  END IF;
  IF NOT is_owner() THEN PERFORM refuse(lower(TG_OP) || ' organizations so', OLD.id); END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION guard_keys() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM note_action('key.added', NEW.prefix, NEW.organization_id,
      jsonb_build_object('scope', NEW.scope, 'client_made', NEW.client_made));
    RETURN NULL;
  END IF;
  IF TG_OP = 'UPDATE' THEN
    IF NEW.revoked_at_ms IS NOT NULL AND OLD.revoked_at_ms IS NULL THEN
      PERFORM note_action('key.revoked', NEW.prefix, NEW.organization_id, '{}');
    END IF;
    IF is_owner() THEN RETURN NULL; END IF;
    IF (OLD.prefix, OLD.organization_id, OLD.secret_sha256, OLD.scope, OLD.client_made, OLD.created_at_ms)
        = (NEW.prefix, NEW.organization_id, NEW.secret_sha256, NEW.scope, NEW.client_made, NEW.created_at_ms)
      AND (OLD.revoked_at_ms IS NULL OR OLD.revoked_at_ms IS NOT DISTINCT FROM NEW.revoked_at_ms) THEN RETURN NULL; END IF;
  END IF;
  IF NOT is_owner() THEN PERFORM refuse(lower(TG_OP) || ' keys so', OLD.prefix); END IF;
  RETURN NULL;
END $$;

-- A key of an instance is its host's to make: its row says which host that is. All others are on record.
CREATE FUNCTION guard_gateway_keys() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  own boolean;
  terms text[] := ARRAY['requests_per_minute', 'tokens_per_minute', 'concurrency_max', 'expires_at_ms', 'models', 'aliases',
    'budget_nano_usd', 'budget_tokens'];
  changed jsonb;
BEGIN
  IF TG_OP = 'INSERT' THEN
    own := NEW.instance_id IS NOT NULL AND EXISTS (SELECT 1 FROM instances i
      WHERE i.id = NEW.instance_id AND i.organization_id = NEW.organization_id AND is_own(i.host_id));
    IF NOT own THEN
      PERFORM note_action('gateway_key.added', NEW.prefix, NEW.organization_id,
        jsonb_build_object('client_made', NEW.client_made));
    END IF;
    IF NOT own AND NEW.instance_id IS NOT NULL AND NOT is_owner() THEN
      PERFORM refuse('add a key for an instance of another host', NEW.prefix);
    END IF;
    RETURN NULL;
  END IF;
  IF TG_OP = 'DELETE' THEN
    -- Kept for 62 days after its end at least.
    IF is_owner() OR least(OLD.revoked_at_ms, OLD.expires_at_ms) < now_ms() - 60 * 86400000::bigint THEN RETURN NULL; END IF;
    PERFORM refuse('delete a key that is kept', OLD.prefix);
  END IF;
  changed := changed_columns(to_jsonb(OLD), to_jsonb(NEW)) - 'last_used_at_ms';
  IF changed = '{}' THEN RETURN NULL; END IF;
  own := EXISTS (SELECT 1 FROM instances i WHERE i.id = NEW.instance_id AND (is_own(i.host_id) OR i.desired = 'absent'));
  IF changed - terms <> changed THEN
    PERFORM note_action('gateway_key.changed', NEW.prefix, NEW.organization_id, changed - 'revoked_at_ms');
  END IF;
  IF changed ? 'revoked_at_ms' AND NOT own THEN
    PERFORM note_action('gateway_key.revoked', NEW.prefix, NEW.organization_id, '{}');
  END IF;
  IF is_owner() OR (changed - terms - 'revoked_at_ms' = '{}'
    AND (OLD.revoked_at_ms IS NULL OR NOT changed ? 'revoked_at_ms')) THEN RETURN NULL; END IF;
  PERFORM refuse('change this of a key', OLD.prefix);
END $$;

-- The record of its instance is gone: it is no key of the organization.
CREATE FUNCTION end_left_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  UPDATE gateway_keys SET revoked_at_ms = now_ms() WHERE prefix = NEW.prefix AND revoked_at_ms IS NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER end_left_key AFTER UPDATE ON gateway_keys FOR EACH ROW
  WHEN (OLD.instance_id IS NOT NULL AND NEW.instance_id IS NULL) EXECUTE FUNCTION end_left_key();

-- Another host begins anew with it.
CREATE FUNCTION begin_attempt() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  DELETE FROM instance_addresses WHERE instance_id = NEW.id;
  DELETE FROM instance_attestations WHERE instance_id = NEW.id;
  DELETE FROM instance_changes WHERE instance_id = NEW.id AND status <> 'provisioning';
  UPDATE gateway_keys SET revoked_at_ms = greatest(created_at_ms, NEW.changed_at_ms)
    WHERE instance_id = NEW.id AND revoked_at_ms IS NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER begin_attempt AFTER UPDATE ON instances FOR EACH ROW
  WHEN (NEW.attempt > OLD.attempt) EXECUTE FUNCTION begin_attempt();

CREATE FUNCTION guard_instances() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  moved boolean;
  away boolean;
  changed jsonb;
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  IF TG_OP = 'DELETE' THEN
    IF is_kept_instance(OLD.status, OLD.terminated_at_ms) THEN PERFORM refuse('delete an instance that is kept', OLD.id); END IF;
    RETURN NULL;
  END IF;
  IF TG_OP = 'INSERT' THEN
    IF is_own(NEW.host_id) THEN RETURN NULL; END IF;
    -- For another host: new, and perhaps deleted again by its client in the same transaction.
    IF takes_instances(NEW.host_id) AND NEW.attempt = 1 AND NEW.egress_bytes = 0
      AND (NEW.desired, NEW.status) IN (('present', 'provisioning'), ('absent', 'terminating'))
      AND (NEW.failure_code, NEW.failure_message, NEW.egress_observed_at_ms, NEW.egress_block_applied_at_ms,
        NEW.ready_at_ms, NEW.terminated_at_ms) IS NULL THEN
      PERFORM note_action('instance.added', NEW.name, NEW.organization_id, jsonb_build_object('host', NEW.host_id));
      RETURN NULL;
    END IF;
    PERFORM refuse('add such an instance to another host', NEW.id);
  END IF;
  moved := NEW.host_id <> OLD.host_id;
  IF (OLD.id, OLD.organization_id, OLD.name, OLD.hostname, OLD.agent, OLD.public_key, OLD.inference_mode,
      OLD.inference_model, OLD.created_at_ms) IS DISTINCT FROM (NEW.id, NEW.organization_id, NEW.name, NEW.hostname,
      NEW.agent, NEW.public_key, NEW.inference_mode, NEW.inference_model, NEW.created_at_ms)
    OR status_rank(NEW.status) < status_rank(OLD.status) OR (OLD.desired = 'absent' AND NEW.desired <> 'absent')
    OR NEW.attempt <> OLD.attempt + moved::integer OR NEW.changed_at_ms < OLD.changed_at_ms THEN
    PERFORM refuse('change this of an instance', OLD.id);
  END IF;
  IF moved AND (OLD.status <> 'provisioning' OR OLD.desired <> 'present' OR NEW.attempt > 2) THEN
    PERFORM refuse('give this instance to another host', OLD.id);
  END IF;
  IF moved THEN
    PERFORM note_action('instance.moved', OLD.name, OLD.organization_id,
      jsonb_build_object('host', NEW.host_id, 'before', OLD.host_id));
  END IF;
  IF is_own(OLD.host_id) THEN RETURN NULL; END IF;
  away := is_away(OLD.host_id);
  changed := changed_columns(to_jsonb(OLD), to_jsonb(NEW)) - 'changed_at_ms';
  IF moved THEN
    IF away AND takes_instances(NEW.host_id) AND NEW.egress_bytes = 0
      AND changed - ARRAY['host_id', 'attempt', 'egress_bytes', 'egress_observed_at_ms', 'egress_block_applied_at_ms'] = '{}'
    THEN RETURN NULL; END IF;
    PERFORM refuse('take an instance from its host', OLD.id);
  END IF;
  IF changed ? 'desired' THEN
    PERFORM note_action('instance.deleted', OLD.name, OLD.organization_id, jsonb_build_object('host', OLD.host_id));
  END IF;
  -- Its client deletes it.
  IF NEW.desired = 'absent' AND NEW.status = 'terminating'
    AND changed - ARRAY['desired', 'status', 'terminated_reason'] = '{}' THEN RETURN NULL; END IF;
  -- It is given up.
  IF away AND changed - ARRAY['desired', 'status', 'terminated_reason', 'terminated_at_ms', 'failure_code',
      'failure_message'] = '{}'
    AND ((NEW.status = 'failed' AND NEW.failure_code = 'host_lost' AND NEW.terminated_at_ms IS NULL)
      OR (NEW.status IN ('terminating', 'terminated') AND NEW.desired = 'absent'
        AND NEW.failure_code IS NOT DISTINCT FROM OLD.failure_code)) THEN RETURN NULL; END IF;
  PERFORM refuse('change an instance of another host', OLD.id);
END $$;

-- The log of states of an instance.
CREATE FUNCTION guard_instance_changes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  i instances;
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  SELECT * INTO i FROM instances WHERE id = CASE TG_OP WHEN 'DELETE' THEN OLD.instance_id ELSE NEW.instance_id END;
  IF TG_OP = 'DELETE' THEN
    -- It goes with the record of its instance, or before it.
    IF i.id IS NOT NULL AND NOT is_own(i.host_id) AND is_kept_instance(i.status, i.terminated_at_ms) THEN
      PERFORM refuse('delete states of another host''s instance', OLD.instance_id);
    END IF;
    RETURN NULL;
  END IF;
  IF TG_OP = 'INSERT' THEN
    IF is_own(i.host_id) THEN RETURN NULL; END IF;
    -- As the row of the instance says after what its guard let through.
    IF NEW.at_ms BETWEEN i.created_at_ms AND i.changed_at_ms AND (
      (NEW.status = 'provisioning' AND NEW.at_ms = i.created_at_ms)
      OR (NEW.status = 'terminating' AND i.desired = 'absent' AND i.status IN ('terminating', 'terminated'))
      OR (NEW.status = 'failed' AND i.failure_code = 'host_lost')
      OR (NEW.status = 'terminated' AND i.status = 'terminated')) THEN RETURN NULL; END IF;
  END IF;
  PERFORM refuse('write states of another host''s instance', NEW.instance_id);
END $$;

-- Evidence and addresses of an instance.
CREATE FUNCTION guard_of_instance() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  i instances;
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  IF TG_OP = 'DELETE' THEN
    SELECT * INTO i FROM instances WHERE id = OLD.instance_id;
    IF i.id IS NULL OR is_own(i.host_id) OR NOT is_kept_instance(i.status, i.terminated_at_ms) THEN RETURN NULL; END IF;
    PERFORM refuse('delete from ' || TG_TABLE_NAME || ' what another host says', OLD.instance_id);
  END IF;
  IF NOT has_instance(NEW.instance_id) OR (TG_OP = 'UPDATE' AND OLD.instance_id <> NEW.instance_id) THEN
    PERFORM refuse('write into ' || TG_TABLE_NAME || ' for another host', NEW.instance_id);
  END IF;
  RETURN NULL;
END $$;

-- A response that a repeated create gets is one about an instance of that organization that this very
-- transaction added, which is on record if it is another host's, or one that the host has. It is kept
-- for 24 hours; clocks may differ by one.
CREATE FUNCTION guard_idempotency() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  IF TG_OP <> 'INSERT' AND OLD.created_at_ms >= now_ms() - 23 * 3600000::bigint AND NOT (TG_OP = 'DELETE'
    AND EXISTS (SELECT 1 FROM organizations WHERE id = OLD.organization_id AND deleting_at_ms IS NOT NULL)) THEN
    PERFORM refuse('forget a response that is kept', OLD.organization_id);
  END IF;
  IF TG_OP <> 'DELETE' AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.organization_id = NEW.organization_id
    AND i.name = NEW.response_data::jsonb ->> 'name'
    AND (i.xmin = pg_current_xact_id()::xid OR is_own(i.host_id))) THEN
    PERFORM refuse('keep a response of which no instance came', NEW.organization_id);
  END IF;
  RETURN NULL;
END $$;

-- Sums of a host's own books are its own, and go after 60 days at the soonest. Those of a host that has
-- left the fleet stay for 400 days: no host counts them anew.
CREATE FUNCTION guard_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  old_row jsonb;
  kept interval;
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  IF TG_OP = 'DELETE' THEN
    old_row := to_jsonb(OLD);
    kept := CASE WHEN is_own(OLD.host_id) THEN '60 days' WHEN NOT EXISTS (SELECT 1 FROM hosts WHERE id = OLD.host_id)
      THEN '400 days' END;
    IF coalesce(old_row ->> 'day', old_row ->> 'month') < to_char(clock_timestamp() AT TIME ZONE 'UTC' - kept,
      CASE WHEN old_row ? 'day' THEN 'YYYY-MM-DD' ELSE 'YYYY-MM' END) THEN RETURN NULL; END IF;
    PERFORM refuse('delete sums that are kept', OLD.organization_id);
  END IF;
  IF NOT is_own(NEW.host_id) OR (TG_OP = 'UPDATE' AND NEW.host_id <> OLD.host_id) THEN
    PERFORM refuse('write sums of another host', NEW.host_id);
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION guard_builds() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  changed jsonb;
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  IF TG_OP = 'INSERT' THEN
    IF NOT is_own(NEW.host_id) THEN PERFORM refuse('add a build to another host', NEW.id); END IF;
    RETURN NULL;
  END IF;
  IF TG_OP = 'DELETE' THEN
    IF is_own(OLD.host_id) OR NOT EXISTS (SELECT 1 FROM hosts WHERE id = OLD.host_id) THEN RETURN NULL; END IF;
    PERFORM refuse('delete a build of another host', OLD.id);
  END IF;
  changed := changed_columns(to_jsonb(OLD), to_jsonb(NEW));
  IF changed ?| ARRAY['id', 'organization_id', 'nonce', 'source_kind', 'source_name', 'source_bytes', 'source_sha256',
      'repo_url', 'repo_ref', 'project_dir', 'toolchain', 'reproduce', 'created_at_ms', 'fetch_ca_sha256', 'crates_mirror']
    OR NEW.claims < OLD.claims OR (changed ? 'host_id' AND NEW.claims = OLD.claims)
    OR (OLD.state IN ('ok', 'failed', 'cancelled') AND changed ? 'state') THEN
    PERFORM refuse('change this of a build', OLD.id);
  END IF;
  IF is_own(OLD.host_id) THEN
    -- Given back to the host that has its source.
    IF changed ? 'host_id' AND (NEW.state <> 'queued' OR NEW.host_id IS DISTINCT FROM OLD.source_host_id) THEN
      PERFORM refuse('give this build to another host', OLD.id);
    END IF;
    RETURN NULL;
  END IF;
  -- One that waits is taken up, from a host that can hand its source over, or needs not.
  IF OLD.state = 'queued' AND is_own(NEW.host_id) AND (OLD.source_kind = 'git' OR NOT is_away(OLD.host_id)) THEN
    RETURN NULL;
  END IF;
  -- Its client cancels it, or its host was lost.
  IF changed - ARRAY['state', 'error_type', 'error', 'finished_at_ms'] = '{}' THEN
    IF NEW.state = 'cancelled' THEN
      PERFORM note_action('build.cancelled', OLD.id, OLD.organization_id, jsonb_build_object('host', OLD.host_id));
      RETURN NULL;
    END IF;
    IF NEW.state = 'failed' AND NEW.error_type = 'internal' AND is_away(OLD.host_id) THEN RETURN NULL; END IF;
  END IF;
  PERFORM refuse('change a build of another host', OLD.id);
END $$;

CREATE FUNCTION guard_build_nonces() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  host text;
BEGIN
  IF is_owner() THEN RETURN NULL; END IF;
  host := (SELECT b.host_id FROM builds b WHERE b.id = CASE TG_OP WHEN 'DELETE' THEN OLD.build_id ELSE NEW.build_id END);
  IF TG_OP <> 'UPDATE' AND (is_own(host) OR (TG_OP = 'DELETE' AND (host IS NULL OR NOT EXISTS (SELECT 1 FROM hosts WHERE id = host)))) THEN
    RETURN NULL;
  END IF;
  PERFORM refuse(lower(TG_OP) || ' nonces of another host''s builds', host);
END $$;

CREATE FUNCTION guard_build_reservations() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  host text := CASE TG_OP WHEN 'DELETE' THEN OLD.host_id ELSE NEW.host_id END;
BEGIN
  IF is_owner() OR (is_own(host) AND (TG_OP <> 'UPDATE' OR OLD.host_id = host)) THEN RETURN NULL; END IF;
  PERFORM refuse(lower(TG_OP) || ' reservations of another host', host);
END $$;

CREATE FUNCTION guard_outboxes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  host text := CASE TG_OP WHEN 'DELETE' THEN OLD.host_id ELSE NEW.host_id END;
BEGIN
  IF is_owner() OR (is_own(host) AND (TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND OLD.host_id = host))) THEN RETURN NULL; END IF;
  PERFORM refuse(lower(TG_OP) || ' the number of another host''s reports', host);
END $$;

DO $$
DECLARE
  guarded record;
  judged text;
BEGIN
  FOR guarded IN SELECT * FROM (VALUES
    ('organizations', 'guard_organizations'), ('keys', 'guard_keys'), ('gateway_keys', 'guard_gateway_keys'),
    ('instances', 'guard_instances'), ('instance_changes', 'guard_instance_changes'),
    ('instance_attestations', 'guard_of_instance'), ('instance_addresses', 'guard_of_instance'),
    ('usage_months', 'guard_usage'), ('usage_days', 'guard_usage'), ('builds', 'guard_builds'),
    ('build_nonces', 'guard_build_nonces'), ('build_reservations', 'guard_build_reservations'),
    ('outboxes', 'guard_outboxes'), ('idempotency', 'guard_idempotency')) AS t (name, guard)
  LOOP
    -- Of the owner's own statements the first alone is noted; what follows from it is not.
    judged := 'is_judged() OR (pg_has_role(session_user, current_user, ''MEMBER'') AND pg_trigger_depth() = 0)';
    EXECUTE format('CREATE TRIGGER guard_insert AFTER INSERT ON %I FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %I()',
      guarded.name, judged, guarded.guard);
    EXECUTE format('CREATE TRIGGER guard_update AFTER UPDATE ON %I FOR EACH ROW
      WHEN (OLD.* IS DISTINCT FROM NEW.* AND (%s)) EXECUTE FUNCTION %I()', guarded.name, judged, guarded.guard);
    EXECUTE format('CREATE TRIGGER guard_delete AFTER DELETE ON %I FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %I()',
      guarded.name, judged, guarded.guard);
  END LOOP;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA strongroom FROM PUBLIC;
`,
}
