// The firewall: what a VM more and a sample cost with 10, 100 and 1,000 VMs, and what the rules cost each packet. Real
// nftables, SQLite and taps in a network namespace of its own; VMs are rows of the ledger. Beside them DNS, and what a
// VM that hangs costs the others, which boots one.

import { systemClock } from '../../src/base/clock.ts'
import { formatIpv4, parseIpv4 } from '../../src/base/ipv4.ts'
import { silentLogger } from '../../src/base/log.ts'
import { createNft } from '../../src/host/network/nft.ts'
import { run as runCommand } from '../../src/linux/command.ts'
import { openStore } from '../../src/store/db.ts'
import { recordResource } from '../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, openVm } from '../../src/store/ledger/vm.query.ts'
import { VmNetwork } from '../../src/vm/network/network.driver.ts'
import { rulesetText } from '../../src/vm/network/nft.plan.ts'
import { guest, plan, unspent } from '../rigs/guest/two-guests.ts'
import { openTapWire, type TapWire, udpPacket, worldAddress } from '../rigs/network/tap-wire.ts'
import type { Figures } from './bench-report.ts'
import { measureDnsFlood } from './dns.bench.ts'
import { measureDnsRatio } from './dns-rate.ts'
import { measureHungVm } from './hung-vm.ts'
import { measureWithoutImage, percentile, round } from './in-netns.ts'
import type { BenchContext } from './main.ts'

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
  const { empty, nat, rules } = await measurePackets()
  return {
    ...figures,
    packetNs: { value: round(rules), unit: 'ns', aim: null },
    throughputRatio: { value: round(empty / rules), unit: '', aim: { atLeast: 0.5 } },
    // Cost of address translation by itself, without other rules.
    throughputRatioNat: { value: round(nat / rules), unit: '', aim: null },
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
  const network = new VmNetwork({
    ledger: store.ledger,
    nft: createNft({ table: 'strongroom', log: silentLogger }),
    clock: systemClock,
    log: silentLogger,
    ruleset: plan({ pool: '10.88.0.0/16' }),
    ownNetworks: () => [],
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

/**
 * Nanoseconds of processor time for each packet of one stream from a tap to the uplink: without any rule, with
 * translation alone, and with ours and 1,000 VMs.
 */
async function measurePackets(): Promise<{ empty: number; nat: number; rules: number }> {
  const vms = Array.from({ length: 1000 }, (_, n) => ({
    ...guest(1),
    ...(n === 0 ? {} : { tap: tapOf(n), address: addressOf(n + 256) }),
    ...unspent,
    limitBytes: 2 ** 50,
    opened: true,
    network: 'world' as const,
  }))
  const rulesets = {
    empty: '',
    nat: `add table inet plain
      add chain inet plain nat { type nat hook postrouting priority srcnat; }
      add rule inet plain nat oifname "uplink" masquerade\n`,
    rules: rulesetText(plan({ pool: '10.88.0.0/16', vms })),
  }
  using wire = await openTapWire(guest(1))
  const found = { empty: [] as number[], nat: [] as number[], rules: [] as number[] }
  // In turn, so that what else the machine does meets all alike.
  for (let turn = 0; turn < rounds; turn += 1) {
    for (const name of ['empty', 'nat', 'rules'] as const) {
      await nft(`flush ruleset\n${rulesets[name]}`)
      found[name].push(sendAll(wire))
    }
  }
  const best = (values: readonly number[]) => Math.min(...values)
  return { empty: best(found.empty), nat: best(found.nat), rules: best(found.rules) }
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
