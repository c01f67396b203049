// A guest that asks the host to segment its frames: the counted bytes are those that leave. QEMU's card, the daemon's
// tap and ruleset, an uplink that is read byte by byte, in a namespace of their own. Needs root.

import { expect, test } from 'bun:test'
import { guest, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../../scripts/rigs/netns.ts'
import { openTapWire, sizeOf, tcpFlags, tcpPacket, worldAddress } from '../../../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { run } from '../../../../src/linux/command.ts'
import { rulesetText } from '../../../../src/vm/network/nft.plan.ts'
import { gsoHeader, startHostileNic } from '../../../rigs/hostile/nic.ts'

const bounds = { timeoutMs: 60_000, outputBytesMax: 100_000 }
/** linux/if_tun.h: IFF_VNET_HDR. */
const vnetHeader = 0x4000
/** VIRTIO 1.3, 5.1.3: CSUM, HOST_TSO4, HOST_TSO6, HOST_ECN, HOST_UFO. */
const offloads = (1 << 0) | (1 << 11) | (1 << 12) | (1 << 13) | (1 << 14)
const frameCount = 20
const dataBytes = 1_400

/** Result of an attack: bytes counted, bytes that left, and the card's offer. */
async function attack(foreignFlags?: number) {
  await run(['nft', '--file', '-'], { ...bounds, stdin: `flush ruleset\n${rulesetText(plan())}` })
  using wire = await openTapWire(guest(1), foreignFlags === undefined ? {} : { foreignFlags })
  const nic = `mac=${guest(1).mac},host_tso4=off,host_tso6=off,host_ufo=off,romfile=`
  using card = await startHostileNic({ fd: wire.fd, nic })
  const from = { source: guest(1).address, destination: worldAddress }
  const ports = { sourcePort: 4_000, destinationPort: 80, acknowledgment: 1, flags: tcpFlags.ack }
  const left: Uint8Array[] = []
  for (let n = 0; n < frameCount; n += 1) {
    const packet = tcpPacket(from, { ...ports, sequence: 1 + n * dataBytes, data: new Uint8Array(dataBytes) })
    await card.send(gsoHeader({ gsoSize: 8, headerBytes: 54 }), wire.frame(packet))
    left.push(...wire.left())
  }
  await until('all have left', 60_000, () => {
    left.push(...wire.left())
    return left.length >= frameCount
  })
  const { stdout } = await run(['nft', '--json', 'list', 'quota', 'inet', 'strongroom', guest(1).tap], bounds)
  const { nftables } = JSON.parse(stdout) as { nftables: { quota?: { used: number } }[] }
  const counted = nftables.find(item => item.quota !== undefined)?.quota?.used
  return { counted, left: sizeOf(left), packets: left.length, offered: card.offered & offloads }
}

inOwnNetns(
  import.meta.path,
  () => {
    test('headers that ask for segments of 8 bytes are dropped, and the frame leaves as it is counted', async () => {
      // Goal: no guest, whatever its driver says, gets more bytes onto the wire than its cap is charged for.
      const whole = frameCount * (dataBytes + 40)
      expect(await attack()).toEqual({ counted: whole, left: whole, packets: frameCount, offered: 0 })
    })

    test('the same frames through a tap that takes such headers leave as many more bytes than are counted', async () => {
      // Goal: the attack of the test above is one: without it nothing would be shown.
      const { counted = 0, left } = await attack(vnetHeader)
      expect(left).toBeGreaterThan(2 * counted)
    })
  },
  { timeoutMs: 180_000 },
)
