// The text of src/store/migrations/schema.ts: what the migrations, run one by one in an empty database, leave. Effects: a database in memory.

import { Database } from 'bun:sqlite'
import { MIGRATIONS } from '../../src/store/db.ts'

export const schemaFile = 'src/store/migrations/schema.ts'

export function schemaFileText(): string {
  const sqlite = new Database(':memory:')
  for (const migration of MIGRATIONS) sqlite.run(migration)
  // What has no text is made by SQLite itself: the indexes of keys, and the table of sequences.
  const rows = sqlite
    .query<{ sql: string }, []>(
      "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    )
    .all()
  sqlite.close()
  const statements = rows.map(({ sql }) => `${sql};`).join('\n\n')
  return `// The schema of a new database: what the migrations leave in an empty one. Written by scripts/store-schema.ts; not changed by hand.

export const schema = \`
${statements}
\`
`
}
