// Makes a database from a backup fit for another machine, before it is put in its place. Effects: one database file.

import { Database } from 'bun:sqlite'
import { Fault } from '../base/fault.ts'

export type RestoredKeys =
  /** Every key of the backup that was not revoked works again, but these. */
  | { readonly kind: 'keep'; readonly revoke: readonly string[] }
  /** No key of the backup works. */
  | { readonly kind: 'revoke' }

export type RestoredCounts = { readonly keysLive: number; readonly keysRevoked: number; readonly vmsLost: number }

/** Stands in place of the boot in which the records were last used: the first start finds that the host is another. */
export const restoredBoot = 'restored'

const KEY_TABLES = ['keys', 'gateway_keys'] as const

/**
 * One transaction; leaves one file, without a log. VMs are left to the first start, which finds them lost with their
 * host (`restoredBoot`). Fault not_found: a prefix to revoke that no key has.
 */
export function settleRestored(path: string, { keys, nowMs }: { keys: RestoredKeys; nowMs: number }): RestoredCounts {
  using sqlite = new Database(path, { readwrite: true, strict: true })
  sqlite.run('PRAGMA journal_mode = DELETE')
  sqlite.run('PRAGMA synchronous = FULL')
  const count = (sql: string) => sqlite.query<{ count: number }, []>(sql).get()?.count ?? 0
  const live = () => {
    const each = KEY_TABLES.map(name => count(`SELECT count(*) AS count FROM ${name} WHERE revoked_at_ms IS NULL`))
    return each.reduce((sum, more) => sum + more, 0)
  }
  return sqlite.transaction(() => {
    const before = live()
    if (keys.kind === 'revoke') {
      for (const name of KEY_TABLES)
        sqlite.run(`UPDATE ${name} SET revoked_at_ms = ? WHERE revoked_at_ms IS NULL`, [nowMs])
    } else {
      for (const prefix of keys.revoke) revokeOne(sqlite, prefix, nowMs)
    }
    const boot = 'INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value'
    sqlite.run(boot, ['host_boot_id', restoredBoot])
    const keysLive = live()
    return {
      keysLive,
      keysRevoked: before - keysLive,
      vmsLost: count("SELECT count(*) AS count FROM vms WHERE state IN ('booting', 'running')"),
    }
  })()
}

function revokeOne(sqlite: Database, prefix: string, nowMs: number): void {
  const found = KEY_TABLES.map(name => {
    const sql = `UPDATE ${name} SET revoked_at_ms = coalesce(revoked_at_ms, ?) WHERE prefix = ? RETURNING prefix`
    return sqlite.query<{ prefix: string }, [number, string]>(sql).all(nowMs, prefix).length
  })
  if (found.every(count => count === 0)) throw new Fault('not_found', `the backup has no key ${prefix}`)
}
