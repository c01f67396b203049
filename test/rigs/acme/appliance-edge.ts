// The parts of an appliance that certificates by ACME go through, without VMs: its certificates, its DNS server on real
// threads, an HTTPS listener.

import { freeRates } from '../../../scripts/rigs/dns/server.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { AcmeConfig } from '../../../src/config/acme.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { createTls, type Tls } from '../../../src/http/certificate.ts'
import { serveTls } from '../../../src/http/serve.ts'
import { NameTableWriter, nameTableMemory } from '../../../src/instances/dns/name-table.ts'
import { type DnsServer, startDns } from '../../../src/instances/dns/server.ts'
import { certificateShown, type Shown } from './tls-client.ts'

export const domain = 'agents.example'

/** Every host name of the domain leads to this machine. */
export async function startEdgeDns(): Promise<DnsServer> {
  const memory = nameTableMemory(16)
  const names = new NameTableWriter(memory)
  for (const name of ['ns', 'instances', 'inference', 'builds']) names.set(name, { v4: '127.0.0.1', v6: null })
  return startDns({
    address: '127.0.0.1',
    port: 0,
    domain,
    names: memory,
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'error', sink: () => {}, nowMs: Date.now }),
    rates: freeRates,
  })
}

export type Edge = {
  readonly tls: Tls
  readonly port: number
  readonly events: { kind: string; detail: Record<string, unknown> }[]
  readonly lines: string[]
  /** The certificate that a client of this name is shown, by the given authorities. */
  readonly shown: (name: string | null, ca: string) => Promise<Shown>
} & AsyncDisposable

export async function startEdge({
  stateDir,
  dns,
  acme,
  clock = systemClock,
  placement = 'host',
}: {
  readonly stateDir: string
  readonly dns: DnsServer | null
  readonly acme: Partial<AcmeConfig>
  readonly clock?: Clock
  readonly placement?: 'host' | 'vm'
}): Promise<Edge> {
  const config = defaultConfig()
  const events: Edge['events'] = []
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => void lines.push(line), nowMs: clock.nowMs })
  const tls = await createTls({
    config: {
      ...config,
      domain,
      listen: { ...config.listen, dns: dns === null ? '' : '127.0.0.1:53' },
      inference: { placement },
      tls: { ...config.tls, acme: { ...config.tls.acme, terms_agreed: true, ...acme } },
    },
    stateDir,
    clock,
    random: systemRandom,
    log,
    onEvent: (kind, detail) => void events.push({ kind, detail }),
  })
  const served = { tls, log, hostname: '127.0.0.1', port: 0, idleTimeoutSeconds: 10, requestBodyBytesMax: 1024 }
  const server = serveTls(() => new Response('here'), {
    ...served,
    tls: {
      current: () => tls.current(),
      named: () => tls.named(),
      guestCertificate: () => tls.guestCertificate(),
      onChange: listener => tls.onChange(listener),
    },
  })
  tls.startAcme({ showTexts: dns?.showTexts ?? null })
  return {
    tls,
    port: server.port,
    events,
    lines,
    shown: (name, ca) => certificateShown(server.port, name, ca),
    [Symbol.asyncDispose]: async () => {
      await server.stop(false)
      await tls.stop()
    },
  }
}
