import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { insideVms } from '../../scripts/rigs/inside.ts'
import { startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { openUplink, sizeOf, type Uplink, worldAddress } from '../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../scripts/rigs/until.ts'

const timeoutMs = 600_000
const capBytes = 1_048_576
const datagramBytes = 1_400
const undershootBytesMax = 65_536

/** Datagrams to the world, by one process: as fast as the guest can. */
const blastCommand = (count: number) =>
  `exec 3>/dev/udp/${worldAddress}/9; dd if=/dev/zero bs=${datagramBytes} count=${count} 2>/dev/null >&3; echo blasted`

/** The kernel's quota of the one capped VM. */
function quota(): { used: number; bytes: number } {
  const { stdout } = Bun.spawnSync(insideVms(['nft', '--json', 'list', 'quotas', 'table', 'inet', 'strongroom']))
  type Quota = { name: string; used: number; bytes: number }
  const { nftables } = JSON.parse(stdout.toString()) as { nftables: { quota?: Quota }[] }
  const found = nftables.flatMap(item => (item.quota && !item.quota.name.endsWith('_rescue') ? [item.quota] : []))
  expect(found.length).toBe(1)
  const { used = -1, bytes = -1 } = found[0] ?? {}
  return { used, bytes }
}

/** Bytes that have left since the last look; some may be under way still. */
async function leftAtLeast(uplink: Uplink, bytesMin: number): Promise<number> {
  let left = 0
  await until(`${bytesMin} bytes have left`, 60_000, () => {
    left += sizeOf(uplink.left())
    return left >= bytesMin
  })
  return left + sizeOf(uplink.left())
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'a VM that floods the world ends at its cap with the daemon killed, and goes on where an operator has raised it',
      async () => {
        // Goal: never a byte over, at most 64 KiB under, counted where it leaves the host; the owner sees the block,
        // keeps SSH, and sees it lifted. Its destination is in a private network, which is closed by default.
        const open = `[network.egress]\nallow = ["${worldAddress}"]\n`
        await using started = await startWithCustomer('', 'vm', undefined, open)
        const { appliance, acme } = started
        using uplink = await openUplink()
        const { name, hostname } = (await acme.create()).body.data
        await acme.reached(name, 'ready', 300_000)
        await appliance.kill()
        const ledger = new Database(join(appliance.stateDir, 'strongroom.db'))
        ledger.run('UPDATE vms SET egress_limit_bytes = ?', [capBytes])
        ledger.close()
        await appliance.start()
        await until('the cap is in the kernel', 60_000, () => quota().bytes === capBytes)
        const session = appliance.sshSession(hostname, `echo there; read line; ${blastCommand(1_500)}; read line`)
        await session.printed('there')
        await appliance.kill()
        uplink.left()
        const before = quota().used
        expect(before).toBeLessThan(capBytes / 2)
        session.type('go\n')
        await session.printed('blasted')
        session.type('bye\n')
        expect(await session.exited).toBe(0)
        expect(quota()).toEqual({ used: capBytes, bytes: capBytes })
        const left = await leftAtLeast(uplink, capBytes - before - undershootBytesMax + 1)
        expect(left).toBeLessThanOrEqual(capBytes - before)

        await appliance.start()
        await until('the owner sees the block', 60_000, async () => (await acme.usage()).usage.egress_blocked)
        const { usage } = await acme.usage()
        expect(usage).toMatchObject({ egress_bytes: capBytes, egress_block_applied_at: expect.any(String) })
        expect((await appliance.ssh(hostname, [blastCommand(10)])).stdout).toBe('blasted\n')
        expect(uplink.left()).toEqual([])

        const ref = `acme/${name}`
        const terms = ['--to', '2MiB', '--reason', 'ticket 7']
        const raised = await appliance.admin('instance', 'egress', 'raise', ref, ...terms)
        expect(raised).toMatchObject({ egress_limit_bytes: 2 * capBytes, egress_block_applied_at: null })
        expect((await acme.usage()).usage).toMatchObject({ egress_blocked: false, egress_block_applied_at: null })
        expect((await appliance.ssh(hostname, [blastCommand(100)])).stdout).toBe('blasted\n')
        const whole = 100 * (datagramBytes + 28)
        expect(await leftAtLeast(uplink, whole)).toBe(whole)
        await appliance.kill()
        await appliance.start()
        await until('it is counted', 60_000, async () => (await acme.usage()).usage.egress_bytes > capBytes + 142_800)
        expect((await acme.usage()).usage.egress_blocked).toBe(false)
        const { events } = await appliance.admin<{ events: { kind: string }[] }>('instance', 'logs', ref)
        const kinds = events.map(({ kind }) => kind).filter(kind => kind.startsWith('instance.egress'))
        expect(kinds).toEqual(['instance.egress_blocked', 'instance.egress_raised'])
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
