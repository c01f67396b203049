// A guest whose card sends frames longer than its interface's MTU: no more leaves than is counted. The daemon's tap and
// ruleset, an uplink that is read byte by byte, in a namespace of their own. Needs root.

import { expect, test } from 'bun:test'
import { guest, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../../scripts/rigs/netns.ts'
import { openTapWire, sizeOf, tapMtuBytes, udpPacket, worldAddress } from '../../../../scripts/rigs/network/tap-wire.ts'
import { run } from '../../../../src/linux/command.ts'
import { rulesetText } from '../../../../src/vm/network/nft.plan.ts'

const bounds = { timeoutMs: 60_000, outputBytesMax: 100_000 }

inOwnNetns(
  import.meta.path,
  () => {
    test('packets above the tap’s MTU go nowhere, and count for nothing', async () => {
      // Goal: the host cuts nothing into fragments for a guest: each has a header more than was counted.
      await run(['nft', '--file', '-'], { ...bounds, stdin: `flush ruleset\n${rulesetText(plan())}` })
      using wire = await openTapWire(guest(1))
      const from = { source: guest(1).address, destination: worldAddress }
      wire.send([tapMtuBytes + 1, 9_000, 65_000].map(sizeBytes => udpPacket(from, sizeBytes)))
      expect(wire.left()).toEqual([])
      wire.send([udpPacket(from, tapMtuBytes)])
      expect(sizeOf(wire.left())).toBe(tapMtuBytes)
      const { stdout } = await run(['nft', '--json', 'list', 'quota', 'inet', 'strongroom', guest(1).tap], bounds)
      const { nftables } = JSON.parse(stdout) as { nftables: { quota?: { used: number } }[] }
      expect(nftables.find(item => item.quota !== undefined)?.quota?.used).toBe(tapMtuBytes)
    })
  },
  { timeoutMs: 180_000 },
)
