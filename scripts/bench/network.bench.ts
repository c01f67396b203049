// The firewall: what a VM more and a sample cost with 10, 100 and 1,000 VMs, and what the rules cost each packet. Real
// nftables, SQLite and taps in a network namespace of its own; VMs are rows of the ledger. Beside them DNS, and what a
// VM that hangs costs the others, which boots one.

import { systemClock } from '../../src/base/clock.ts'
import { formatIpv4, parseIpv4 } from '../../src/base/ipv4.ts'
import { silentLogger } from '../../src/base/log.ts'
import { createNft } from '../../src/host/network/nft.ts'
import { createVmNamespace, removeVmNamespace } from '../../src/host/network/vm-namespace.ts'
import { run as runCommand } from '../../src/linux/command.ts'
import { openStore } from '../../src/store/db.ts'
import { recordResource } from '../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, openVm } from '../../src/store/ledger/vm.query.ts'
import { hostTableText } from '../../src/vm/network/host-table.plan.ts'
import { VmNetwork } from '../../src/vm/network/network.driver.ts'
import { rulesetText } from '../../src/vm/network/nft.plan.ts'
import { guest, hostPart, hostPlan, link, plan, unspent } from '../rigs/guest/two-guests.ts'
import { openTapWire, type TapWire, udpPacket, worldAddress } from '../rigs/network/tap-wire.ts'
import type { Figures } from './bench-report.ts'
import { measureDnsRatio } from './dns/rate.ts'
import { measureDnsFlood } from './dns.bench.ts'
import { measureHungVm } from './hung-vm.ts'
import { measureWithoutImage, percentile, round } from './in-netns.ts'
import type { BenchContext } from './main.ts'
import { measureStreamRates } from './network/stream-rate.ts'

const counts = [10, 100, 1000] as const
const runs = 5
const rounds = 7
const packets = 3_000
const commandTimeoutMs = 60_000

export async function run(context: BenchContext): Promise<Figures> {
  // One after the other: each is alone on the machine.
  return {
    ...(await measureWithoutImage(import.meta.path, context)),
    ...(await measureDnsRatio(context)),
    ...(await measureDnsFlood(context)),
    ...(await measureHungVm(context)),
  }
}

if (import.meta.main) await Bun.write(process.argv[2] ?? '', JSON.stringify(await measure()))

async function measure(): Promise<Figures> {
  const figures: Record<string, Figures[string]> = {}
  for (const count of counts) {
    const { addMs, sampleMs } = await measureTable(count)
    const baseline = (key: string) => (count === 10 ? {} : { baseline: `${key}10` })
    figures[`nftAddMs${count}`] = {
      value: addMs,
      unit: 'ms',
      aim: count === 1000 ? { atMost: 500 } : null,
      ...baseline('nftAddMs'),
    }
    figures[`nftSampleMs${count}`] = {
      value: sampleMs,
      unit: 'ms',
      aim: count === 1000 ? { atMost: 250 } : null,
      ...baseline('nftSampleMs'),
    }
    process.stdout.write(`${count} VMs: one more in ${addMs} ms, a sample in ${sampleMs} ms\n`)
  }
  const { plainMbPerS, oursMbPerS } = await measureStreamRates()
  process.stdout.write(`one stream: ${round(oursMbPerS)} MB/s, by plain forwarding ${round(plainMbPerS)} MB/s\n`)
  const { plain, nat, together, apart } = await measurePackets()
  for (const [name, ns] of Object.entries({ plain, nat, together, apart }))
    process.stdout.write(`${name}: ${round(ns)} ns a packet, ${round(plain / ns)} of plain forwarding\n`)
  return {
    ...figures,
    packetNs: { value: round(apart), unit: 'ns', aim: null },
    throughputRatio: { value: round(plain / apart), unit: '', aim: { atLeast: 0.4 } },
    streamMbPerS: { value: round(oursMbPerS), unit: 'MB/s', aim: null },
    streamRatio: { value: round(oursMbPerS / plainMbPerS), unit: '', aim: { atLeast: 0.9 } },
    // Cost of the second namespace.
    throughputRatioApart: { value: round(together / apart), unit: '', aim: { atLeast: 0.8 } },
    // Cost of address translation by itself, and of the rules, each without another namespace.
    throughputRatioNat: { value: round(plain / nat), unit: '', aim: null },
    throughputRatioTogether: { value: round(plain / together), unit: '', aim: null },
  }
}

function addressOf(n: number): string {
  return formatIpv4(parseIpv4('10.88.0.0') + n)
}

function tapOf(n: number): string {
  return `sr${n.toString(16).padStart(10, '0')}`
}

