// Schema 23: sums of usage, apart from the changes that all hosts copy. Pure.
//
// A sum that was reported without a numbered transaction has no row in `changes`. Each sum has the number of the
// transaction that reported it, and a host reads the sums of transactions that its last reading did not see. A removed
// sum is a change, as before. Hosts of earlier schemas report in numbered transactions, for all to read as before; they
// read what later hosts report with a full copy only.

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

REVOKE ALL ON FUNCTION number_sum() FROM PUBLIC;
`,
}
