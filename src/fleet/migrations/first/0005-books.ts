// Schema 5: usage of gateway keys by host, and each host's leases of their budgets. Pure.

import type { FleetMigration } from '../migration.ts'

export const books: FleetMigration = {
  to: 5,
  release: 1,
  name: 'books',
  sql: `
-- Sums of each host's own books, as it counts them up. Names and meanings are those of a host's own database.
CREATE TABLE usage_months (
  organization_id   text   NOT NULL REFERENCES organizations,
  month             text   NOT NULL,
  key_prefix        text   NOT NULL,
  host_id           text   NOT NULL,
  requests          bigint NOT NULL,
  prompt_tokens     bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  cost_nano_usd     bigint NOT NULL,
  PRIMARY KEY (organization_id, month, key_prefix, host_id)
);

CREATE TABLE usage_days (
  organization_id    text   NOT NULL REFERENCES organizations,
  key_prefix         text   NOT NULL,
  day                text   NOT NULL,
  model              text   NOT NULL,
  host_id            text   NOT NULL,
  requests           bigint NOT NULL,
  prompt_tokens      bigint NOT NULL,
  completion_tokens  bigint NOT NULL,
  cost_nano_usd      bigint NOT NULL,
  late_cost_nano_usd bigint NOT NULL,
  PRIMARY KEY (organization_id, key_prefix, day, model, host_id)
);

CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON usage_months
  FOR EACH ROW EXECUTE FUNCTION record_change('organization_id', 'month', 'key_prefix', 'host_id');
CREATE TRIGGER record_change AFTER INSERT OR UPDATE OR DELETE ON usage_days
  FOR EACH ROW EXECUTE FUNCTION record_change('organization_id', 'key_prefix', 'day', 'model', 'host_id');

-- What a host may have spent and reserved of a key's budget in a month (UTC, as 2026-11), or of the organization's (an
-- empty key). The sum over hosts is within the budget, unless the budget was lowered since. Written by functions alone.
CREATE TABLE allowances (
  organization_id text   NOT NULL REFERENCES organizations ON DELETE CASCADE,
  key_prefix      text   NOT NULL,
  month           text   NOT NULL CHECK (month ~ '^[0-9]{4}-(0[1-9]|1[0-2])$'),
  host_id         text   NOT NULL,
  nano_usd        bigint NOT NULL CHECK (nano_usd >= 0),
  tokens          bigint NOT NULL CHECK (tokens >= 0),
  PRIMARY KEY (organization_id, key_prefix, month, host_id)
);

-- Hosts that have said what they were granted, since the server has this timeline: a new one may lack the newest grants.
CREATE TABLE allowance_entries (
  host_id  text   PRIMARY KEY,
  timeline bigint NOT NULL
);

CREATE FUNCTION month_beside(month text, months integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT to_char(to_date(month || '-01', 'YYYY-MM-DD') + make_interval(months => months), 'YYYY-MM')
$$;

-- Makes the rows of a scope's month: for each host what it has spent in it already, or what requests that it began in
-- the month before may still cost, if that is more. Hosts that the fleet does not have any more began nothing since.
CREATE FUNCTION open_allowances(organization text, key text, for_month text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  before text := month_beside(for_month, -1);
BEGIN
  IF EXISTS (SELECT 1 FROM allowances a
    WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = for_month) THEN RETURN; END IF;
  DELETE FROM allowances a WHERE a.organization_id = organization AND a.key_prefix = key
    AND a.month < least(before, to_char(now() - interval '2 months', 'YYYY-MM'));
  INSERT INTO allowances
    SELECT organization, key, for_month, h.id,
      greatest(coalesce(now_used.cost_nano_usd, 0), coalesce(a.nano_usd - coalesce(was_used.cost_nano_usd, 0), 0)),
      greatest(coalesce(now_used.prompt_tokens + now_used.completion_tokens, 0),
        coalesce(a.tokens - coalesce(was_used.prompt_tokens + was_used.completion_tokens, 0), 0))
    FROM (
      SELECT id FROM hosts
      UNION SELECT host_id FROM usage_months u
        WHERE u.organization_id = organization AND u.key_prefix = key AND u.month = for_month
    ) h
    LEFT JOIN usage_months now_used ON now_used.organization_id = organization AND now_used.key_prefix = key
      AND now_used.month = for_month AND now_used.host_id = h.id
    LEFT JOIN allowances a ON a.organization_id = organization AND a.key_prefix = key
      AND a.month = before AND a.host_id = h.id AND EXISTS (SELECT 1 FROM hosts WHERE id = h.id)
    LEFT JOIN usage_months was_used ON was_used.organization_id = organization AND was_used.key_prefix = key
      AND was_used.month = before AND was_used.host_id = h.id;
END $$;

-- What other hosts than this one have of a budget in a month: what they may use, or what they have used if that is more,
-- as before there was a budget.
CREATE FUNCTION taken_by_others(organization text, key text, for_month text, host text,
  OUT nano_usd bigint, OUT tokens bigint) LANGUAGE sql AS $$
  SELECT coalesce(sum(greatest(a.nano_usd, u.cost_nano_usd)), 0)::bigint,
    coalesce(sum(greatest(a.tokens, u.prompt_tokens + u.completion_tokens)), 0)::bigint
  FROM (SELECT * FROM allowances WHERE organization_id = organization AND key_prefix = key AND month = for_month) a
  FULL JOIN (SELECT * FROM usage_months WHERE organization_id = organization AND key_prefix = key AND month = for_month) u
    ON u.host_id = a.host_id
  WHERE coalesce(a.host_id, u.host_id) <> host
$$;

-- Whether every host that may have been granted something has said so to this server. One that stays away is waited
-- for as long as it takes to call it lost.
CREATE FUNCTION allowances_are_known() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (
    SELECT 1 FROM allowance_entries e JOIN host_states s ON s.id = e.host_id CROSS JOIN clock c
    WHERE e.timeline <> timeline()
      AND (s.has_lease OR c.timeline <> timeline() OR c.served_ms - c.epoch_served_ms < 60000))
$$;

-- How much more a host gets of what is left: what it needs, else nothing; of the rest what it wants besides, and a part of
-- what is left then, which is smaller the more hosts there are and the less is left.
CREATE FUNCTION block_of(is_unbounded boolean, left_over bigint, need bigint, want bigint) RETURNS bigint LANGUAGE sql AS $$
  SELECT CASE
    WHEN is_unbounded THEN greatest(0, need, want)
    WHEN need <= 0 OR need > left_over THEN 0
    ELSE (SELECT asked + (left_over - asked) / (4 * greatest(1, (SELECT count(*) FROM hosts)))
      FROM (SELECT least(left_over, greatest(need, want)) AS asked) a)
  END
$$;

-- Grants this host at least need_* of a budget in a month, spent and reserved together, up to want_* and a part of what is
-- left then; or nothing more than it has. held_*: what it has used, reserved or was granted as far as it knows, whatever is
-- most. is_known: false while another host has still to say what it was granted. left_*: what nobody has then; null: the
-- budget has no bound of that kind. All null: the fleet does not have this host, or the organization.
CREATE FUNCTION lease_allowance(host text, organization text, key text, for_month text,
  held_nano_usd bigint, held_tokens bigint, need_nano_usd bigint, need_tokens bigint, want_nano_usd bigint, want_tokens bigint,
  OUT nano_usd bigint, OUT tokens bigint, OUT left_nano_usd bigint, OUT left_tokens bigint,
  OUT is_known boolean, OUT timeline bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  later text := month_beside(for_month, 1);
  has_later boolean;
  others record;
  own record;
  next_others record;
  next_own record;
  budget record;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM hosts h WHERE h.id = host AND h.database_role = session_user)
    OR NOT EXISTS (SELECT 1 FROM organizations o WHERE o.id = organization) THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended(organization || ' ' || key, 24691));
  timeline := timeline();
  is_known := allowances_are_known();
  IF key = '' THEN
    SELECT budget_nano_usd, budget_tokens INTO budget FROM organizations WHERE id = organization;
  ELSE
    SELECT budget_nano_usd, budget_tokens INTO budget FROM gateway_keys
      WHERE prefix = key AND organization_id = organization;
  END IF;
  PERFORM open_allowances(organization, key, for_month);
  INSERT INTO allowances AS a VALUES (organization, key, for_month, host,
      held_nano_usd, held_tokens)
    ON CONFLICT (organization_id, key_prefix, month, host_id) DO UPDATE SET
      nano_usd = greatest(a.nano_usd, excluded.nano_usd), tokens = greatest(a.tokens, excluded.tokens);
  SELECT a.nano_usd, a.tokens INTO own FROM allowances a
    WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = for_month AND a.host_id = host;
  others := taken_by_others(organization, key, for_month, host);
  left_nano_usd := budget.budget_nano_usd - others.nano_usd - own.nano_usd;
  left_tokens := budget.budget_tokens - others.tokens - own.tokens;
  -- Requests that begin now may end in the next month, whose rows took over what was unspent: both months have to fit.
  has_later := EXISTS (SELECT 1 FROM allowances a
    WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = later);
  IF has_later THEN
    INSERT INTO allowances VALUES (organization, key, later, host, 0, 0) ON CONFLICT DO NOTHING;
    SELECT a.nano_usd, a.tokens INTO next_own FROM allowances a
      WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = later AND a.host_id = host;
    next_others := taken_by_others(organization, key, later, host);
    left_nano_usd := least(left_nano_usd, budget.budget_nano_usd - next_others.nano_usd - next_own.nano_usd);
    left_tokens := least(left_tokens, budget.budget_tokens - next_others.tokens - next_own.tokens);
  END IF;
  nano_usd := own.nano_usd;
  tokens := own.tokens;
  IF is_known THEN
    nano_usd := nano_usd + block_of(budget.budget_nano_usd IS NULL, left_nano_usd, need_nano_usd - own.nano_usd, want_nano_usd - own.nano_usd);
    tokens := tokens + block_of(budget.budget_tokens IS NULL, left_tokens, need_tokens - own.tokens, want_tokens - own.tokens);
    UPDATE allowances a SET nano_usd = lease_allowance.nano_usd, tokens = lease_allowance.tokens
      WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = for_month AND a.host_id = host;
    IF has_later THEN
      UPDATE allowances a SET nano_usd = a.nano_usd + lease_allowance.nano_usd - own.nano_usd,
          tokens = a.tokens + lease_allowance.tokens - own.tokens
        WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = later AND a.host_id = host;
    END IF;
    left_nano_usd := left_nano_usd - (nano_usd - own.nano_usd);
    left_tokens := left_tokens - (tokens - own.tokens);
  END IF;
END $$;

-- Gives back what this host does not use: it keeps so much in that month.
CREATE FUNCTION return_allowance(host text, organization text, key text, for_month text, keep_nano_usd bigint, keep_tokens bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM hosts h WHERE h.id = host AND h.database_role = session_user) THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended(organization || ' ' || key, 24691));
  UPDATE allowances a SET nano_usd = least(a.nano_usd, keep_nano_usd), tokens = least(a.tokens, keep_tokens)
    WHERE a.organization_id = organization AND a.key_prefix = key AND a.month = for_month AND a.host_id = host;
END $$;

-- Enters what this host was granted as far as it knows, an array of the columns of allowances, and with the last part
-- says that it has. Null: the fleet does not have this host.
CREATE FUNCTION enter_allowances(host text, held jsonb, is_last boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  given record;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM hosts h WHERE h.id = host AND h.database_role = session_user) THEN RETURN NULL; END IF;
  FOR given IN SELECT h.* FROM jsonb_populate_recordset(NULL::allowances, held) h
    JOIN organizations o ON o.id = h.organization_id ORDER BY h.organization_id, h.key_prefix, h.month
  LOOP
    PERFORM pg_advisory_xact_lock(hashtextextended(given.organization_id || ' ' || given.key_prefix, 24691));
    PERFORM open_allowances(given.organization_id, given.key_prefix, given.month);
    INSERT INTO allowances AS a VALUES (given.organization_id, given.key_prefix, given.month, host, given.nano_usd, given.tokens)
      ON CONFLICT (organization_id, key_prefix, month, host_id) DO UPDATE SET
        nano_usd = greatest(a.nano_usd, excluded.nano_usd), tokens = greatest(a.tokens, excluded.tokens);
  END LOOP;
  IF is_last THEN
    INSERT INTO allowance_entries VALUES (host, timeline())
      ON CONFLICT (host_id) DO UPDATE SET timeline = excluded.timeline;
  END IF;
  RETURN timeline();
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA strongroom FROM PUBLIC;
`,
}
