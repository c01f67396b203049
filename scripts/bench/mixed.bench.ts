// Service B: five minutes of mixed load, and then the ledger row by row, beside what clients saw and what the upstream
// told. A row that is missing, double or wrong fails the benchmark.

import { runMixedLoad } from '../rigs/mixed/load.ts'
import type { Figure, Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const loadMs = 300_000

export async function run({ note }: BenchContext): Promise<Figures> {
  const seen = await runMixedLoad({ ms: loadMs, note })
  note(JSON.stringify(seen))
  const { verdict, late, rows } = seen
  if (verdict.problems.length > 0) throw new Error(`the ledger is wrong:\n${verdict.problems.join('\n')}`)
  const left = [late.running, late.reserved, late.upstreamRunning, late.waiting, late.lost]
  if (left.some(count => count !== 0)) throw new Error(`something is left: ${JSON.stringify(late)}`)
  const recorded = (value: number, unit = ''): Figure => ({ value, unit, aim: null })
  return {
    requests: recorded(seen.requests),
    rows: recorded(rows),
    rowsComparedById: recorded(verdict.byId),
    rowsComparedByCounts: recorded(verdict.byCounts),
    requestsWithoutRow: recorded(verdict.withoutRow),
    rowsWrong: { value: verdict.problems.length, unit: '', aim: { atMost: 0 } },
    seconds: recorded(seen.seconds, 's'),
  }
}
