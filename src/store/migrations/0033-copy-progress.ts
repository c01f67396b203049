// Schema 33: how far a host of a fleet has come with a copy of the whole directory, or of its own records into a new
// one. Empty on a single host.

export const copyProgress = {
  to: 33,
  sql: `
-- One row while such a copy is under way. Rows of tables before table_name are there, and those of it up to after_key;
-- changes of the directory after from_version follow, and with to_version the copy is whole. to_version null: rows are
-- read yet. is_first: there was no whole copy before. is_clean: nor any rows.
CREATE TABLE copy_progress (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  timeline INTEGER NOT NULL,
  from_version INTEGER NOT NULL,
  to_version INTEGER,
  is_first INTEGER NOT NULL CHECK (is_first IN (0, 1)),
  is_clean INTEGER NOT NULL CHECK (is_clean IN (0, 1)),
  table_name TEXT NOT NULL,
  after_key TEXT,
  row_count INTEGER NOT NULL
) STRICT;
`,
}
