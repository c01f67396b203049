// The destinations that programs reached for: the newest ones, for the owner. Effects: unix sockets.

import { once } from 'node:events'
import { chmodSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
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

/** Connections of one socket. Share: programs of one VM; root's process has a socket that they cannot open. */
const readersMax = 16
/** Time in which a reader sends its request and reads the answer. */
const readMs = 10_000

/**
 * Answers the first bytes of each connection, an HTTP request, with the rows as JSON, the oldest first. `mode`: of the
 * socket. Rejects if it cannot be opened.
 */
export async function serveLog(path: string, mode: number, { rows }: Pick<EgressRing, 'rows'>): Promise<Server> {
  let readers = 0
  const server = createServer(client => {
    readers += 1
    const timer = setTimeout(() => client.destroy(), readMs)
    client
      .on('error', () => {})
      .once('close', () => {
        readers -= 1
        clearTimeout(timer)
      })
    if (readers > readersMax) return void client.destroy()
    client.once('data', () => {
      const body = Buffer.from(JSON.stringify({ rows: rows() }))
      client.write(`HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`)
      client.write(body)
    })
  })
  rmSync(path, { force: true })
  server.listen(path)
  await once(server, 'listening')
  chmodSync(path, mode)
  return server
}
