// Schema 23: a record of operators' commands, and organizations that are deleted.

export const auditAndDeletion = {
  to: 23,
  sql: `
-- Commands of operators. result: null while it runs. refused: nothing was done; such rows have a bound of their own.
CREATE TABLE audit (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  uid INTEGER NOT NULL,
  gid INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  actor TEXT NOT NULL,
  role TEXT,
  socket TEXT NOT NULL CHECK (socket IN ('admin', 'monitor')),
  operation TEXT NOT NULL,
  arguments TEXT NOT NULL,
  result TEXT,
  ended_at_ms INTEGER,
  refused INTEGER NOT NULL CHECK (refused IN (0, 1)),
  times INTEGER NOT NULL CHECK (times >= 1)
) STRICT;

CREATE INDEX audit_refused ON audit (refused, seq);

CREATE INDEX audit_actor ON audit (actor, seq);

CREATE INDEX audit_at ON audit (at_ms);

-- deleting_at_ms: the deletion was accepted. deleted_at_ms: nothing of it is left but records; the slug stays taken.
ALTER TABLE organizations ADD COLUMN deleting_at_ms INTEGER;
ALTER TABLE organizations ADD COLUMN deleted_at_ms INTEGER;
`,
}
