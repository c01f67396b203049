// Samples of instances and keys, in tables that no host copies: each host reports its own, and reads those of all
// for a request that shows them. Effects: statements to PostgreSQL, SQL on the host's database.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { reasonOf, sqlStateOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import type { Replica } from '../replica/replica.ts'
import type { Sample, SampleLineBatch, SampleLines } from '../replica/samples.ts'
import { SAMPLE_TABLES, type SampleTable } from '../replica/tables.ts'

export type SampleReportDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly lines: SampleLines
  readonly hostId: string
}

/** SQLSTATE of a directory whose schema is older than these tables: undefined_function. */
const olderSchema = '42883'

/**
 * Reports the samples that have changed. Without a number: a repeated or late report changes nothing, because samples
 * only grow. Fault `fleet.unavailable`.
 */
export async function reportSamples({ postgres, lines, hostId }: SampleReportDeps, signal: AbortSignal): Promise<void> {
  let isFirst = true
  for (let batch = lines.next({ isFirst }); batch !== null && !signal.aborted; batch = lines.next({ isFirst })) {
    isFirst = false
    try {
      await postgres.query('SELECT report_samples($1, $2::jsonb, $3::jsonb, $4::jsonb)', [
        hostId,
        ...SAMPLE_TABLES.map(table => valuesOf(batch, table)),
      ])
    } catch (error) {
      // The lines stay until the directory is upgraded.
      if (sqlStateOf(error) === olderSchema) return
      throw error
    }
    lines.taken(batch)
  }
}

function valuesOf(batch: SampleLineBatch, table: SampleTable): string {
  return `[${batch[table].flatMap(({ sample }) => sample ?? []).join(',')}]`
}

type ReadDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly replica: Pick<Replica, 'takeSamples'>
}

export type SampleReadDeps = ReadDeps & {
  readonly postgres: Pick<Postgres, 'view'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
  /** How long a request waits before it uses the samples that are here. */
  readonly freshMs: number
}

/** No share: the next statement has the remaining rows. */
const pageRowCount = 250

/** Reads samples of all hosts. Requests that wait are answered by one reading, so at most one runs at a time. */
export class SampleReads {
  readonly #deps: SampleReadDeps
  readonly #serial = createSerial()
  /** Organizations of the next reading, or null for all. */
  #asked = new Map<SampleTable, Set<string> | null>()
  #next: Promise<void> | null = null

  constructor(deps: SampleReadDeps) {
    this.#deps = deps
  }

  /** Brings samples here, of an organization or of all. Never rejects: without the database, what is here remains. */
  async refresh(table: SampleTable, organizationId: string | null): Promise<void> {
    const { postgres, clock, log, freshMs } = this.#deps
    if (!postgres.view().isReachable) return
    const asked = this.#asked.get(table)
    if (organizationId === null) this.#asked.set(table, null)
    else if (asked !== null) this.#asked.set(table, (asked ?? new Set()).add(organizationId))
    this.#next ??= this.#serial.run(() => {
      const all = this.#asked
      this.#asked = new Map()
      this.#next = null
      return this.#readAll(all)
    })
    const waited = new AbortController()
    try {
      const read = this.#next.catch(error => log.debug('samples were not read', { problem: reasonOf(error) }))
      await Promise.race([read, clock.sleep(freshMs, waited.signal).catch(() => {})])
    } finally {
      waited.abort()
    }
  }

  async #readAll(asked: ReadonlyMap<SampleTable, ReadonlySet<string> | null>): Promise<void> {
    for (const [table, organizations] of asked) await readSamples(this.#deps, table, organizations)
  }
}

/** Brings samples here, of some organizations or of all (null). Fault `fleet.unavailable`. */
export async function readSamples(
  { postgres, replica }: ReadDeps,
  table: SampleTable,
  organizations: ReadonlySet<string> | null,
): Promise<void> {
  const text = selectSamples(table, organizations === null)
  const of = organizations === null ? [] : [[...organizations]]
  let page: Sample[]
  let after = ''
  do {
    page = await postgres.query<Sample>(text, [after, pageRowCount, ...of])
    replica.takeSamples(table, page)
    after = page.at(-1)?.key ?? ''
  } while (page.length === pageRowCount)
}

/** Reads a page of samples, after the key in $1. $3: organizations. */
function selectSamples(table: SampleTable, isAll: boolean): string {
  const of = isAll ? '' : 'AND s.organization_id = ANY($3)'
  if (table === 'instance_egress') {
    return `SELECT s.id AS key, s.host_id AS "hostId", e.bytes, e.observed_at_ms AS "atMs"
      FROM instances s JOIN instance_egress e ON e.instance_id = s.id AND e.host_id = s.host_id
      WHERE (s.status <> 'terminated' OR s.egress_bytes < e.bytes) AND s.id > $1 ${of} ORDER BY s.id LIMIT $2`
  }
  const keys = table === 'key_uses' ? 'keys' : 'gateway_keys'
  return `SELECT s.prefix AS key, '' AS "hostId", 0 AS bytes, u.at_ms AS "atMs"
    FROM ${keys} s JOIN LATERAL (SELECT max(at_ms) AS at_ms FROM ${table} WHERE prefix = s.prefix) u
      ON u.at_ms IS NOT NULL
    WHERE s.prefix > $1 ${of} ORDER BY s.prefix LIMIT $2`
}
