// DNS under flood: what it costs service A's listing, with the DNS server on its own thread and, to compare, on the same one. Loopback only.

import { type FloodFigures, measureFlood, withFloodTarget } from '../../test/rigs/dns-flood.ts'
import type { Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const durationMs = 10_000
/** Of the issue, and as much as the flooder can. */
const rates = { calm: 0, flood: 50_000, torrent: 1_000_000 } as const

export async function run({ note, signal }: BenchContext): Promise<Figures> {
  const figures: Record<string, Figures[string]> = {}
  for (const mode of ['thread', 'main'] as const) {
    await withFloodTarget(async target => {
      for (const [name, packetsPerSecond] of Object.entries(rates)) {
        signal.throwIfAborted()
        const seen = await measureFlood(target, { packetsPerSecond, durationMs })
        note(`${mode} ${name}: ${JSON.stringify(seen)}`)
        Object.assign(figures, figuresOf(`${mode}_${name}`, seen, `${mode}_calm_p99_ms`))
      }
    }, mode)
  }
  return figures
}

function figuresOf(name: string, seen: FloodFigures, baseline: string): Figures {
  const aim = name === 'thread_flood' ? { atMost: 100 } : null
  return {
    [`${name}_p99_ms`]: { value: seen.p99Ms, unit: 'ms', aim, ...(seen.packetsPerSecond === 0 ? {} : { baseline }) },
    [`${name}_max_ms`]: { value: seen.maxMs, unit: 'ms', aim: null },
    [`${name}_packets_per_s`]: { value: seen.packetsPerSecond, unit: '/s', aim: null },
  }
}
