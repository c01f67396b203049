// The destinations that programs reached for: the newest ones, for the owner. Effects: one unix socket.

import { chmodSync, rmSync } from 'node:fs'
import type { EgressLog, LogEntry } from './types.ts'

/** Destinations in the log. No share: the log of one VM, of which the newest are kept. */
const entriesMax = 1_000

/** A repeated destination is one row with a count and the last time. */
export type LogRow = LogEntry & { readonly count: number }

export type EgressRing = EgressLog & { readonly rows: () => readonly LogRow[] }

export function createEgressRing(nowMs: () => number): EgressRing {
  const rows = new Map<string, LogRow>()
  return {
    add: entry => {
      const key = JSON.stringify([entry.verdict, entry.host, entry.port, entry.reason])
      const count = (rows.get(key)?.count ?? 0) + 1
      rows.delete(key)
      rows.set(key, { atMs: nowMs(), ...entry, count })
      const [oldest] = rows.keys()
      if (rows.size > entriesMax && oldest !== undefined) rows.delete(oldest)
    },
    rows: () => [...rows.values()],
  }
}

/** Answers every HTTP request on the socket with the rows, the oldest first, as JSON. All programs may read it. */
export function serveLog(path: string, { rows }: Pick<EgressRing, 'rows'>): Disposable {
  rmSync(path, { force: true })
  const server = Bun.serve({ unix: path, maxRequestBodySize: 0, fetch: () => Response.json({ rows: rows() }) })
  chmodSync(path, 0o666)
  return { [Symbol.dispose]: () => void server.stop(true) }
}
