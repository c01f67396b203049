// Schema 31: sums of usage by host, as other hosts of a fleet have some too. Sums that this host has to report wait in
// a lane of their own; `is_held`: the row has a line there.

export const usageHosts = {
  to: 31,
  sql: `
CREATE TABLE usage_months_of_hosts (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  month TEXT NOT NULL,
  key_prefix TEXT NOT NULL,
  host_id TEXT NOT NULL,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  is_held INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (organization_id, month, key_prefix, host_id)
) STRICT, WITHOUT ROWID;

-- late_cost_nano_usd: what of the cost came at or after the time of day at which the organization was created. Billing
-- periods begin at that time of a day, so the cost of a period is a sum of days and parts of days.
CREATE TABLE usage_days_of_hosts (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  key_prefix TEXT NOT NULL,
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  host_id TEXT NOT NULL,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  late_cost_nano_usd INTEGER NOT NULL,
  is_held INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (organization_id, key_prefix, day, model, host_id)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_months_of_hosts
  SELECT organization_id, month, key_prefix, (SELECT value FROM meta WHERE name = 'host_id'),
    requests, prompt_tokens, completion_tokens, cost_nano_usd, 0
  FROM usage_months;

INSERT INTO usage_days_of_hosts
  SELECT organization_id, key_prefix, day, model, (SELECT value FROM meta WHERE name = 'host_id'),
    requests, prompt_tokens, completion_tokens, cost_nano_usd, 0, 0
  FROM usage_days;

UPDATE usage_days_of_hosts SET late_cost_nano_usd = late.cost
FROM (
  SELECT u.organization_id, u.key_prefix, coalesce(strftime('%Y-%m-%d', u.at_ms / 1000, 'unixepoch'), '9999-12-31') AS day, u.model,
    cast(min(9007199254740991, total(u.cost_nano_usd)) AS INTEGER) AS cost
  FROM usage u JOIN organizations o ON o.id = u.organization_id
  WHERE u.at_ms % 86400000 >= o.created_at_ms % 86400000
  GROUP BY 1, 2, 3, 4
) AS late
WHERE late.organization_id = usage_days_of_hosts.organization_id AND late.key_prefix = usage_days_of_hosts.key_prefix
  AND late.day = usage_days_of_hosts.day AND late.model = usage_days_of_hosts.model;

DROP TRIGGER usage_counted;
DROP TRIGGER usage_counted_by_day;
DROP TABLE usage_months;
DROP TABLE usage_days;
ALTER TABLE usage_months_of_hosts RENAME TO usage_months;
ALTER TABLE usage_days_of_hosts RENAME TO usage_days;
CREATE INDEX usage_days_day ON usage_days (day);
-- Sums of other hosts in the days of a period, without a look at each key's days.
CREATE INDEX usage_days_organization ON usage_days (organization_id, day);

CREATE TRIGGER usage_counted AFTER INSERT ON usage BEGIN
  INSERT INTO usage_months VALUES
    (NEW.organization_id, coalesce(strftime('%Y-%m', NEW.at_ms / 1000, 'unixepoch'), '9999-12'), '', (SELECT value FROM meta WHERE name = 'host_id'), 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd, 0),
    (NEW.organization_id, coalesce(strftime('%Y-%m', NEW.at_ms / 1000, 'unixepoch'), '9999-12'), NEW.key_prefix, (SELECT value FROM meta WHERE name = 'host_id'), 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd, 0)
  ON CONFLICT (organization_id, month, key_prefix, host_id) DO UPDATE SET
    requests = requests + 1,
    prompt_tokens = min(9007199254740991, prompt_tokens + excluded.prompt_tokens),
    completion_tokens = min(9007199254740991, completion_tokens + excluded.completion_tokens),
    cost_nano_usd = min(9007199254740991, cost_nano_usd + excluded.cost_nano_usd);
END;

CREATE TRIGGER usage_counted_by_day AFTER INSERT ON usage BEGIN
  INSERT INTO usage_days VALUES
    (NEW.organization_id, NEW.key_prefix, coalesce(strftime('%Y-%m-%d', NEW.at_ms / 1000, 'unixepoch'), '9999-12-31'), NEW.model, (SELECT value FROM meta WHERE name = 'host_id'), 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd,
      NEW.cost_nano_usd * coalesce(NEW.at_ms % 86400000 >= (SELECT created_at_ms % 86400000 FROM organizations WHERE id = NEW.organization_id), 0), 0)
  ON CONFLICT (organization_id, key_prefix, day, model, host_id) DO UPDATE SET
    requests = requests + 1,
    prompt_tokens = min(9007199254740991, prompt_tokens + excluded.prompt_tokens),
    completion_tokens = min(9007199254740991, completion_tokens + excluded.completion_tokens),
    cost_nano_usd = min(9007199254740991, cost_nano_usd + excluded.cost_nano_usd),
    late_cost_nano_usd = min(9007199254740991, late_cost_nano_usd + excluded.late_cost_nano_usd);
END;

-- As outbox, for sums that change with every request: they go into it a few times a minute, the oldest lines first.
CREATE TABLE outbox_held (
  table_name TEXT NOT NULL,
  row_key TEXT NOT NULL,
  PRIMARY KEY (table_name, row_key)
) STRICT;

-- What this host may have used of a budget in a month, spent and reserved, as the fleet has granted it. Empty on a single
-- host.
CREATE TABLE allowances (
  organization_id TEXT NOT NULL,
  key_prefix TEXT NOT NULL,
  month TEXT NOT NULL,
  nano_usd INTEGER NOT NULL,
  tokens INTEGER NOT NULL,
  PRIMARY KEY (organization_id, key_prefix, month)
) STRICT, WITHOUT ROWID;
`,
}
