// A byte of egress is a byte of an IPv4 packet that leaves a guest by the uplink. The daemon's tap and ruleset, an
// uplink that is read byte by byte, and no sampling daemon. In a namespace of their own. Needs root.

import { expect, test } from 'bun:test'
import { guest, plan, quotaOf } from '../../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../../scripts/rigs/netns.ts'
import {
  echoPacket,
  openTapWire,
  sizeOf,
  type TapWire,
  tapMtuBytes,
  tcpFlags,
  tcpPacket,
  udpPacket,
  worldAddress,
} from '../../../../scripts/rigs/network/tap-wire.ts'
import { run } from '../../../../src/linux/command.ts'
import { rulesetText } from '../../../../src/vm/network/nft.plan.ts'

const capBytes = 1_048_576
/** Bytes that may be missing below the cap when it is reached. */
const undershootBytesMax = 65_536
const bounds = { timeoutMs: 60_000, outputBytesMax: 100_000 }
const guests = plan().vms.map(vm => ({ ...vm, limitBytes: capBytes }))
const from = { source: guest(1).address, destination: worldAddress }
const repeat = (count: number, packet: Uint8Array) => Array.from({ length: count }, () => packet)

async function openWire(): Promise<TapWire> {
  await run(['nft', '--file', '-'], { ...bounds, stdin: `flush ruleset\n${rulesetText(plan({ vms: guests }))}` })
  return await openTapWire(guest(1))
}

async function counted(): Promise<number> {
  const { stdout } = await run(['nft', '--json', 'list', 'quotas'], bounds)
  const { nftables } = JSON.parse(stdout) as { nftables: { quota?: { name: string; used: number } }[] }
  return quotaOf(Object.fromEntries(nftables.flatMap(({ quota }) => (quota ? [[quota.name, quota.used]] : []))), 1).cap
}

/** Scales both windows by 2^14, so that all may be on its way at once (RFC 7323 2.2). */
const windowScale = [1, 3, 3, 14]
const ports = { sourcePort: 4_000, destinationPort: 80 }

/**
 * Opens a connection to the world behind the uplink, which answers, then sends segments of the largest size. Returns
 * the bytes that left.
 */
function tcpSegments(wire: TapWire, count: number): Uint8Array[] {
  wire.send([
    tcpPacket(from, { ...ports, sequence: 999, acknowledgment: 0, flags: tcpFlags.syn, options: windowScale }),
  ])
  const opening = wire.left()
  const [syn] = opening
  if (syn === undefined) return []
  // Whichever address and port the host has given it.
  const destinationPort = ((syn[20] ?? 0) << 8) | (syn[21] ?? 0)
  const answer = { sourcePort: ports.destinationPort, destinationPort, sequence: 499, acknowledgment: 1_000 }
  const back = { source: worldAddress, destination: syn.subarray(12, 16).join('.') }
  wire.arrive(tcpPacket(back, { ...answer, flags: tcpFlags.syn | tcpFlags.ack, options: windowScale }))
  const data = new Uint8Array(tapMtuBytes - 40)
  const segment = { ...ports, acknowledgment: 500, flags: tcpFlags.ack, data }
  wire.send([tcpPacket(from, { ...segment, sequence: 1_000, data: new Uint8Array() })])
  // Windows of SYN segments are not scaled yet: this one opens it.
  wire.arrive(tcpPacket(back, { ...answer, sequence: 500, flags: tcpFlags.ack }))
  wire.send(Array.from({ length: count }, (_, n) => tcpPacket(from, { ...segment, sequence: 1_000 + n * data.length })))
  return [...opening, ...wire.left()]
}

inOwnNetns(
  import.meta.path,
  () => {
    test('of UDP, ICMP and TCP exactly the bytes that leave are counted, from the IP header on', async () => {
      // Goal: the billed number equals that of a capture: no link layer, and nothing for packets that are not sent on.
      using wire = await openWire()
      for (const [packets, what] of [
        [[28, 29, 576, tapMtuBytes].map(sizeBytes => udpPacket(from, sizeBytes)), 'UDP'],
        [[28, 84, tapMtuBytes].map(sizeBytes => echoPacket(from, sizeBytes)), 'ICMP'],
      ] as const) {
        const before = await counted()
        wire.send(packets)
        const left = wire.left()
        expect([what, sizeOf(left), (await counted()) - before]).toEqual([what, sizeOf(packets), sizeOf(packets)])
      }
      const before = await counted()
      const left = tcpSegments(wire, 100)
      expect(left.length).toBe(102)
      expect((await counted()) - before).toBe(sizeOf(left))
      // Asking for the host's own link-layer address, and speaking as somebody else.
      const settled = await counted()
      const arp = wire.frame(new Uint8Array(46)).map((byte, at) => (at === 13 ? 0x06 : byte))
      wire.sendFrames([arp])
      wire.send([udpPacket({ ...from, source: guest(2).address }, 1_000)])
      expect([wire.left().length, await counted()]).toEqual([0, settled])
    })

    const flood: [what: string, (wire: TapWire) => Uint8Array[]][] = [
      ['UDP of full packets', wire => sent(wire, repeat(1_000, udpPacket(from, tapMtuBytes)))],
      ['UDP of the least packets', wire => sent(wire, repeat(40_000, udpPacket(from, 28)))],
      ['ICMP', wire => sent(wire, repeat(1_500, echoPacket(from, 1_028)))],
      ['TCP', wire => tcpSegments(wire, 1_000)],
      [
        'everything at once',
        wire => [
          ...tcpSegments(wire, 200),
          ...Array.from({ length: 300 }, () => [
            ...sent(wire, repeat(2, udpPacket(from, 1_234))),
            ...sent(wire, repeat(2, echoPacket(from, 777))),
          ]).flat(),
          ...sent(wire, repeat(1_000, udpPacket(from, 28))),
        ],
      ],
    ]
    test.each(flood)('a flood of %s ends at the cap: never a byte over, at most 64 KiB under', async (_, send) => {
      // Goal: the kernel keeps the cap with nobody watching, and once it is spent nothing passes, however small.
      using wire = await openWire()
      const left = sizeOf(send(wire))
      expect([left <= capBytes, left > capBytes - undershootBytesMax]).toEqual([true, true])
      const after = [...repeat(500, udpPacket(from, 28)), ...repeat(10, echoPacket(from, 28))]
      expect(sent(wire, after)).toEqual([])
      expect(await counted()).toBe(capBytes)
    })
  },
  { timeoutMs: 180_000 },
)

function sent(wire: TapWire, packets: readonly Uint8Array[]): Uint8Array[] {
  const left: Uint8Array[] = []
  // As much at a time as waits at the uplink.
  for (let at = 0; at < packets.length; at += 5_000) {
    wire.send(packets.slice(at, at + 5_000))
    left.push(...wire.left())
  }
  return left
}
