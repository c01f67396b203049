// Schema 1: the version counter and the changes of each version, the hosts, their leases, the clock of silence. Pure.

import type { FleetMigration } from '../migration.ts'

export const hosts: FleetMigration = {
  to: 1,
  release: 1,
  name: 'hosts',
  sql: `
-- The counter. One row; who updates it holds its lock until the commit.
CREATE TABLE fleet (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  id      uuid    NOT NULL DEFAULT gen_random_uuid(),
  version bigint  NOT NULL DEFAULT 0
);
INSERT INTO fleet DEFAULT VALUES;

-- One line for each row that changed, in the order of commits. Trimmed after a day.
CREATE TABLE changes (
  version    bigint      NOT NULL,
  ordinal    bigint      GENERATED ALWAYS AS IDENTITY,
  at         timestamptz NOT NULL DEFAULT now(),
  table_name text        NOT NULL,
  row_key    jsonb       NOT NULL,
  row        jsonb,
  PRIMARY KEY (version, ordinal)
);
CREATE INDEX changes_at ON changes (at);
-- The version up to which lines were trimmed: who copied less has missed some.
CREATE TABLE trimmed (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  version bigint  NOT NULL DEFAULT 0
);
INSERT INTO trimmed DEFAULT VALUES;

-- The timeline of the server's log: another one after each failover. 0 on a standby.
CREATE FUNCTION timeline() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN pg_is_in_recovery() THEN 0
    ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END
$$;

-- Begins a numbered transaction. The version is kept in a setting that ends with it.
CREATE FUNCTION begin_change(wakes boolean, OUT version bigint, OUT xid xid8, OUT timeline bigint, OUT began text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  UPDATE fleet SET version = fleet.version + 1 RETURNING fleet.version INTO begin_change.version;
  PERFORM set_config('strongroom.version', begin_change.version::text, true);
  IF wakes THEN PERFORM pg_notify('strongroom', begin_change.version::text); END IF;
  xid := pg_current_xact_id();
  timeline := timeline();
  began := now()::text;
END $$;

-- For tables that hosts copy: AFTER INSERT OR UPDATE OR DELETE, FOR EACH ROW, with the columns of the primary key.
CREATE FUNCTION record_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  number text := current_setting('strongroom.version', true);
  old_row jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
  new_row jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
  old_key jsonb := (SELECT jsonb_object_agg(name, old_row -> name) FROM unnest(TG_ARGV) AS name);
  new_key jsonb := (SELECT jsonb_object_agg(name, new_row -> name) FROM unnest(TG_ARGV) AS name);
BEGIN
  IF coalesce(number, '') = '' THEN
    RAISE EXCEPTION 'rows of % change only after SELECT strongroom.begin_change(true) in the same transaction', TG_TABLE_NAME;
  END IF;
  IF old_row = new_row THEN RETURN NULL; END IF;
  IF old_row IS NOT NULL AND (new_row IS NULL OR old_key <> new_key) THEN
    INSERT INTO changes (version, table_name, row_key) VALUES (number::bigint, TG_TABLE_NAME, old_key);
  END IF;
  IF new_row IS NOT NULL THEN
    INSERT INTO changes (version, table_name, row_key, row) VALUES (number::bigint, TG_TABLE_NAME, new_key, new_row);
  END IF;
  RETURN NULL;
END $$;

-- The hosts, as the operator wants them.
CREATE TABLE hosts (
  id            text   PRIMARY KEY,
  name          text   NOT NULL UNIQUE,
  -- Signs in as this role; it alone renews this host's lease.
  database_role text   NOT NULL,
  joined_ms     bigint NOT NULL,
  -- Takes no new instances since.
  draining_ms   bigint
);
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON hosts
  FOR EACH ROW EXECUTE FUNCTION record_change('id');

-- Time for which the database took renewals. It alone counts as a host's silence, and for leases: while the database is
-- away it stands still, and a jump of the server's clock adds three seconds at most.
CREATE TABLE clock (
  one             boolean     PRIMARY KEY DEFAULT true CHECK (one),
  served_ms       bigint      NOT NULL DEFAULT 0,
  renewed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Counts up with each new timeline; leases of another epoch are void.
  epoch           bigint      NOT NULL DEFAULT 1,
  timeline        bigint      NOT NULL,
  -- served_ms when the epoch began: no silence is older.
  epoch_served_ms bigint      NOT NULL DEFAULT 0,
  lease_ms        bigint      NOT NULL DEFAULT 6000,
  -- Most that passes between two renewals of anybody.
  step_ms_max     bigint      NOT NULL DEFAULT 3000,
  -- No host is given up sooner, whatever another one is configured to.
  lost_ms_min     bigint      NOT NULL DEFAULT 10000
);
INSERT INTO clock (timeline) VALUES (timeline());

-- What each host says of itself with each renewal; nobody copies it.
CREATE TABLE leases (
  host_id    text        PRIMARY KEY REFERENCES hosts ON DELETE CASCADE,
  epoch      bigint      NOT NULL,
  renewed_at timestamptz NOT NULL,
  -- clock.served_ms at the last renewal.
  served_ms  bigint      NOT NULL,
  -- Its instances were given up then; null once it has come back.
  lost_at    timestamptz,
  platform   text        NOT NULL,
  -- Instances that it has and can take besides, together.
  places     integer     NOT NULL CHECK (places >= 0),
  report     jsonb       NOT NULL
);

-- Every host as it is now. A host that never renewed has no lease, no silence and no report.
CREATE VIEW host_states AS
  SELECT h.id, h.name, h.database_role, h.joined_ms, h.draining_ms, l.platform, coalesce(l.places, 0) AS places,
    l.report, l.renewed_at, l.lost_at,
    CASE WHEN l.host_id IS NOT NULL THEN c.now_ms - greatest(l.served_ms, c.epoch_served_ms) END AS silent_ms,
    coalesce(l.lost_at IS NULL AND l.epoch = c.epoch AND c.is_current AND c.now_ms - l.served_ms < c.lease_ms, false)
      AS has_lease
  FROM hosts h LEFT JOIN leases l ON l.host_id = h.id CROSS JOIN (
    SELECT epoch, epoch_served_ms, lease_ms, timeline = timeline() AS is_current, served_ms + CASE
      WHEN timeline <> timeline() THEN 0
      ELSE greatest(0, least(step_ms_max, (extract(epoch FROM clock_timestamp() - renewed_at) * 1000)::bigint)) END AS now_ms
    FROM clock
  ) c;

-- Renews the lease of a host, and lets the clock of silence go on. Null for is_member: there is no such host, or it
-- signs in as another role. The hosts in silent have said nothing for longer than lost_after_ms.
CREATE FUNCTION renew_lease(host text, lost_after_ms bigint, platform text, places integer, report jsonb,
  OUT is_member boolean, OUT is_draining boolean, OUT was_lost boolean, OUT epoch bigint, OUT lease_ms bigint, OUT silent text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  moment timestamptz := clock_timestamp();
  c clock;
BEGIN
  SELECT h.draining_ms IS NOT NULL INTO is_draining FROM hosts h WHERE h.id = host AND h.database_role = session_user;
  is_member := FOUND;
  IF NOT is_member THEN RETURN; END IF;
  c := tick(moment);
  epoch := c.epoch;
  lease_ms := c.lease_ms;
  SELECT l.lost_at IS NOT NULL INTO was_lost FROM leases l WHERE l.host_id = host;
  was_lost := coalesce(was_lost, false);
  INSERT INTO leases AS l (host_id, epoch, renewed_at, served_ms, platform, places, report)
    VALUES (host, c.epoch, moment, c.served_ms, renew_lease.platform, renew_lease.places, renew_lease.report)
    ON CONFLICT (host_id) DO UPDATE SET epoch = excluded.epoch, renewed_at = excluded.renewed_at,
      served_ms = excluded.served_ms, lost_at = NULL, platform = excluded.platform, places = excluded.places,
      report = excluded.report;
  silent := ARRAY(SELECT s.id FROM host_states s
    WHERE s.lost_at IS NULL AND s.silent_ms > greatest(lost_after_ms, c.lost_ms_min) ORDER BY s.id LIMIT 16);
END $$;

-- Lets the clock of silence go on and takes its lock.
CREATE FUNCTION tick(moment timestamptz) RETURNS clock LANGUAGE plpgsql AS $$
DECLARE
  c clock;
  line bigint := timeline();
BEGIN
  SELECT * INTO c FROM clock FOR UPDATE;
  IF c.timeline = line THEN
    c.served_ms := c.served_ms
      + greatest(0, least(c.step_ms_max, (extract(epoch FROM moment - c.renewed_at) * 1000)::bigint));
  ELSE
    -- Another server with another clock: every lease is void, and no silence is older than this.
    c.timeline := line;
    c.epoch := c.epoch + 1;
    c.epoch_served_ms := c.served_ms;
  END IF;
  UPDATE clock SET served_ms = c.served_ms, renewed_at = moment, epoch = c.epoch, timeline = c.timeline,
    epoch_served_ms = c.epoch_served_ms;
  RETURN c;
END $$;

-- Marks a host as lost if it still is silent; true: this transaction gives its instances up.
CREATE FUNCTION mark_lost(host text, lost_after_ms bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  c clock := tick(clock_timestamp());
BEGIN
  UPDATE leases l SET lost_at = clock_timestamp() FROM host_states s
    WHERE l.host_id = host AND s.id = host AND s.lost_at IS NULL AND s.silent_ms > greatest(lost_after_ms, c.lost_ms_min);
  RETURN FOUND;
END $$;

-- Adds a host that signs in as this role. Within a numbered transaction.
CREATE FUNCTION join_host(host text, host_name text, joined bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
  INSERT INTO hosts (id, name, database_role, joined_ms) VALUES (host, host_name, session_user, joined)
$$;

-- Removes lines of changes that are older than so many seconds; hosts that copied less take a snapshot.
CREATE FUNCTION trim_changes(keep_s bigint, row_count_max integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  removed integer;
  last bigint;
BEGIN
  -- Whole versions only, from the oldest on.
  SELECT max(old.version) INTO last FROM (
    SELECT version, at FROM changes ORDER BY version, ordinal LIMIT row_count_max
  ) old WHERE old.at < clock_timestamp() - make_interval(secs => keep_s);
  IF last IS NULL THEN RETURN 0; END IF;
  UPDATE trimmed SET version = last WHERE version < last;
  DELETE FROM changes WHERE version <= last;
  GET DIAGNOSTICS removed = ROW_COUNT;
  RETURN removed;
END $$;

-- Nothing of the schema is for everybody; each host's role is given what it needs (fleet/rights.ts).
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA strongroom FROM PUBLIC;
`,
}