/** With as many VMs in the ledger and in the kernel: the transaction that brings one more, and a sample of all. */
async function measureTable(count: number): Promise<{ addMs: number; sampleMs: number }> {
  await nft('flush ruleset')
  const store = openStore(':memory:')
  const kernel = createNft({ table: 'strongroom', log: silentLogger })
  const network = new VmNetwork({
    ledger: store.ledger,
    nft: kernel,
    host: hostPart(kernel),
    clock: systemClock,
    log: silentLogger,
    ruleset: plan({ pool: '10.88.0.0/16' }),
    ownNetworks: () => [],
    ownAddresses: () => [],
    names: null,
    egressLimitBytes: 5_000_000_000,
    rescueLimitBytes: 50_000,
  })
  const add = (n: number) => {
    const id = `${n.toString(16).padStart(8, '0')}-0000-4000-8000-000000000000`
    const { db } = store.ledger
    insertVm(db, { id, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs: n })
    moveVm(db, { id, from: 'waiting', to: 'launching', nowMs: n, address: addressOf(n) })
    recordResource(db, { vmId: id, kind: 'nft', name: tapOf(n), nowMs: n })
    openVm(db, { id, nowMs: n })
  }
  for (let n = 1; n <= count; n += 1) add(n)
  await network.sync()
  const times = { add: [] as number[], sample: [] as number[] }
  for (let turn = 1; turn <= runs; turn += 1) {
    add(count + turn)
    times.add.push(await timed(() => network.sync()))
    times.sample.push(await timed(() => network.sample()))
  }
  return { addMs: percentile(times.add, 50), sampleMs: percentile(times.sample, 50) }
}

const layouts = ['plain', 'nat', 'together', 'apart'] as const
type Layout = (typeof layouts)[number]

/**
 * Nanoseconds of processor time for each packet of one stream from a tap to the uplink, with 1,000 VMs. `plain`: one
 * network namespace without any rule. `nat`: the same with translation alone. `together`: our rules and this host's in
 * one namespace. `apart`: as the appliance has it, in two with a link between.
 */
async function measurePackets(): Promise<Record<Layout, number>> {
  const vms = Array.from({ length: 1000 }, (_, n) => ({
    ...guest(1),
    ...(n === 0 ? {} : { tap: tapOf(n), address: addressOf(n + 256) }),
    ...unspent,
    limitBytes: 2 ** 50,
    opened: true,
    network: 'world' as const,
  }))
  const rules = rulesetText(plan({ pool: '10.88.0.0/16', vms }))
  const nat = `add table inet plain
    add chain inet plain nat { type nat hook postrouting priority srcnat; }
    add rule inet plain nat oifname "uplink" masquerade\n`
  const together = `${rules}${hostTableText(hostPlan({ table: 'strongroom_host', link: guest(1).tap }))}`
  const found: Record<Layout, number[]> = { plain: [], nat: [], together: [], apart: [] }
  // In turn, so that other work of the machine meets all alike.
  for (let turn = 0; turn < rounds; turn += 1) {
    {
      using wire = await openTapWire(guest(1))
      for (const [name, text] of Object.entries({ plain: '', nat, together } satisfies Partial<
        Record<Layout, string>
      >)) {
        await nft(`flush ruleset\n${text}`)
        found[name as Layout].push(sendAll(wire))
      }
    }
    const namespace = createVmNamespace({ ...link, loopbackClients: false, name: 'srt-bench' })
    await namespace.open()
    {
      using wire = await openTapWire(guest(1), { namespace })
      await namespace.netns.run(() => nft(rules))
      await nft(`flush ruleset\n${hostTableText(hostPlan())}`)
      found.apart.push(sendAll(wire))
    }
    await removeVmNamespace({ name: namespace.name, tapPrefix: link.tapPrefix })
  }
  const least = (values: readonly number[]) => Math.min(...values)
  return {
    plain: least(found.plain),
    nat: least(found.nat),
    together: least(found.together),
    apart: least(found.apart),
  }
}

function sendAll(wire: TapWire): number {
  const stream = Array.from({ length: packets }, () =>
    udpPacket({ source: guest(1).address, destination: worldAddress }, 1_000),
  )
  wire.send(stream.slice(0, 100))
  wire.left()
  const before = process.cpuUsage()
  wire.send(stream)
  // The kernel takes each packet all the way within the write: what it costs is ours, and what others do is not.
  const { user, system } = process.cpuUsage(before)
  const ns = ((user + system) * 1000) / packets
  const arrived = wire.left().length
  if (arrived !== packets) throw new Error(`${arrived} of ${packets} packets have left`)
  return ns
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  await work()
  return performance.now() - startedMs
}

async function nft(text: string): Promise<void> {
  await runCommand(['nft', '--file', '-'], {
    stdin: `${text}\n`,
    timeoutMs: commandTimeoutMs,
    outputBytesMax: 1_000_000,
  })
}
