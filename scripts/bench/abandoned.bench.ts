// Service B: 100,000 streams whose clients leave at every possible point, and the traces that stay: each stream must
// be in the ledger once.
// A broken rule fails the benchmark; the figures are growth between the state after 2,000 streams and after the last.

import { abandonStreams } from '../rigs/gateway/abandoned-streams.ts'
import type { Figure, Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const streams = 100_000
const early = 2_000
const MIB = 1024 * 1024

export async function run({ note }: BenchContext): Promise<Figures> {
  const seen = await abandonStreams({ streams, early, note })
  const { ledger, late, counted } = seen
  note(JSON.stringify(seen))
  const left = [late.running, late.reserved, late.upstreamRunning, late.waiting, late.lost]
  const problems = [...ledger.missing, ...ledger.unexpected, ...ledger.wrong]
  if (problems.length > 0) throw new Error(`the ledger is wrong: ${problems.join('\n')}`)
  if (left.some(count => count !== 0)) throw new Error(`something is left: ${JSON.stringify(late)}`)
  if (counted !== null && counted.byLimits !== counted.byLedger) throw new Error(`limits: ${JSON.stringify(counted)}`)
  const grown = (name: 'heapBytes' | 'residentBytes', atMost: number | null): Figure => ({
    value: Math.round((100 * (late[name] - seen.early[name])) / MIB) / 100,
    unit: 'MiB',
    aim: atMost === null ? null : { atMost },
  })
  return {
    streams: { value: seen.streams, unit: '', aim: { atLeast: streams } },
    rows: { value: ledger.rows, unit: '', aim: null },
    heapGrownMib: grown('heapBytes', 4),
    residentGrownMib: grown('residentBytes', null),
    descriptorsGrown: { value: late.descriptors - seen.early.descriptors, unit: '', aim: { atMost: 16 } },
    objectsGrown: { value: late.objects - seen.early.objects, unit: '', aim: null },
    seconds: { value: seen.seconds, unit: 's', aim: null },
  }
}
