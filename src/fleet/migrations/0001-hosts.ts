// Schema 1: the counter of versions and what changed at each, the hosts, their leases, the clock of silence. Pure.

import type { FleetMigration } from './migration.ts'

export const hosts: FleetMigration = {
  to: 1,
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
CREATE FUNCTION begin_change(wakes boolean, OUT version bigint, OUT xid xid8, OUT timeline bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  UPDATE fleet SET version = fleet.version + 1 RETURNING fleet.version INTO begin_change.version;
  PERFORM set_config('strongroom.version', begin_change.version::text, true);
  IF wakes THEN PERFORM pg_notify('strongroom', begin_change.version::text); END IF;
  xid := pg_current_xact_id();
  timeline := timeline();
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
  id            uuid   PRIMARY KEY,
  name          text   NOT NULL UNIQUE,
  database_role text   NOT NULL,
  joined_ms     bigint NOT NULL,
  -- Takes no new instances since.
  draining_ms   bigint
);
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON hosts
  FOR EACH ROW EXECUTE FUNCTION record_change('id');

-- What each host says of itself, every two seconds; nobody copies it.
CREATE TABLE leases (
  host_id    uuid        PRIMARY KEY REFERENCES hosts ON DELETE CASCADE,
  -- By the database's clock, within the epoch.
  until      timestamptz NOT NULL,
  epoch      bigint      NOT NULL,
  renewed_at timestamptz NOT NULL,
  -- clock.served_ms at the last renewal.
  served_ms  bigint      NOT NULL,
  -- Its instances were given up at this renewal of the clock; null: they were not since it last came.
  lost_at    timestamptz,
  platform   text        NOT NULL,
  -- Instances that it has and can take besides, together.
  places     integer     NOT NULL CHECK (places >= 0),
  report     jsonb       NOT NULL
);

-- Time for which the database took renewals: only that counts as a host's silence.
CREATE TABLE clock (
  one        boolean     PRIMARY KEY DEFAULT true CHECK (one),
  served_ms  bigint      NOT NULL DEFAULT 0,
  renewed_at timestamptz NOT NULL DEFAULT now(),
  -- Counts up with each new timeline; leases of another epoch are void.
  epoch      bigint      NOT NULL DEFAULT 1,
  timeline   bigint      NOT NULL,
  -- served_ms when the epoch began: no silence is older.
  epoch_served_ms bigint NOT NULL DEFAULT 0
);
INSERT INTO clock (timeline) VALUES (timeline());
`,
}
