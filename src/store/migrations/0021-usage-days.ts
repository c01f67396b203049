// Migration 21: what each key has used of each model on each day (UTC). A trigger keeps it, as that of migration 18 keeps the sums of months.

const most = '9007199254740991'
const day = (at: string) => `coalesce(strftime('%Y-%m-%d', ${at} / 1000, 'unixepoch'), '9999-12-31')`

export const usageDays = `
CREATE TABLE usage_days (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  key_prefix TEXT NOT NULL,
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (organization_id, key_prefix, day, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_day ON usage_days (day);

CREATE TRIGGER usage_counted_by_day AFTER INSERT ON usage BEGIN
  INSERT INTO usage_days VALUES
    (NEW.organization_id, NEW.key_prefix, ${day('NEW.at_ms')}, NEW.model, 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd)
  ON CONFLICT (organization_id, key_prefix, day, model) DO UPDATE SET
    requests = requests + 1,
    prompt_tokens = min(${most}, prompt_tokens + excluded.prompt_tokens),
    completion_tokens = min(${most}, completion_tokens + excluded.completion_tokens),
    cost_nano_usd = min(${most}, cost_nano_usd + excluded.cost_nano_usd);
END;

INSERT INTO usage_days
  SELECT organization_id, key_prefix, ${day('at_ms')}, model, count(*),
    min(${most}, sum(prompt_tokens)), min(${most}, sum(completion_tokens)), min(${most}, sum(cost_nano_usd))
  FROM usage
  GROUP BY 1, 2, 3, 4;
`
