// Schema 22: samples of instances and keys, apart from the rows that all hosts copy. Pure.
//
// A sample has no row in `changes`: a host reads these tables for requests. Hosts of earlier schemas write samples
// into `instances`, `keys` and `gateway_keys`, as before, and read them there alone. The greater of two samples counts,
// so it does not matter where a sample was written. No foreign key refers to hosts: samples of a lost host remain.

import type { FleetMigration } from './migration.ts'

export const samples: FleetMigration = {
  to: 22,
  release: 1,
  name: 'samples',
  sql: `
-- Not later than now, but for what clocks differ: a later time would stay the last use of a key for ever.
CREATE FUNCTION is_sample_time(at_ms bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT at_ms BETWEEN 0 AND now_ms() + 300000
$$;

-- Egress since the start of an instance on a host.
CREATE TABLE instance_egress (
  instance_id    text   NOT NULL REFERENCES instances ON DELETE CASCADE,
  host_id        text   NOT NULL,
  bytes          bigint NOT NULL,
  observed_at_ms bigint NOT NULL,
  PRIMARY KEY (instance_id, host_id)
);

-- The last use of a key on a host.
CREATE TABLE key_uses (
  prefix  text   NOT NULL REFERENCES keys ON DELETE CASCADE,
  host_id text   NOT NULL,
  at_ms   bigint NOT NULL,
  PRIMARY KEY (prefix, host_id)
);

CREATE TABLE gateway_key_uses (
  prefix  text   NOT NULL REFERENCES gateway_keys ON DELETE CASCADE,
  host_id text   NOT NULL,
  at_ms   bigint NOT NULL,
  PRIMARY KEY (prefix, host_id)
);

-- Writes samples of a host, the only way into these tables. Skips instances of other hosts, what the directory does not
-- have, and values that no host samples: a host reports the last use that its copy has, which another one may have
-- written. A report that is repeated, late, or of a host that was restored from an older copy lowers nothing.
CREATE FUNCTION report_samples(host text, egress jsonb, uses jsonb, gateway_uses jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF NOT is_own(host) THEN PERFORM refuse('report samples of another host', host); END IF;
  INSERT INTO instance_egress AS e
    SELECT DISTINCT ON (s.id) s.id, host, s.bytes, s.at_ms
    FROM jsonb_to_recordset(egress) AS s (id text, bytes bigint, at_ms bigint)
    JOIN instances i ON i.id = s.id AND i.host_id = host
    WHERE s.bytes BETWEEN 0 AND 9007199254740991 AND is_sample_time(s.at_ms) ORDER BY s.id
    ON CONFLICT (instance_id, host_id) DO UPDATE
      SET bytes = greatest(e.bytes, excluded.bytes), observed_at_ms = excluded.observed_at_ms;
  INSERT INTO key_uses AS u
    SELECT DISTINCT ON (s.prefix) s.prefix, host, s.at_ms
    FROM jsonb_to_recordset(uses) AS s (prefix text, at_ms bigint) JOIN keys k ON k.prefix = s.prefix
    WHERE is_sample_time(s.at_ms) ORDER BY s.prefix
    ON CONFLICT (prefix, host_id) DO UPDATE SET at_ms = excluded.at_ms WHERE excluded.at_ms > u.at_ms;
  INSERT INTO gateway_key_uses AS u
    SELECT DISTINCT ON (s.prefix) s.prefix, host, s.at_ms
    FROM jsonb_to_recordset(gateway_uses) AS s (prefix text, at_ms bigint) JOIN gateway_keys k ON k.prefix = s.prefix
    WHERE is_sample_time(s.at_ms) ORDER BY s.prefix
    ON CONFLICT (prefix, host_id) DO UPDATE SET at_ms = excluded.at_ms WHERE excluded.at_ms > u.at_ms;
END $$;

REVOKE ALL ON FUNCTION report_samples(text, jsonb, jsonb, jsonb), is_sample_time(bigint) FROM PUBLIC;
`,
}
