// Schema 19: sums of usage by start of a host's daemon. Pure.
//
// Sums merge by the greater value, which is right only for a sum that one process increments: a host that was restored
// from an older copy would count up to its former sum again. In `usage_months` and `usage_days` the column `host_id` is
// the host, followed by a slash and the generation if its release has generations. Stored sums need no change: they are
// the generation without a number.

import type { FleetMigration } from './migration.ts'

export const usageGenerations: FleetMigration = {
  to: 19,
  release: 1,
  name: 'usage-generations',
  sql: `
-- Sums of a budget in a month by host.
CREATE FUNCTION used_by_hosts(organization text, key text, for_month text)
RETURNS TABLE (host_id text, nano_usd bigint, tokens bigint) LANGUAGE sql STABLE AS $$
  SELECT split_part(u.host_id, '/', 1), least(sum(u.cost_nano_usd), 9007199254740991)::bigint,
    least(sum(u.prompt_tokens + u.completion_tokens), 9007199254740991)::bigint
  FROM usage_months u WHERE u.organization_id = organization AND u.key_prefix = key AND u.month = for_month GROUP BY 1
$$;

CREATE OR REPLACE FUNCTION open_allowances(organization text, key text, for_month text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  before text := month_beside(for_month, -1);
BEGIN
  IF EXISTS (SELECT 1 FROM allowances a
    WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = for_month) THEN RETURN; END IF;
  DELETE FROM allowances a WHERE a.organization_id = organization AND a.key_prefix = key
    AND a.month < least(before, to_char(now() - interval '2 months', 'YYYY-MM'));
  INSERT INTO allowances
    SELECT organization, key, for_month, h.id,
      greatest(coalesce(now_used.nano_usd, 0), coalesce(a.nano_usd - coalesce(was_used.nano_usd, 0), 0)),
      greatest(coalesce(now_used.tokens, 0), coalesce(a.tokens - coalesce(was_used.tokens, 0), 0))
    FROM (SELECT id FROM hosts UNION SELECT u.host_id FROM used_by_hosts(organization, key, for_month) u) h
    LEFT JOIN used_by_hosts(organization, key, for_month) now_used ON now_used.host_id = h.id
    LEFT JOIN allowances a ON a.organization_id = organization AND a.key_prefix = key
      AND a.month = before AND a.host_id = h.id AND EXISTS (SELECT 1 FROM hosts WHERE id = h.id)
    LEFT JOIN used_by_hosts(organization, key, before) was_used ON was_used.host_id = h.id;
END $$;

CREATE OR REPLACE FUNCTION taken_by_others(organization text, key text, for_month text, host text,
  OUT nano_usd bigint, OUT tokens bigint) LANGUAGE sql AS $$
  SELECT coalesce(sum(greatest(a.nano_usd, u.nano_usd)), 0)::bigint, coalesce(sum(greatest(a.tokens, u.tokens)), 0)::bigint
  FROM (SELECT * FROM allowances WHERE organization_id = organization AND key_prefix = key AND month = for_month) a
  FULL JOIN used_by_hosts(organization, key, for_month) u ON u.host_id = a.host_id
  WHERE coalesce(a.host_id, u.host_id) <> host
$$;

DO $$
DECLARE
  of_usage text := pg_get_functiondef('guard_usage'::regproc);
BEGIN
  of_usage := replace(of_usage, 'is_own(OLD.host_id)', 'is_own(split_part(OLD.host_id, ''/'', 1))');
  of_usage := replace(of_usage, 'is_own(NEW.host_id)', 
    '(is_own(split_part(NEW.host_id, ''/'', 1)) AND NEW.host_id ~ ''^[^/]*(/[0-9a-f]{16})?$'')');
  EXECUTE replace(of_usage, 'WHERE id = OLD.host_id', 'WHERE id = split_part(OLD.host_id, ''/'', 1)');
END $$;

REVOKE ALL ON FUNCTION used_by_hosts(text, text, text) FROM PUBLIC;
`,
}
