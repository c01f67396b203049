// The wall of one writer: how many numbered transactions a directory commits when hosts want nothing else. Effects:
// statements to a database.

import type { PostgresServer } from '../../rigs/postgres/server.ts'
import type { Figures } from '../bench-report.ts'
import { round } from '../gateway/cost.ts'
import type { BenchContext } from '../main.ts'
import { BenchFleet } from './bench-fleet.ts'

/** More wait for the counter than one, so that it is never free; and the rows of a batch of creates. */
const [writerCount, batchRows] = [8, 64]
const measuredMs = 5_000

export async function measureWall(
  server: PostgresServer,
  { note, signal }: Pick<BenchContext, 'note' | 'signal'>,
): Promise<Figures> {
  await using fleet = await BenchFleet.open(server, 1)
  const organizationId = await fleet.newOrganization()
  await fleet.seed(organizationId, writerCount * batchRows, 'terminated')
  /** Numbered transactions a second that change so many instances each. */
  const writes = async (rows: number) => {
    signal.throwIfAborted()
    const [startedMs, versions] = [performance.now(), await fleet.version()]
    const write = async (writer: number) => {
      const names = Array.from(
        { length: rows },
        (_, index) => `x${String(writer * batchRows + index).padStart(7, '0')}`,
      )
      while (performance.now() - startedMs < measuredMs) {
        await fleet.postgres.transact(async tx =>
          tx.atCommit({
            text: `UPDATE instances SET changed_at_ms = changed_at_ms + 1 WHERE organization_id = $1 AND name IN (${names.map(name => `'${name}'`).join(', ')})`,
            values: [organizationId],
          }),
        )
      }
    }
    await Promise.all(Array.from({ length: writerCount }, (_, index) => write(index)))
    return ((await fleet.version()) - versions) / ((performance.now() - startedMs) / 1_000)
  }
  const [single, batch] = [await writes(1), await writes(batchRows)]
  note(`one writer: ${round(single)} transactions of a row, ${round(batch)} of ${batchRows} rows a second`)
  return {
    numberedPerS: { value: single, unit: '/s', aim: null },
    changesPerS: {
      value: batch * batchRows,
      unit: `/s, ${batchRows} to a transaction`,
      aim: null,
      baseline: 'numberedPerS',
    },
  }
}
