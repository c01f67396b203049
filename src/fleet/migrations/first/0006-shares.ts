// Schema 6: the share of its gateway keys' rate limits that each gateway leases. Pure.

import type { FleetMigration } from '../migration.ts'

export const shares: FleetMigration = {
  to: 6,
  release: 1,
  name: 'shares',
  sql: `
-- Gateways that have shares. A host has another one after each start, and two while one replaces the other.
CREATE TABLE share_members (
  host_id   text   NOT NULL,
  member    text   NOT NULL,
  -- Of its last question; an older one that comes late changes nothing.
  turn      bigint NOT NULL,
  -- served_now() at that question.
  served_ms bigint NOT NULL,
  -- It admits nothing later than so long after it asked. 0: it has ended.
  good_ms   bigint NOT NULL,
  PRIMARY KEY (host_id, member)
) WITH (fillfactor = 50);

-- One row for each key and gateway. Arrays: requests in a minute, tokens in a minute, requests at once. The sum over a
-- key's rows of greatest(share, held) grows no further than the key's limit.
CREATE TABLE shares (
  key_prefix text     NOT NULL,
  host_id    text     NOT NULL,
  member     text     NOT NULL,
  share      bigint[] NOT NULL,
  held       bigint[] NOT NULL,
  wanted     bigint[] NOT NULL,
  needed     bigint[] NOT NULL,
  frees_ms   bigint[] NOT NULL,
  waiting_ms bigint   NOT NULL,
  PRIMARY KEY (key_prefix, host_id, member),
  FOREIGN KEY (host_id, member) REFERENCES share_members ON DELETE CASCADE
) WITH (fillfactor = 50);
CREATE INDEX shares_member ON shares (host_id, member);

-- The clock of silence now: never faster than time.
CREATE FUNCTION served_now() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT served_ms + CASE WHEN timeline <> timeline() THEN 0
    ELSE greatest(0, least(step_ms_max, (extract(epoch FROM clock_timestamp() - renewed_at) * 1000)::bigint)) END
  FROM clock
$$;

-- Time after which what a gateway took last is out of every minute: a window of 61 s, and some for a clock that jumps.
CREATE FUNCTION share_rest_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 66000::bigint $$;

CREATE FUNCTION grown_share(bound bigint, others numeric, share bigint, target bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(share, least(target, bound - coalesce(others, 0)))::bigint
$$;

-- Notes what a gateway has and holds, and gives it more where that is free. A gateway lowers its share before it asks,
-- and raises it after the answer, so that what is in force never exceeds what stands here. Each of asked: k key prefix,
-- l limits, s share, h held, t target, w wanted, m needed, f frees_ms, a waiting_ms. Returns its rows and those of
-- others for the same keys; nothing where the turn is over.
CREATE FUNCTION renew_shares(host text, who text, turn_number bigint, good bigint, asked jsonb)
RETURNS TABLE (key_prefix text, id text, is_own boolean, share bigint[], held bigint[], wanted bigint[], needed bigint[],
  frees_ms bigint[], waiting_ms bigint, silent_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
#variable_conflict use_column
DECLARE
  now_ms bigint := served_now();
BEGIN
  PERFORM 1 FROM hosts h WHERE h.id = host AND h.database_role = session_user;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this host is no member of the fleet, or signs in as another role' USING ERRCODE = '42501';
  END IF;
  INSERT INTO share_members AS m (host_id, member, turn, served_ms, good_ms) VALUES (host, who, turn_number, now_ms, good)
    ON CONFLICT (host_id, member) DO UPDATE SET turn = excluded.turn, good_ms = excluded.good_ms,
      served_ms = greatest(m.served_ms, excluded.served_ms)
    WHERE m.turn < excluded.turn;
  IF NOT FOUND THEN RETURN; END IF;
  -- One lock for each key, in one order for everybody.
  PERFORM pg_advisory_xact_lock(1936220530, k.lock) FROM (
    SELECT DISTINCT hashtext(r ->> 'k') AS lock FROM jsonb_array_elements(asked) AS r ORDER BY 1
  ) k;
  INSERT INTO shares AS s (key_prefix, host_id, member, share, held, wanted, needed, frees_ms, waiting_ms)
    SELECT r.k, host, who, ARRAY[
        grown_share(r.l[1], o.requests, r.s[1], r.t[1]),
        grown_share(r.l[2], o.tokens, r.s[2], r.t[2]),
        grown_share(r.l[3], o.slots, r.s[3], r.t[3])
      ], r.h, r.w, r.m, r.f, r.a
    FROM jsonb_to_recordset(asked) AS r (k text, l bigint[], s bigint[], h bigint[], t bigint[], w bigint[], m bigint[],
      f bigint[], a bigint)
    CROSS JOIN LATERAL (
      SELECT sum(greatest(x.share[1], x.held[1])) AS requests, sum(greatest(x.share[2], x.held[2])) AS tokens,
        sum(greatest(x.share[3], x.held[3])) AS slots
      FROM shares x JOIN share_members m ON m.host_id = x.host_id AND m.member = x.member
      WHERE x.key_prefix = r.k AND (x.host_id, x.member) <> (host, who)
        AND now_ms - m.served_ms < m.good_ms + share_rest_ms()
    ) o
    ON CONFLICT (key_prefix, host_id, member) DO UPDATE SET share = excluded.share, held = excluded.held,
      wanted = excluded.wanted, needed = excluded.needed, frees_ms = excluded.frees_ms, waiting_ms = excluded.waiting_ms;
  RETURN QUERY SELECT s.key_prefix, s.host_id || ' ' || s.member, (s.host_id, s.member) = (host, who), s.share, s.held,
      s.wanted, s.needed, s.frees_ms, s.waiting_ms, now_ms - m.served_ms
    FROM jsonb_array_elements(asked) AS r JOIN shares s ON s.key_prefix = r ->> 'k'
    JOIN share_members m ON m.host_id = s.host_id AND m.member = s.member
    WHERE now_ms - m.served_ms < m.good_ms + share_rest_ms();
  -- What it has given back whole.
  DELETE FROM shares s USING jsonb_array_elements(asked) AS r WHERE s.key_prefix = r ->> 'k' AND s.host_id = host
    AND s.member = who AND s.share = '{0,0,0}' AND s.held = '{0,0,0}' AND s.wanted = '{0,0,0}';
  -- Gateways that have been silent for so long that nothing of theirs counts.
  DELETE FROM share_members m WHERE (m.host_id, m.member) IN (
    SELECT o.host_id, o.member FROM share_members o WHERE now_ms - o.served_ms >= o.good_ms + share_rest_ms()
    ORDER BY 1, 2 LIMIT 16 FOR UPDATE SKIP LOCKED
  );
END $$;

-- A gateway of the host has ended, or all of them (ended is null) but one: what they took counts until it is out of
-- every minute.
CREATE FUNCTION end_shares(host text, ended text, other_than text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  UPDATE share_members m SET good_ms = 0, served_ms = served_now()
    FROM hosts h WHERE h.id = host AND h.database_role = session_user
      AND m.host_id = host AND (ended IS NULL OR m.member = ended) AND m.member <> other_than AND m.good_ms > 0;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA strongroom FROM PUBLIC;
`,
}
