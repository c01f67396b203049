// Goal: a DNS flood neither slows service A nor takes memory, and honest clients are answered meanwhile.

import { expect, test } from 'bun:test'
import { Resolver } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import { measureFlood, withFloodTarget } from '../../../scripts/rigs/dns/flood.ts'
import { askOverTcp } from '../../rigs/dns/query.ts'

const flood = { packetsPerSecond: 50_000, durationMs: 10_000 }
/** Bound of the issue. Other load on the same CPUs counts too, so the listing is also measured without a flood. */
const p99MsMax = 100
const p99RatioMax = 20
/** Memory that half a million packets may leave behind: less than a hundred bytes each. */
const residentMiBMax = 48

test('goal: 50,000 packets a second for 10 s leave the p99 of the listing under 100 ms, and names resolve', async () => {
  await withFloodTarget(async target => {
    const calm = await measureFlood(target, { packetsPerSecond: 0, durationMs: 3_000 })
    await measureFlood(target, { ...flood, durationMs: 1_000 })
    const beforeMiB = await residentMiB(target.pid)
    const flooded = measureFlood(target, flood)
    await Bun.sleep(2_000)
    const resolver = new Resolver({ timeout: 1_000, tries: 5 })
    resolver.setServers([`127.0.0.1:${target.dnsPort}`])
    const addresses = await resolver.resolve4(target.name)
    const overTcp = await askOverTcp(target.dnsPort, target.name)
    const { p99Ms, requests, packetsPerSecond } = await flooded
    const grownMiB = Math.round((await residentMiB(target.pid)) - beforeMiB)
    const line = `calm ${calm.p99Ms} ms, flooded ${p99Ms} ms at ${packetsPerSecond} packets/s over ${requests} requests, ${grownMiB} MiB more`
    process.stdout.write(`listing p99: ${line}\n`)
    expect(packetsPerSecond).toBeGreaterThan(10_000)
    expect(requests).toBeGreaterThan(100)
    expect(p99Ms, line).toBeLessThan(Math.max(p99MsMax, calm.p99Ms * p99RatioMax))
    expect(grownMiB, line).toBeLessThan(residentMiBMax)
    expect([addresses, overTcp]).toEqual([['10.88.0.7'], 1])
  })
}, 60_000)

async function residentMiB(pid: number): Promise<number> {
  const [, kib = '0'] = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kib) / 1024
}
