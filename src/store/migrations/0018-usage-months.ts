// Migration 18: what was used in each calendar month (UTC), by key and by organization (an empty key). A trigger keeps it, so that a row of usage and
// its part of the sums are written together, and each once. A sum beyond what a double holds exactly stays there.

const most = '9007199254740991'
const month = (at: string) => `coalesce(strftime('%Y-%m', ${at} / 1000, 'unixepoch'), '9999-12')`

export const usageMonths = `
CREATE TABLE usage_months (
  organization_id TEXT NOT NULL REFERENCES organizations (id),
  month TEXT NOT NULL,
  key_prefix TEXT NOT NULL,
  requests INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  PRIMARY KEY (organization_id, month, key_prefix)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER usage_counted AFTER INSERT ON usage BEGIN
  INSERT INTO usage_months VALUES
    (NEW.organization_id, ${month('NEW.at_ms')}, '', 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd),
    (NEW.organization_id, ${month('NEW.at_ms')}, NEW.key_prefix, 1, NEW.prompt_tokens, NEW.completion_tokens, NEW.cost_nano_usd)
  ON CONFLICT (organization_id, month, key_prefix) DO UPDATE SET
    requests = requests + 1,
    prompt_tokens = min(${most}, prompt_tokens + excluded.prompt_tokens),
    completion_tokens = min(${most}, completion_tokens + excluded.completion_tokens),
    cost_nano_usd = min(${most}, cost_nano_usd + excluded.cost_nano_usd);
END;

INSERT INTO usage_months
  SELECT organization_id, ${month('at_ms')}, scope, count(*),
    min(${most}, sum(prompt_tokens)), min(${most}, sum(completion_tokens)), min(${most}, sum(cost_nano_usd))
  FROM (
    SELECT organization_id, at_ms, '' AS scope, prompt_tokens, completion_tokens, cost_nano_usd FROM usage
    UNION ALL
    SELECT organization_id, at_ms, key_prefix, prompt_tokens, completion_tokens, cost_nano_usd FROM usage
  )
  GROUP BY 1, 2, 3;
`
