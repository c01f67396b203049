// A VM whose host is flushed, and one that an earlier release has left in this host's own network namespace.

import { expect, test } from 'bun:test'
import { insideVms } from '../../scripts/rigs/inside.ts'
import { startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { openUplink, worldAddress } from '../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../scripts/rigs/until.ts'

const timeoutMs = 1_500_000
const bootTimeoutMs = 900_000
/** In a private network, which is denied by default. */
const lanAddress = '10.1.2.3'

function command(argv: readonly string[], stdin = ''): string {
  const { stdout, stderr, exitCode } = Bun.spawnSync([...argv], { stdin: Buffer.from(stdin) })
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr.toString()}`)
  return stdout.toString()
}

function usedBytes(argv: readonly string[]): number {
  return Number(/ used (\d+) bytes/.exec(command(argv))?.[1] ?? Number.NaN)
}

/** Puts the VM's tap back to where earlier releases had it, with its count, and ends the namespace of VMs. */
function formerLayout(tap: string, address: string): number {
  const used = usedBytes(insideVms(['nft', 'list', 'quota', 'inet', 'strongroom', tap]))
  command(insideVms(['ip', 'link', 'set', 'dev', tap, 'netns', `${process.pid}`]))
  command(['ip', 'netns', 'delete', 'strongroom'])
  command(
    ['ip', '-batch', '-'],
    [
      `link set dev ${tap} up`,
      `address replace 169.254.88.1/32 dev ${tap} scope link`,
      `route replace ${address}/32 dev ${tap} src 169.254.88.1`,
    ].join('\n'),
  )
  command(
    ['nft', '--file', '-'],
    [
      'flush ruleset',
      'add table inet strongroom',
      `add quota inet strongroom ${tap} { over 5368709120 bytes used ${used} bytes; }`,
      `add quota inet strongroom ${tap}_rescue { over 268435456 bytes used 0 bytes; }`,
      'add chain inet strongroom entry { type filter hook prerouting priority -450; policy accept; }',
      `add rule inet strongroom entry iifname "${tap}" quota name "${tap}" drop`,
      'add table inet strongroom_guard',
    ].join('\n'),
  )
  return used
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'flushes of the host and an upgrade from the former layout leave SSH and names as they were, open nothing and lose no count',
      async () => {
        // Goal: a real guest with an SSH session notices neither, and its count goes on.
        // Longer than usual: it may boot beside other tests.
        await using started = await startWithCustomer('boot_timeout_ms = 900_000')
        const { appliance, acme } = started
        using uplink = await openUplink()
        command(['ip', 'route', 'add', lanAddress, 'via', worldAddress])
        const { name, hostname } = (await acme.create()).body.data
        await acme.reached(name, 'ready', bootTimeoutMs)
        const address = (await appliance.resolve(hostname)) ?? ''
        const [tap = ''] = holdings(appliance.stateDir).taps
        const toLan = (count: number) =>
          `for i in $(seq ${count}); do echo x > /dev/udp/${lanAddress}/9; done 2>/dev/null`
        const arrivedInLan = () =>
          uplink.left().filter(packet => Bun.deepEquals([...packet.subarray(16, 20)], [10, 1, 2, 3])).length
        const session = appliance.sshSession(hostname, `while read line; do ${toLan(20)}; echo "heard $line"; done`)
        const answers = async (word: string) => {
          session.type(`${word}\n`)
          await session.printed(`heard ${word}`)
        }
        await answers('first')

        for (let turn = 0; turn < 4; turn += 1) {
          command(['nft', 'flush', 'ruleset'])
          await answers(`flush-${turn}`)
        }
        await appliance.kill()
        for (let turn = 0; turn < 4; turn += 1) {
          command(['nft', 'flush', 'ruleset'])
          await answers(`down-${turn}`)
        }
        expect(arrivedInLan()).toBe(0)

        const used = formerLayout(tap, address)
        await answers('former')
        // That table has none of the former rules, but for the count.
        uplink.left()
        await appliance.start()
        await until('the VM is reached again', 60_000, async () => {
          const { routes } = holdings(appliance.stateDir)
          return routes.filter(route => route === address).length === 2
        })
        await answers('taken-over')
        expect(await appliance.resolve(hostname)).toBe(address)
        expect((await appliance.ssh(hostname, ['echo', 'again'])).stdout).toBe('again\n')
        expect(arrivedInLan()).toBe(0)
        expect(usedBytes(insideVms(['nft', 'list', 'quota', 'inet', 'strongroom', tap]))).toBeGreaterThan(used)
        expect(command(['nft', 'list', 'tables'])).toBe('table inet strongroom\n')
        expect(command(['ip', '-json', 'link', 'show', 'type', 'tun'])).not.toContain(tap)
        expect(appliance.log()).toContain('were moved into their own network namespace')
        expect(await appliance.admin<{ leaks: unknown[] }>('doctor', '--leaks')).toMatchObject({ leaks: [] })
        session.type('\x04')
        await acme.end(name)
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
