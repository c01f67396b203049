// Attestation nonces of a gateway VM, which end with it: SQLite in memory, without the rest of the store. Effects: SQL.

import { Database } from 'bun:sqlite'

/** Like `nonceStore`, empty at first. A map would halt the process for a second when it grows beyond a million. */
export function createNonceMemory() {
  const sqlite = new Database(':memory:', { strict: true })
  sqlite.run('CREATE TABLE nonces (nonce BLOB PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID')
  sqlite.run('CREATE INDEX nonces_at ON nonces (at_ms)')
  const counted = sqlite.prepare<{ count: number }, []>('SELECT count(*) AS count FROM nonces')
  const newest = sqlite.prepare<{ atMs: number | null }, []>('SELECT max(at_ms) AS atMs FROM nonces')
  const found = sqlite.prepare<{ one: number }, [Uint8Array]>('SELECT 1 AS one FROM nonces WHERE nonce = ?')
  const inserted = sqlite.prepare<never, [Uint8Array, number]>('INSERT OR IGNORE INTO nonces VALUES (?, ?)')
  const deleted = sqlite.prepare<never, [number, number]>(
    'DELETE FROM nonces WHERE nonce IN (SELECT nonce FROM nonces WHERE at_ms <= ? ORDER BY at_ms LIMIT ?)',
  )
  const rows = {
    count: () => counted.get()?.count ?? 0,
    newestMs: () => newest.get()?.atMs ?? null,
    has: (nonce: Uint8Array) => found.get(nonce) !== null,
    insert: ({ nonce, nowMs }: { nonce: Uint8Array; nowMs: number }) => inserted.run(nonce, nowMs).changes === 1,
    deleteExpired: ({ usedAtOrBeforeMs, limit }: { usedAtOrBeforeMs: number; limit: number }) =>
      deleted.run(usedAtOrBeforeMs, limit).changes,
  }
  return { ...rows, transact: <Result>(work: (all: typeof rows) => Result) => sqlite.transaction(() => work(rows))() }
}
