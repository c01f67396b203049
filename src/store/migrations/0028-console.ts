// Schema 28: passkeys of the console, and commands that came by it in the record of commands.

export const consolePasskeys = {
  to: 28,
  sql: `
-- SQLite changes no CHECK in place. The numbers go on where the earlier table's were.
CREATE TABLE audit_next (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  uid INTEGER NOT NULL,
  gid INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  actor TEXT NOT NULL,
  role TEXT,
  socket TEXT NOT NULL CHECK (socket IN ('admin', 'monitor', 'console')),
  operation TEXT NOT NULL,
  arguments TEXT NOT NULL,
  result TEXT,
  ended_at_ms INTEGER,
  refused INTEGER NOT NULL CHECK (refused IN (0, 1)),
  times INTEGER NOT NULL CHECK (times >= 1)
) STRICT;

INSERT INTO sqlite_sequence (name, seq) SELECT 'audit_next', seq FROM sqlite_sequence WHERE name = 'audit';

INSERT INTO audit_next SELECT * FROM audit;

DROP TABLE audit;

ALTER TABLE audit_next RENAME TO audit;

DELETE FROM sqlite_sequence WHERE name = 'audit' AND seq = 0;

CREATE INDEX audit_refused ON audit (refused, seq);

CREATE INDEX audit_actor ON audit (actor, seq);

CREATE INDEX audit_at ON audit (at_ms);

-- actor: root, or the name of an administrator. role: the highest that a session by it gets. public_key: COSE.
CREATE TABLE passkeys (
  id TEXT PRIMARY KEY,
  actor TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('admin', 'operator', 'auditor')),
  rp_id TEXT NOT NULL,
  name TEXT NOT NULL,
  public_key BLOB NOT NULL,
  counter INTEGER NOT NULL CHECK (counter >= 0),
  created_at_ms INTEGER NOT NULL,
  last_used_at_ms INTEGER
) STRICT;
`,
}
