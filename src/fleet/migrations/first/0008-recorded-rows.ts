// Schema 8: the trigger that records changes builds a row's key without a query. It runs for each row, while all other
// hosts wait. Pure.

import type { FleetMigration } from '../migration.ts'

export const recordedRows: FleetMigration = {
  to: 8,
  release: 1,
  name: 'recorded-rows',
  sql: `
CREATE OR REPLACE FUNCTION record_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  number text := current_setting('strongroom.version', true);
  old_row jsonb;
  new_row jsonb;
  old_key jsonb := '{}';
  new_key jsonb := '{}';
BEGIN
  IF coalesce(number, '') = '' THEN
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
    INSERT INTO changes (version, table_name, row_key) VALUES (number::bigint, TG_TABLE_NAME, old_key);
  END IF;
  IF new_row IS NOT NULL THEN
    INSERT INTO changes (version, table_name, row_key, row) VALUES (number::bigint, TG_TABLE_NAME, new_key, new_row);
  END IF;
  RETURN NULL;
END $$;
`,
}
