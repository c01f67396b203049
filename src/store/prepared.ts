// Keeps the statements of a connection, so that SQLite reads each text once. Effects: wraps the connection's `prepare`.
//
// The store reads every result to its end before it runs another statement, so no result stays half read.

import type { Database } from 'bun:sqlite'

/**
 * Texts with a list of values differ in its length, so there is no end to them.
 * No share: the least recently used statement is prepared again.
 */
const statementCountMax = 512

type Prepare = Database['prepare']

/** From here on `prepare` gives the same statement for the same text; the least recently used ones go. */
export function keepPrepared(sqlite: Database): void {
  const prepare: Prepare = sqlite.prepare.bind(sqlite)
  const kept = new Map<string, ReturnType<Prepare>>()
  sqlite.prepare = ((text: string) => {
    const statement = kept.get(text) ?? prepare(text)
    kept.delete(text)
    kept.set(text, statement)
    if (kept.size > statementCountMax) dropOldest(kept)
    return statement
  }) as Prepare
}

function dropOldest(kept: Map<string, unknown>): void {
  for (const text of kept.keys()) {
    kept.delete(text)
    return
  }
}
