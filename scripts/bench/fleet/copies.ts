// How long a host takes for its first copy of the directory, and to follow after it was away. Effects: those of the
// fleet.

import type { PostgresServer } from '../../rigs/postgres/server.ts'
import type { Figures } from '../bench-report.ts'
import { cpuMsOf, round } from '../gateway/cost.ts'
import { wallMs } from '../gateway/wire.ts'
import type { BenchContext } from '../main.ts'
import { BenchFleet } from './bench-fleet.ts'

const recordCount = 100_000
/** Fewer than the rows that the host has, so that it applies them one by one. */
const [changeCount, changesEach] = [20_000, 500]

export async function measureCopies(
  server: PostgresServer,
  { note, signal }: Pick<BenchContext, 'note' | 'signal'>,
): Promise<Figures> {
  await using fleet = await BenchFleet.open(server, 1)
  const organizationId = await fleet.newOrganization()
  await fleet.seed(organizationId, recordCount, 'terminated')
  signal.throwIfAborted()
  const startedMs = wallMs()
  const late = await fleet.start('late')
  const [firstS, firstCpuMs] = [(wallMs() - startedMs) / 1_000, cpuMsOf(late.pid)]
  note(`first copy of ${recordCount} records: ${round(firstS)} s, ${round(firstCpuMs)} ms of a processor`)

  await late.reachedAtMs(await fleet.version())
  await fleet.kill(late)
  const change =
    'UPDATE instances SET changed_at_ms = changed_at_ms + 1 WHERE organization_id = $1 AND name BETWEEN $2 AND $3'
  const nameAt = (index: number) => `x${String(index).padStart(7, '0')}`
  for (let from = 0; from < changeCount; from += changesEach) {
    const values = [organizationId, nameAt(from), nameAt(from + changesEach - 1)]
    await fleet.postgres.transact(tx => tx.query(change, values))
  }
  const againMs = wallMs()
  const again = await fleet.start('late')
  const replayS = ((await again.reachedAtMs(await fleet.version())) - againMs) / 1_000
  const replayCpuMs = cpuMsOf(again.pid)
  note(`replay of ${changeCount} changes: ${round(replayS)} s, ${round(replayCpuMs)} ms of a processor`)
  return {
    firstCopyS100000: { value: firstS, unit: 's, with the start of the process', aim: { atMost: 30 } },
    firstCopyCpuS100000: { value: firstCpuMs / 1_000, unit: 's', aim: null },
    replayS20000: { value: replayS, unit: 's, with the start of the process', aim: null },
    replayCpuS20000: { value: replayCpuMs / 1_000, unit: 's', aim: null },
  }
}
