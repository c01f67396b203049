// Schema 23: sums of usage, apart from the changes that all hosts copy. Pure.
//
// A sum that was reported without a numbered transaction has no row in `changes`. Each sum has the number of the
// transaction that reported it, and a host reads the sums of transactions that its last reading did not see. A removed
// sum is a change, as before. Hosts of earlier schemas report in numbered transactions, for all to read as before; they
// read what later hosts report with a full copy only.
//
// A sample's time no longer decides whether the sample is taken: while the database's clock was more than five minutes
// behind, no egress was recorded. Nor does a clock that is set back keep a stuck change.

import type { FleetMigration } from './migration.ts'

export const sums: FleetMigration = {
  to: 23,
  release: 1,
  name: 'sums',
  sql: `
-- A sum without a report since this step has number 0, which every snapshot sees.
CREATE FUNCTION number_sum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.reported := pg_current_xact_id();
  RETURN NEW;
END $$;

DO $$
DECLARE
  sums text;
BEGIN
  FOREACH sums IN ARRAY ARRAY['usage_months', 'usage_days'] LOOP
    EXECUTE format('ALTER TABLE %I ADD COLUMN reported xid8 NOT NULL DEFAULT ''0''', sums);
    EXECUTE format('CREATE TRIGGER number_insert BEFORE INSERT ON %I FOR EACH ROW EXECUTE FUNCTION number_sum()', sums);
    EXECUTE format('CREATE TRIGGER number_update BEFORE UPDATE ON %I FOR EACH ROW
      WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION number_sum()', sums);
  END LOOP;
END $$;

-- No other number is exact on a host, whose database refuses the greatest ones: one row would stop every reader.
ALTER TABLE usage_months ADD CONSTRAINT amounts CHECK (least(requests, prompt_tokens, completion_tokens, cost_nano_usd) >= 0
  AND greatest(requests, prompt_tokens, completion_tokens, cost_nano_usd) <= 9007199254740991) NOT VALID;
ALTER TABLE usage_days ADD CONSTRAINT amounts CHECK (
  least(requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd) >= 0
  AND greatest(requests, prompt_tokens, completion_tokens, cost_nano_usd, late_cost_nano_usd) <= 9007199254740991) NOT VALID;

-- A host reads in this order: one transaction may have written more rows than it reads at once.
CREATE INDEX usage_months_reported ON usage_months (reported, organization_id, month, key_prefix, host_id);
CREATE INDEX usage_days_reported ON usage_days (reported, organization_id, key_prefix, day, model, host_id);

-- Hosts of earlier schemas report sums in numbered transactions and read them from the changes.
DO $$
BEGIN
  EXECUTE replace(pg_get_functiondef('record_change'::regproc), 'IF number IS NULL THEN',
    'IF number IS NULL AND TG_OP <> ''DELETE'' AND TG_TABLE_NAME IN (''usage_months'', ''usage_days'') THEN RETURN NULL; END IF;
  IF number IS NULL THEN');
END $$;

-- A time of a sample within what the directory's clock allows: a later last use of a key would stay for ever. Samples
-- are taken even where this clock is wrong, because a host reports each one once.
CREATE OR REPLACE FUNCTION sample_time(at_ms bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT greatest(0, least(at_ms, now_ms() + 300000))
$$;

CREATE OR REPLACE FUNCTION report_samples(host text, egress jsonb, uses jsonb, gateway_uses jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF NOT is_own(host) THEN PERFORM refuse('report samples of another host', host); END IF;
  INSERT INTO instance_egress AS e
    SELECT DISTINCT ON (s.id) s.id, host, s.bytes, sample_time(s.at_ms)
    FROM jsonb_to_recordset(egress) AS s (id text, bytes bigint, at_ms bigint)
    JOIN instances i ON i.id = s.id AND i.host_id = host
    WHERE s.bytes BETWEEN 0 AND 9007199254740991 ORDER BY s.id
    ON CONFLICT (instance_id, host_id) DO UPDATE
      SET bytes = greatest(e.bytes, excluded.bytes), observed_at_ms = excluded.observed_at_ms;
  INSERT INTO key_uses AS u
    SELECT DISTINCT ON (s.prefix) s.prefix, host, sample_time(s.at_ms)
    FROM jsonb_to_recordset(uses) AS s (prefix text, at_ms bigint) JOIN keys k ON k.prefix = s.prefix
    ORDER BY s.prefix
    ON CONFLICT (prefix, host_id) DO UPDATE SET at_ms = excluded.at_ms WHERE excluded.at_ms > u.at_ms;
  INSERT INTO gateway_key_uses AS u
    SELECT DISTINCT ON (s.prefix) s.prefix, host, sample_time(s.at_ms)
    FROM jsonb_to_recordset(gateway_uses) AS s (prefix text, at_ms bigint) JOIN gateway_keys k ON k.prefix = s.prefix
    ORDER BY s.prefix
    ON CONFLICT (prefix, host_id) DO UPDATE SET at_ms = excluded.at_ms WHERE excluded.at_ms > u.at_ms;
END $$;
DROP FUNCTION IF EXISTS is_sample_time(bigint);

-- A change that began after now was there before the server's clock was set back.
DO $$
BEGIN
  EXECUTE replace(pg_get_functiondef('end_stuck_changes'::regproc),
    'a.xact_start < clock_timestamp() - interval ''10 seconds''',
    'a.xact_start NOT BETWEEN clock_timestamp() - interval ''10 seconds'' AND clock_timestamp() + interval ''10 seconds''');
END $$;

REVOKE ALL ON FUNCTION number_sum(), sample_time(bigint) FROM PUBLIC;
`,
}
