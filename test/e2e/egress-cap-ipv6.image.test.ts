// The egress cap over IPv6: a real VM, and a count of what leaves its host, in an isolated network namespace.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { createAppliance } from '../../scripts/rigs/appliance.ts'
import { insideVms } from '../../scripts/rigs/inside.ts'
import { createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { addUplinkV6, openUplink, sizeOf, worldAddress, worldAddressV6 } from '../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../scripts/rigs/until.ts'

const timeoutMs = 600_000
const capBytes = 1_048_576
const datagramBytes = 1_400
const undershootBytesMax = 65_536
const etherTypeV6 = 0x86dd
const udp = 17

/** Datagrams to the world, by one process: as fast as the guest can. */
const blastCommand = (address: string, count: number) =>
  `exec 3>/dev/udp/${address}/9; dd if=/dev/zero bs=${datagramBytes} count=${count} 2>/dev/null >&3; echo blasted`

/** The kernel's quota of the one VM. */
function quota(): { used: number; bytes: number } {
  const { stdout } = Bun.spawnSync(insideVms(['nft', '--json', 'list', 'quotas', 'table', 'inet', 'strongroom']))
  type Quota = { name: string; used: number; bytes: number }
  const { nftables } = JSON.parse(stdout.toString()) as { nftables: { quota?: Quota }[] }
  const found = nftables.flatMap(item => (item.quota && !item.quota.name.endsWith('_rescue') ? [item.quota] : []))
  expect(found.length).toBe(1)
  const { used = -1, bytes = -1 } = found[0] ?? {}
  return { used, bytes }
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a VM that floods the world by IPv6 ends at its cap, and has none left for IPv4',
      async () => {
        // Goal: never a byte over, at most 64 KiB under, counted where it leaves the host; both families share the
        // cap; the owner sees the block.
        const network = 'pool_v6 = "2001:db8:88::/64"\nresolvers = ["9.9.9.9"]'
        const lines = { listen: 'inference = "[::]:8442"', inference: 'placement = "host"', network }
        const open = `[network.egress]\nallow = ["${worldAddress}"]\n`
        await using appliance = await createAppliance('', 'vm', undefined, open, lines)
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        using uplink = await openUplink()
        await addUplinkV6()
        const { name, hostname } = (await acme.create()).body.data
        await acme.reached(name, 'ready', 300_000)
        await appliance.kill()
        const ledger = new Database(join(appliance.stateDir, 'strongroom.db'))
        ledger.run('UPDATE vms SET egress_limit_bytes = ?', [capBytes])
        ledger.close()
        await appliance.start()
        await until('the cap is in the kernel', 60_000, () => quota().bytes === capBytes)
        const session = appliance.sshSession(
          hostname,
          `echo there; read line; ${blastCommand(worldAddressV6, 1_500)}; read line`,
        )
        await session.printed('there')
        // The host's own messages to its neighbours do not count.
        const leftV6 = () => uplink.left(etherTypeV6).filter(packet => packet[6] === udp)
        leftV6()
        const before = quota().used
        expect(before).toBeLessThan(capBytes / 2)
        session.type('go\n')
        await session.printed('blasted')
        session.type('bye\n')
        expect(await session.exited).toBe(0)
        expect(quota()).toEqual({ used: capBytes, bytes: capBytes })
        const packets = leftV6()
        await until('what has passed has left', 60_000, () => {
          packets.push(...leftV6())
          return sizeOf(packets) > capBytes - before - undershootBytesMax
        })
        expect(new Set(packets.map(packet => packet.length))).toEqual(new Set([datagramBytes + 48]))
        expect(sizeOf(packets)).toBeLessThanOrEqual(capBytes - before)

        expect((await appliance.ssh(hostname, [blastCommand(worldAddressV6, 10)])).stdout).toBe('blasted\n')
        expect(leftV6()).toEqual([])
        expect((await appliance.ssh(hostname, [blastCommand(worldAddress, 10)])).stdout).toBe('blasted\n')
        expect(uplink.left()).toEqual([])
        await until('the owner sees the block', 60_000, async () => (await acme.usage()).usage.egress_blocked)
        expect((await acme.usage()).usage.egress_bytes).toBe(capBytes)
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
