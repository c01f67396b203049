// Schema 26: the transparency log, its hashes, and the cosignatures of its witnesses.

export const transparencyLog = {
  to: 26,
  sql: `
-- Of each place in the log, from 0 on: its entry, and SHA-256 of it as a leaf. No entry is in it twice.
CREATE TABLE log_entries (
  seq INTEGER PRIMARY KEY CHECK (seq >= 0),
  entry BLOB NOT NULL,
  leaf BLOB NOT NULL UNIQUE CHECK (length(leaf) = 32),
  at_ms INTEGER NOT NULL
) STRICT;

-- Roots of complete subtrees of 2^level leaves, level 1 and up.
CREATE TABLE log_hashes (
  level INTEGER NOT NULL CHECK (level >= 1),
  place INTEGER NOT NULL CHECK (place >= 0),
  hash BLOB NOT NULL CHECK (length(hash) = 32),
  PRIMARY KEY (level, place)
) STRICT, WITHOUT ROWID;

-- Of each witness the newest cosignature, as a line of a signed note.
CREATE TABLE log_cosignatures (
  witness TEXT PRIMARY KEY,
  size INTEGER NOT NULL CHECK (size >= 0),
  line TEXT NOT NULL,
  at_ms INTEGER NOT NULL
) STRICT;
`,
}
