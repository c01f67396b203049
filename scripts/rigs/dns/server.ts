// The DNS server on its thread, with a few names of `agents.example`.

import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type Logger, silentLogger } from '../../../src/base/log.ts'
import { NameTableWriter, nameTableMemory } from '../../../src/instances/dns/name-table.ts'
import type { RateSettings } from '../../../src/instances/dns/rate.plan.ts'
import { type DnsDeps, startDns } from '../../../src/instances/dns/server.ts'

const free: RateSettings = {
  perSecond: 1e9,
  burst: 1e9,
  slip: 1,
  windowMs: 1,
  perWindow: 1e9,
  truncatedPerWindow: 1e9,
  prefixesMax: 1_024,
}
/** No limits. */
export const freeRates = { forgeable: free, cookie: free, tcp: free } as const

export const hostKeyDigest = new Uint8Array(32).fill(5)

export type DnsRig = {
  readonly port: number
  readonly names: NameTableWriter
  /** Lines logged at error. */
  readonly errors: readonly string[]
}

export async function withDns<T>(
  { namesMax = 16, ...change }: Partial<DnsDeps> & { namesMax?: number },
  work: (rig: DnsRig) => Promise<T>,
): Promise<T> {
  const memory = nameTableMemory(namesMax)
  const names = new NameTableWriter(memory)
  names.set('abcd2345.acme', { v4: '10.88.0.7', v6: null }, hostKeyDigest)
  names.set('dual2345.acme', { v4: '10.88.0.9', v6: '2001:db8::9' })
  names.set('ns', { v4: '192.0.2.1', v6: '2001:db8::1' })
  const errors: string[] = []
  const log: Logger = { ...silentLogger, error: message => void errors.push(message) }
  const server = await startDns({
    address: '127.0.0.1',
    port: 0,
    domain: 'agents.example',
    names: memory,
    clock: systemClock,
    random: systemRandom,
    log,
    ...change,
  })
  try {
    return await work({ port: server.port, names, errors })
  } finally {
    await server.close()
  }
}
