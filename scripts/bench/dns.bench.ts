// DNS: queries a second beside NSD, and under flood what it costs service A's listing, with the DNS server on its own
// thread and, to compare, on the same one. Loopback only.

import { type FloodFigures, measureFlood, withFloodTarget } from '../rigs/dns/flood.ts'
import type { Figures } from './bench-report.ts'
import { measureDnsRatio } from './dns/rate.ts'
import type { BenchContext } from './main.ts'

const durationMs = 10_000
/** Queries a second: none, the rate that the aims name, and more than the flooder can send. */
const rates = { calm: 0, flood: 50_000, torrent: 1_000_000 } as const

export async function run({ note, signal }: BenchContext): Promise<Figures> {
  const figures: Record<string, Figures[string]> = { ...(await measureDnsRatio({ note, signal })) }
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

/** For another benchmark's report: p99 of the listing without a flood and under the issue's. */
export async function measureDnsFlood({ note, signal }: Pick<BenchContext, 'note' | 'signal'>): Promise<Figures> {
  return await withFloodTarget(async target => {
    const calm = await measureFlood(target, { packetsPerSecond: rates.calm, durationMs: durationMs / 2 })
    signal.throwIfAborted()
    const flooded = await measureFlood(target, { packetsPerSecond: rates.flood, durationMs })
    note(`dns flood: calm ${JSON.stringify(calm)}, flooded ${JSON.stringify(flooded)}`)
    return {
      dnsCalmApiP99Ms: { value: calm.p99Ms, unit: 'ms', aim: null },
      dnsFloodApiP99Ms: { value: flooded.p99Ms, unit: 'ms', aim: { atMost: 100 }, baseline: 'dnsCalmApiP99Ms' },
    }
  })
}

function figuresOf(name: string, seen: FloodFigures, baseline: string): Figures {
  const aim = name === 'thread_flood' ? { atMost: 100 } : null
  return {
    [`${name}_p99_ms`]: { value: seen.p99Ms, unit: 'ms', aim, ...(seen.packetsPerSecond === 0 ? {} : { baseline }) },
    [`${name}_max_ms`]: { value: seen.maxMs, unit: 'ms', aim: null },
    [`${name}_packets_per_s`]: { value: seen.packetsPerSecond, unit: '/s', aim: null },
  }
}
