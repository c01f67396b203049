// The processes of the DNS flood: service A with its DNS server, an HTTP client that measures it, and a flooder. One
// JSON line each; see dns-flood.ts.

import { encode } from 'dns-packet'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Names } from '../../../src/instances/dns/names.ts'
import { standingRates } from '../../../src/instances/dns/responder.ts'
import { startDns } from '../../../src/instances/dns/server.ts'
import { listenFrom, type ThreadStart } from '../../../src/instances/dns/thread.ts'
import { startAppliance } from '../instances/instances-service.ts'

const [role = '', ...argv] = process.argv.slice(2)
const say = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`)
const instanceCount = 20
const flooderPrefixes = 64
const batchPackets = 64

if (role === 'target') await serveTarget(argv[0] ?? '', argv[1] ?? '')
else if (role === 'flood') await flood(Number(argv[0]), Number(argv[1]), Number(argv[2]))
else if (role === 'client') await measure(argv[0] ?? '', argv[1] ?? '', Number(argv[2]))

/** Listens until its standard input ends. `directory`: for its database. */
async function serveTarget(mode: string, directory: string): Promise<void> {
  const appliance = await startAppliance({ directory })
  for (let i = 0; i < instanceCount; i += 1) await appliance.create()
  const view = () => ({
    id: '',
    state: 'running' as const,
    address: '10.88.0.7',
    addressV6: null,
    platform: 'tcg' as const,
    failureCode: null,
    failureMessage: null,
    failedAtMs: null,
    guest: null,
    opened: true,
  })
  const names = new Names({
    db: appliance.store.db,
    hostId: appliance.store.hostId,
    report: () => {},
    isPartial: () => false,
    engine: { view },
    namesMax: 256,
    hostAddresses: () => {
      const own = { v4: '192.0.2.1', v6: null }
      return { ns: own, instances: own, inference: null, builds: null }
    },
    clock: systemClock,
    log: silentLogger,
  })
  const created = await appliance.create()
  await names.start()
  const where = { address: '127.0.0.1', port: 0, domain: 'agents.example', names: names.memory }
  const dns =
    mode === 'thread'
      ? await startDns({ ...where, clock: systemClock, random: systemRandom, log: silentLogger })
      : await listenHere({
          ...where,
          except: [],
          publishes: false,
          rates: standingRates,
          seed: 1,
          cookieSecret: systemRandom(32),
          texts: [],
          limited: new SharedArrayBuffer(4),
          answers: new SharedArrayBuffer(64),
        })
  say({
    dnsPort: dns.port,
    url: `http://127.0.0.1:${appliance.port}/v1/instances`,
    key: appliance.keys.acme,
    name: created.hostname,
  })
  for await (const _ of Bun.stdin.stream());
  process.exit(0)
}

/** Both transports on this thread. */
async function listenHere(start: Omit<ThreadStart, 'transport'>) {
  const udp = await listenFrom({ ...start, transport: 'udp' })
  await listenFrom({ ...start, transport: 'tcp', port: udp.port })
  return udp
}

/** Asks for names that there are not, from many prefixes at once, a third of it no question at all. */
async function flood(port: number, packetsPerSecond: number, durationMs: number): Promise<void> {
  const ask = (i: number) =>
    encode({ type: 'query', id: i, flags: 0, questions: [{ name: `n${i}.acme.agents.example`, type: 'A' }] })
  const batch = Array.from({ length: batchPackets }, (_, i) => (i % 3 === 0 ? Buffer.alloc(60, i) : ask(i)))
  const sockets = await Promise.all(
    Array.from({ length: flooderPrefixes }, (_, i) =>
      Bun.udpSocket({
        hostname: `127.0.${i + 1}.1`,
        connect: { hostname: '127.0.0.1', port },
        socket: { error: () => {} },
      }),
    ),
  )
  const startedMs = performance.now()
  let sent = 0
  for (let turn = 0; ; turn += 1) {
    const passedMs = performance.now() - startedMs
    if (passedMs >= durationMs) break
    if (sent >= (passedMs / 1000) * packetsPerSecond) await Bun.sleep(0)
    else sent += sockets[turn % sockets.length]?.sendMany(batch) || 0
  }
  say({ packetsPerSecond: Math.round((sent / durationMs) * 1000) })
  process.exit(0)
}

/** The listing, one request after the other; every request's time in milliseconds. */
async function measure(url: string, key: string, durationMs: number): Promise<void> {
  const timesMs: number[] = []
  const startedMs = performance.now()
  while (performance.now() - startedMs < durationMs) {
    const beganMs = performance.now()
    const response = await fetch(url, { headers: { Authorization: `Bearer ${key}` } })
    await response.text()
    if (response.status !== 200) throw new Error(`the listing answered ${response.status}`)
    timesMs.push(performance.now() - beganMs)
    await Bun.sleep(2)
  }
  say({ timesMs: timesMs.map(ms => Math.round(ms * 100) / 100) })
  process.exit(0)
}
