// The destinations that programs reached for: the newest ones, for the owner. Effects: one unix socket.

import { chmodSync, rmSync } from 'node:fs'
import { egressHostCharsMax, egressReasonCharsMax } from '../contract/vm/orders/egress-log.ts'
import type { EgressLog, LogEntry } from './types.ts'

/**
 * Destinations of each verdict in the log. Share: the newest are kept, and a flood of refused ones removes no allowed
 * one.
 */
const entriesMax = 500

/** A repeated destination is one row with a count and the last time. */
export type LogRow = LogEntry & { readonly count: number }

export type EgressRing = EgressLog & { readonly rows: () => readonly LogRow[] }

export function createEgressRing(nowMs: () => number): EgressRing {
  const kept = { allowed: new Map<string, LogRow>(), refused: new Map<string, LogRow>() }
  return {
    add: given => {
      const host = given.host.slice(0, egressHostCharsMax)
      const entry = { ...given, host, reason: given.reason?.slice(0, egressReasonCharsMax) ?? null }
      const rows = kept[entry.verdict]
      const key = JSON.stringify([entry.host, entry.port, entry.reason])
      const count = (rows.get(key)?.count ?? 0) + 1
      rows.delete(key)
      rows.set(key, { atMs: nowMs(), ...entry, count })
      const [oldest] = rows.keys()
      if (rows.size > entriesMax && oldest !== undefined) rows.delete(oldest)
    },
    rows: () => [...kept.allowed.values(), ...kept.refused.values()].toSorted((a, b) => a.atMs - b.atMs),
  }
}

/** Answers every HTTP request on the socket with the rows, the oldest first, as JSON. All programs may read it. */
export function serveLog(path: string, { rows }: Pick<EgressRing, 'rows'>): Disposable {
  rmSync(path, { force: true })
  const server = Bun.serve({ unix: path, maxRequestBodySize: 0, fetch: () => Response.json({ rows: rows() }) })
  chmodSync(path, 0o666)
  return { [Symbol.dispose]: () => void server.stop(true) }
}
