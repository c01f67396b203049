// Schema 10: restricts each host's role to rows of that host, and records its actions that affect the whole fleet.
// Pure.
//
// Triggers apply to every statement of a role, and to functions too: no client is trusted to check. The role that owns
// the schema is the operator's own, and is unrestricted.

import type { FleetMigration } from './migration.ts'

/** The time since a row was written, at most `step_ms_max`. */
const stepOf = (row: 'c' | 'l', moment: string) =>
  `greatest(0, least(c.step_ms_max, (extract(epoch FROM ${moment} - ${row}.renewed_at) * 1000)::bigint))`
/** The clock of silence at a moment; `c` is the row of clock. */
const servedAt = (moment: string) =>
  `greatest(c.served_ms + ${stepOf('c', moment)}, (SELECT max(l.served_ms + ${stepOf('l', moment)})
      FROM leases l WHERE l.epoch = c.epoch AND l.renewed_at > c.renewed_at))`

export const ownRows: FleetMigration = {
  to: 10,
  release: 1,
  name: 'own-rows',
  sql: `
CREATE INDEX hosts_database_role ON hosts (database_role);

CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- For functions that run with the owner's rights: whether the session is the owner's own.
CREATE FUNCTION is_owner() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT pg_has_role(session_user, current_user, 'MEMBER')
$$;

-- Whether a statement's own role is another one than the schema's owner: triggers ask before they
-- take the owner's rights. What the owner's functions and foreign keys write follows from a row that was
-- judged; what a role's own triggers and functions write does not, however deep they are.
CREATE FUNCTION is_judged() RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
  SELECT NOT pg_has_role(current_user, n.nspowner, 'MEMBER') FROM pg_catalog.pg_namespace n WHERE n.nspname = 'strongroom'
$$;

-- Whether the session's role is the one that a host is bound to.
CREATE FUNCTION is_own(host text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM hosts h WHERE h.id = host AND h.database_role = session_user)
$$;

-- The fleet does not have the host, or it was silent for so long that it was given up.
CREATE FUNCTION is_away(host text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (SELECT 1 FROM hosts h LEFT JOIN leases l ON l.host_id = h.id
    WHERE h.id = host AND l.lost_at IS NULL)
$$;

CREATE FUNCTION takes_instances(host text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT NOT is_away(host) AND EXISTS (SELECT 1 FROM hosts h WHERE h.id = host AND h.draining_ms IS NULL)
$$;

CREATE FUNCTION refuse(what text, thing text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'this host may not %: %', what, thing USING ERRCODE = '42501';
END $$;

-- What hosts did that concerns all of them, with the host whose role did it. Nothing changes a line.
CREATE TABLE host_actions (
  seq             bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  at_ms           bigint NOT NULL,
  -- Null: the role that owns the schema.
  host_id         text,
  host_name       text,
  database_role   text   NOT NULL,
  action          text   NOT NULL,
  -- Such as the prefix of a key.
  subject         text   NOT NULL,
  organization_id text,
  detail          jsonb  NOT NULL
);

CREATE FUNCTION note_action(action text, subject text, organization text, detail jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO host_actions (at_ms, host_id, host_name, database_role, action, subject, organization_id, detail)
    SELECT now_ms(), h.id, h.name, session_user, note_action.action, note_action.subject, organization,
      coalesce(note_action.detail, '{}')
    FROM (SELECT) one LEFT JOIN hosts h ON h.database_role = session_user AND NOT is_owner() LIMIT 1;
  -- Lines are kept for 400 days.
  DELETE FROM host_actions WHERE seq IN (
    SELECT a.seq FROM (SELECT seq, at_ms FROM host_actions ORDER BY seq LIMIT 4) a
    WHERE a.at_ms < now_ms() - 400 * 86400000::bigint);
END $$;

-- The columns of a row that became others, with their new values.
CREATE FUNCTION changed_columns(old_row jsonb, new_row jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(jsonb_object_agg(n.key, n.value), '{}') FROM jsonb_each(new_row) n
    WHERE n.value IS DISTINCT FROM old_row -> n.key
$$;

-- A host's role begins changes while it is the role of a host.
CREATE OR REPLACE FUNCTION begin_change(wakes boolean, OUT version bigint, OUT xid xid8, OUT timeline bigint, OUT began text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF NOT is_owner() AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.database_role = session_user) THEN
    PERFORM refuse('change the directory as a role of no host', session_user::text);
  END IF;
  UPDATE fleet SET version = fleet.version + 1 RETURNING fleet.version INTO begin_change.version;
  PERFORM set_config('strongroom.version', begin_change.version::text, true);
  IF wakes THEN PERFORM pg_notify('strongroom', begin_change.version::text); END IF;
  xid := pg_current_xact_id();
  timeline := timeline();
  began := now()::text;
END $$;

-- The version is that of the counter which this transaction holds: a session can set what it likes.
CREATE OR REPLACE FUNCTION record_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  number bigint := (SELECT f.version FROM fleet f WHERE f.one AND f.xmin = pg_current_xact_id()::xid);
  old_row jsonb;
  new_row jsonb;
  old_key jsonb := '{}';
  new_key jsonb := '{}';
BEGIN
  IF number IS NULL THEN
    RAISE EXCEPTION 'rows of % change only after SELECT strongroom.begin_change(true) in the same transaction', TG_TABLE_NAME;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    old_row := to_jsonb(OLD);
    FOR i IN 0 .. TG_NARGS - 1 LOOP
      old_key := old_key || jsonb_build_object(TG_ARGV[i], old_row -> TG_ARGV[i]);
    END LOOP;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    new_row := to_jsonb(NEW);
    IF old_row = new_row THEN RETURN NULL; END IF;
    FOR i IN 0 .. TG_NARGS - 1 LOOP
      new_key := new_key || jsonb_build_object(TG_ARGV[i], new_row -> TG_ARGV[i]);
    END LOOP;
  END IF;
  IF old_row IS NOT NULL AND (new_row IS NULL OR old_key <> new_key) THEN
    INSERT INTO changes (version, table_name, row_key) VALUES (number, TG_TABLE_NAME, old_key);
  END IF;
  IF new_row IS NOT NULL THEN
    INSERT INTO changes (version, table_name, row_key, row) VALUES (number, TG_TABLE_NAME, new_key, new_row);
  END IF;
  RETURN NULL;
END $$;

-- A host's own setting: no other host gives it up sooner.
ALTER TABLE leases ADD COLUMN lost_after_ms bigint NOT NULL DEFAULT 0;

-- A renewal writes the row of its own host, and the clock of silence unless another transaction
-- holds that row: then the clock goes on in the rows of the hosts that renew meanwhile. So no host can
-- keep the renewals of another one waiting, or have the clock go on without them.
CREATE OR REPLACE VIEW host_states AS
  SELECT h.id, h.name, h.database_role, h.joined_ms, h.draining_ms, l.platform, coalesce(l.places, 0) AS places,
    l.report, l.renewed_at, l.lost_at,
    CASE WHEN l.host_id IS NOT NULL THEN greatest(0, c.now_ms - greatest(l.served_ms, c.epoch_served_ms)) END AS silent_ms,
    coalesce(l.lost_at IS NULL AND l.epoch = c.epoch AND c.is_current AND c.now_ms - l.served_ms < c.lease_ms, false)
      AS has_lease
  FROM hosts h LEFT JOIN leases l ON l.host_id = h.id CROSS JOIN (
    SELECT c.epoch, c.epoch_served_ms, c.lease_ms, c.timeline = timeline() AS is_current,
      CASE WHEN c.timeline <> timeline() THEN c.served_ms ELSE ${servedAt('clock_timestamp()')} END AS now_ms
    FROM clock c OFFSET 0
  ) c;

CREATE OR REPLACE FUNCTION served_now() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN c.timeline <> timeline() THEN c.served_ms ELSE ${servedAt('clock_timestamp()')} END FROM clock c
$$;

-- Lets the clock of silence go on.
CREATE OR REPLACE FUNCTION tick(moment timestamptz) RETURNS clock LANGUAGE plpgsql AS $$
DECLARE
  c clock;
  line bigint := timeline();
  is_held boolean;
BEGIN
  SELECT * INTO c FROM clock FOR UPDATE SKIP LOCKED;
  is_held := FOUND;
  IF NOT is_held THEN SELECT * INTO c FROM clock; END IF;
  IF c.timeline = line THEN
    c.served_ms := ${servedAt('moment')};
  ELSE
    -- Another server with another clock: every lease is void, and no silence is older than this.
    c.epoch_served_ms := greatest(c.served_ms, (SELECT max(l.served_ms) FROM leases l));
    c.timeline := line;
    c.epoch := c.epoch + 1;
    c.renewed_at := moment;
    c.served_ms := greatest(c.epoch_served_ms, (SELECT max(l.served_ms + ${stepOf('l', 'moment')})
      FROM leases l WHERE l.epoch = c.epoch));
  END IF;
  c.renewed_at := moment;
  IF is_held THEN
    UPDATE clock SET served_ms = c.served_ms, renewed_at = moment, epoch = c.epoch, timeline = c.timeline,
      epoch_served_ms = c.epoch_served_ms;
  END IF;
  RETURN c;
END $$;

CREATE OR REPLACE FUNCTION renew_lease(host text, lost_after_ms bigint, platform text, places integer, report jsonb,
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
  INSERT INTO leases AS l (host_id, epoch, renewed_at, served_ms, platform, places, report, lost_after_ms)
    VALUES (host, c.epoch, moment, c.served_ms, renew_lease.platform, renew_lease.places, renew_lease.report,
      least(renew_lease.lost_after_ms, 86400000))
    ON CONFLICT (host_id) DO UPDATE SET epoch = excluded.epoch, renewed_at = excluded.renewed_at,
      served_ms = excluded.served_ms, lost_at = NULL, platform = excluded.platform, places = excluded.places,
      report = excluded.report, lost_after_ms = excluded.lost_after_ms;
  silent := ARRAY(SELECT s.id FROM host_states s JOIN leases l ON l.host_id = s.id WHERE s.lost_at IS NULL
    AND s.silent_ms > greatest(renew_lease.lost_after_ms, l.lost_after_ms, c.lost_ms_min) ORDER BY s.id LIMIT 16);
END $$;

-- Whether a host has been silent for so long that it may be given up: by the setting of the host that
-- asks and by its own, whichever is longer.
CREATE FUNCTION is_silent(host text, lost_after_ms bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (SELECT 1 FROM host_states s JOIN leases l ON l.host_id = s.id CROSS JOIN clock c
    WHERE s.id = host AND s.lost_at IS NULL
      AND s.silent_ms > greatest(is_silent.lost_after_ms, l.lost_after_ms, c.lost_ms_min))
$$;

-- The host's row is locked after it was found silent alone: a host that renews never waits for this.
CREATE OR REPLACE FUNCTION mark_lost(host text, lost_after_ms bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF NOT is_owner() AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.database_role = session_user) THEN
    PERFORM refuse('give a host up as a role of no host', host);
  END IF;
  PERFORM tick(clock_timestamp());
  IF NOT is_silent(host, lost_after_ms) THEN RETURN false; END IF;
  PERFORM FROM leases l WHERE l.host_id = host FOR UPDATE;
  IF NOT is_silent(host, lost_after_ms) THEN RETURN false; END IF;
  UPDATE leases l SET lost_at = clock_timestamp() WHERE l.host_id = host;
  PERFORM note_action('host.lost', (SELECT name FROM hosts WHERE id = host), NULL, '{}');
  RETURN true;
END $$;

-- Hosts come, go and get another role by the owner's hand alone: no other role is given these two.
DROP FUNCTION join_host(text, text, bigint);
CREATE FUNCTION join_host(host text, host_name text, host_role text, joined bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  PERFORM refuse_shared_role(host, host_role);
  INSERT INTO hosts (id, name, database_role, joined_ms) VALUES (host, host_name, host_role, joined);
END $$;

-- The host signs in as that role from now on, and the next key that it publishes is its own for good.
CREATE FUNCTION rebind_host(host text, host_role text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  PERFORM refuse_shared_role(host, host_role);
  UPDATE hosts SET database_role = host_role WHERE id = host AND database_role <> host_role;
  DELETE FROM peers WHERE host_id = host;
  PERFORM note_action('host.rebound', (SELECT name FROM hosts WHERE id = host), NULL, jsonb_build_object('role', host_role));
END $$;

-- Two hosts that sign in as one role would be one host. The owner's role is every host anyway.
CREATE FUNCTION refuse_shared_role(host text, host_role text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  other text := (SELECT name FROM hosts WHERE database_role = host_role AND id <> host ORDER BY name LIMIT 1);
BEGIN
  IF other IS NOT NULL AND NOT pg_has_role(host_role, current_user, 'MEMBER') THEN
    RAISE EXCEPTION 'the host % signs in as the role % already', other, host_role USING ERRCODE = '23505';
  END IF;
END $$;

CREATE FUNCTION set_draining(named text, since bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  UPDATE hosts SET draining_ms = CASE WHEN since IS NOT NULL THEN coalesce(draining_ms, since) END WHERE name = named;
  RETURN FOUND;
END $$;

CREATE FUNCTION note_host() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM note_action('host.joined', NEW.name, NULL, jsonb_build_object('id', NEW.id, 'role', NEW.database_role));
  ELSIF TG_OP = 'DELETE' THEN
    PERFORM note_action('host.removed', OLD.name, NULL, jsonb_build_object('id', OLD.id));
  ELSIF NEW.draining_ms IS DISTINCT FROM OLD.draining_ms THEN
    PERFORM note_action(CASE WHEN NEW.draining_ms IS NULL THEN 'host.undrained' ELSE 'host.drained' END, NEW.name, NULL, '{}');
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER note_host AFTER INSERT OR UPDATE OR DELETE ON hosts FOR EACH ROW EXECUTE FUNCTION note_host();

-- DER (X.690, 8.1): where the content of the element at a place begins, and where the element ends.
CREATE FUNCTION der_content(der bytea, at integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN get_byte(der, at + 1) < 128 THEN at + 2 ELSE at + 2 + get_byte(der, at + 1) - 128 END
$$;
CREATE FUNCTION der_end(der bytea, at integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  first integer := get_byte(der, at + 1);
  size integer := 0;
BEGIN
  IF first < 128 THEN RETURN at + 2 + first; END IF;
  IF first NOT IN (129, 130) THEN RAISE EXCEPTION 'a length that no certificate of a host has'; END IF;
  FOR i IN 1 .. first - 128 LOOP size := size * 256 + get_byte(der, at + 1 + i); END LOOP;
  RETURN at + 2 + first - 128 + size;
END $$;

-- SHA-256 of the public key (SubjectPublicKeyInfo) of a certificate: of one alone, and nothing beside
-- it (RFC 5280, 4.1). Fails on any other text.
CREATE FUNCTION key_of(certificate text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  pem text := substring(certificate FROM '^-----BEGIN CERTIFICATE-----\\n([A-Za-z0-9+/=\\n]+)-----END CERTIFICATE-----\\n?$');
  der bytea;
  at integer;
BEGIN
  IF pem IS NULL THEN RAISE EXCEPTION 'not one certificate in PEM'; END IF;
  der := decode(replace(pem, E'\\n', ''), 'base64');
  IF der_end(der, 0) <> length(der) THEN RAISE EXCEPTION 'bytes after the certificate'; END IF;
  at := der_content(der, der_content(der, 0));
  -- A version that is given.
  IF get_byte(der, at) = 160 THEN at := der_end(der, at); END IF;
  -- Serial number, algorithm, issuer, validity, subject.
  FOR i IN 1 .. 5 LOOP at := der_end(der, at); END LOOP;
  IF get_byte(der, at) <> 48 OR der_end(der, at) > length(der) THEN RAISE EXCEPTION 'no public key there'; END IF;
  RETURN encode(sha256(substring(der FROM at + 1 FOR der_end(der, at) - at)), 'hex');
END $$;

-- Of the key that the host is bound to since it first published one.
ALTER TABLE peers ADD COLUMN key_sha256 text;
UPDATE peers SET key_sha256 = key_of(certificate);
ALTER TABLE peers ALTER COLUMN key_sha256 SET NOT NULL;

CREATE OR REPLACE FUNCTION publish_peer(host text, peer_address text, peer_certificate text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  bound text;
  given text;
BEGIN
  -- Held until the end of the transaction, so that it is not removed meanwhile.
  PERFORM FROM hosts h WHERE h.id = host AND h.database_role = session_user FOR KEY SHARE;
  IF NOT FOUND THEN RETURN false; END IF;
  given := key_of(peer_certificate);
  INSERT INTO peers (host_id, address, certificate, key_sha256) VALUES (host, peer_address, peer_certificate, given)
    ON CONFLICT (host_id) DO NOTHING;
  IF FOUND THEN
    PERFORM note_action('host.bound', (SELECT name FROM hosts WHERE id = host), NULL, jsonb_build_object('peer_key', given));
    RETURN true;
  END IF;
  SELECT key_sha256 INTO bound FROM peers WHERE host_id = host FOR UPDATE;
  IF bound <> given THEN PERFORM refuse('answer others by another key than the one it is bound to', bound); END IF;
  UPDATE peers SET address = peer_address, certificate = peer_certificate WHERE host_id = host;
  RETURN true;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA strongroom FROM PUBLIC;
`,
}
