// A single host's records become a fleet's directory, and the way back. Effects: statements to PostgreSQL, SQL on the
// host's database, beside a running daemon too.

import { assert } from '../../base/assert.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { Fault } from '../../base/fault.ts'
import type { DirectoryStore } from '../../store/db.ts'
import type { NumberedTransaction, Postgres, Sql } from '../postgres.ts'
import { Outbox } from '../replica/outbox.ts'
import { endReplica, keyText, Replica } from '../replica/replica.ts'
import { REPLICA_TABLES, type RowChange } from '../replica/tables.ts'
import { fleetIdOf, pagesOf } from './feed.ts'
import { reportAll } from './reports.ts'
import { writesOf } from './write.ts'

export type SeedDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'transact'>
  readonly hostId: string
  readonly postgres: Pick<Postgres, 'query' | 'transact' | 'snapshot'>
}

const rowsPerStatement = 500

/**
 * Copies the records of this host into an empty directory and reads every row back; returns their number. From then on
 * changes here are noted, and the daemon reports them once it starts in the fleet. Repeating it goes on. Faults:
 * `conflict` (the directory has records of others, or what was read back differs), `fleet.unavailable`.
 */
export async function seedDirectory({ directory, hostId, postgres }: SeedDeps): Promise<number> {
  const replica = replicaOf({ directory, hostId })
  const isRepeated = replica.mark() !== null
  if (isRepeated && !replica.isSeeding()) return 0
  replica.begin(await fleetIdOf(postgres), { isSeeding: true })
  try {
    const rows = replica.allRows()
    const to = await postgres.transact(async tx => {
      if (!isRepeated && (await organizationCount(tx)) > 0) {
        throw new Fault('conflict', 'the directory of the fleet has organizations already: nothing was changed')
      }
      for (let at = 0; at < rows.length; at += rowsPerStatement) {
        for (const { text, values } of writesOf(rows.slice(at, at + rowsPerStatement), { writing: 'wish', hostId })) {
          await tx.query(text, values)
        }
      }
      if (!isRepeated) await compare(tx, rows)
      return { version: tx.version, timeline: await timelineOf(tx) }
    })
    replica.seeded(to)
    return rows.length
  } catch (error) {
    if (!isRepeated) endReplica(directory)
    throw error
  }
}

/**
 * The way back of the last host: sums of usage that it has still to report are reported, its records are compared with
 * the directory row by row, and are its own again. The directory stays as it is. Faults: `conflict` (other hosts,
 * differences, rows that were not reported), `fleet.unavailable`.
 */
export async function leaveDirectory({ directory, hostId, postgres }: SeedDeps): Promise<number> {
  const replica = replicaOf({ directory, hostId })
  if (replica.mark() === null) throw new Fault('conflict', 'the records of this host are no copy of a fleet’s')
  // Sums of usage that no report was due for when the daemon ended.
  if (!replica.isSeeding()) await reportSums({ directory, hostId, postgres }, replica)
  const rows = await postgres.snapshot(async tx => {
    const others = await tx.query('SELECT 1 FROM hosts WHERE id <> $1 LIMIT 1', [hostId])
    if (others.length > 0) throw new Fault('conflict', 'the fleet has other hosts: remove or forget them first')
    if (replica.unreported() > 0) {
      throw new Fault(
        'conflict',
        'this host has changes that the directory lacks: let the service report them, then stop it',
      )
    }
    const own = replica.allRows()
    await compare(tx, own)
    return own.length
  })
  endReplica(directory)
  return rows
}

/** Faults: `fleet.unavailable`. */
async function reportSums({ directory, hostId, postgres }: SeedDeps, replica: Replica): Promise<void> {
  const outbox = new Outbox(directory, replica)
  const { signal } = new AbortController()
  while (outbox.release(Number.MAX_SAFE_INTEGER))
    await reportAll({ postgres, outbox, hostId, writing: 'report' }, signal)
}

function replicaOf({ directory, hostId }: Pick<SeedDeps, 'directory' | 'hostId'>): Replica {
  const adopt = () => {
    throw new Fault('internal', 'nothing is adopted while records are copied')
  }
  return new Replica({ directory, hostId, adopt })
}

/** Every row of either side is on the other, and the same. Fault `conflict`. */
async function compare(sql: Sql, rows: readonly RowChange[]): Promise<void> {
  const here = new Map(rows.map(row => [nameOf(row), textOf(row)]))
  for (const table of REPLICA_TABLES) {
    for await (const page of pagesOf(sql, table)) {
      for (const row of page) {
        const name = nameOf(row)
        if (here.get(name) !== textOf(row)) {
          throw new Fault('conflict', `${table.name} ${keyText(row.key)} differs between this host and the directory`)
        }
        here.delete(name)
      }
    }
  }
  const [missing] = here.keys()
  if (missing !== undefined) throw new Fault('conflict', `${missing} is on this host and not in the directory`)
}

function nameOf({ table, key }: RowChange): string {
  return `${table} ${keyText(key)}`
}

function textOf({ row }: RowChange): string {
  return canonicalJson(row)
}

async function organizationCount(tx: NumberedTransaction): Promise<number> {
  const [row] = await tx.query<{ count: number }>('SELECT count(*) AS count FROM organizations')
  return row?.count ?? 0
}

async function timelineOf(tx: Sql): Promise<number> {
  const [row] = await tx.query<{ timeline: number }>('SELECT timeline() AS timeline')
  assert(row !== undefined, 'a function has one row')
  return row.timeline
}
