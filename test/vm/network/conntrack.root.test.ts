// Conntrack entries of a VM, and who would inherit them: real nftables and conntrack between namespaces. Needs root.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import {
  guest,
  hostPart,
  hostPlan,
  link,
  nextHop,
  objectsOf,
  plan,
  unspent,
} from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, inOwnNetns, type Netns } from '../../../scripts/rigs/netns.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { forgetConnections, requireConntrack } from '../../../src/host/network/conntrack.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { openStore } from '../../../src/store/db.ts'
import { restingAt } from '../../../src/store/ledger/address.query.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { VmNetwork } from '../../../src/vm/network/network.driver.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const timeoutMs = 60_000
const address = '10.88.0.1'
const [guestPort, worldPort] = [5_000, 7_000]

const sh = (text: string) => {
  const { exitCode, stderr } = Bun.spawnSync(['sh', '-ec', text])
  if (exitCode !== 0) throw new Error(`${text}: ${stderr}`)
}

const namespace = createVmNamespace({ ...link, name: 'srt-rest' })

/** The same address behind one tap after the other, as one tenant's VM follows another's. */
function plugIn(n: 1 | 2): Netns {
  const { tap, mac } = guest(n)
  const netns = createNetns()
  namespace.netns.run(() =>
    sh(`
    ip link add ${tap} type veth peer name eth0 netns ${netns.name}
    ip link set ${tap} up
    ip address add ${nextHop}/32 dev ${tap}
    ip route replace ${address}/32 dev ${tap} src ${nextHop}
    ip neighbour replace proxy ${nextHop} dev ${tap}`),
  )
  sh(`
    ip route replace ${address}/32 via 192.0.0.8 dev ${namespace.link} onlink src ${nextHop}
    ip -netns ${netns.name} link set eth0 address ${mac} up
    ip -netns ${netns.name} address add ${address}/32 dev eth0
    ip -netns ${netns.name} route add ${nextHop} dev eth0 scope link
    ip -netns ${netns.name} route add default via ${nextHop}`)
  const vms = [{ ...guest(n), address, ...unspent, opened: true, network: 'world' as const }]
  const removed = objectsOf(n === 1 ? null : guest(1).tap)
  namespace.netns.run(() => nftFile(rulesetText(plan({ vms, removed }))))
  return netns
}

function nftFile(text: string): void {
  const { exitCode, stderr } = Bun.spawnSync(['nft', '--file', '-'], { stdin: Buffer.from(text) })
  if (exitCode !== 0) throw new Error(String(stderr))
}

/** A program in a namespace that says what it sees, line by line. */
function program(where: Netns, code: string) {
  const child = Bun.spawn(where.argv([process.execPath, '-e', code]), {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  const reader = child.stdout.getReader()
  let text = ''
  return {
    says: async (wanted: string) => {
      while (!text.includes(wanted)) {
        const { value, done } = await reader.read()
        if (done) throw new Error(`ended with ${JSON.stringify(text)} before ${wanted}`)
        text += Buffer.from(value).toString()
      }
      return text
    },
    write: (line: string) => {
      child.stdin.write(`${line}\n`)
      child.stdin.flush()
    },
    [Symbol.dispose]: () => child.kill('SIGKILL'),
  }
}

/** Answers the first that spoke to it, again with each line that it is given. */
const worldCode = `const s = await Bun.udpSocket({ hostname: '192.0.2.9', port: ${worldPort}, socket: {
  data(_, bytes, port, address) { peer = [port, address]; console.log('peer ' + address) } } }); let peer; console.log('up');
  for await (const line of console) { s.send(line, ...peer); console.log('sent ' + line) }`
/** Prints what arrives, and sends to the world on request. */
const guestCode = `const s = await Bun.udpSocket({ hostname: '${address}', port: ${guestPort}, socket: {
  data(_, bytes) { console.log('got ' + bytes) } } }); console.log('up');
  for await (const line of console) s.send(line, ${worldPort}, '192.0.2.9')`

inOwnNetns(
  import.meta.path,
  () => {
    test('a stale UDP flow does not reach the next holder of an address', async () => {
      // Goal: connections end with the VM that made them. Otherwise they lead into the next tenant's VM, as the first
      // half shows.
      sh('echo 1 > /proc/sys/net/ipv4/ip_forward')
      await namespace.open()
      nftFile(hostTableText(hostPlan()))
      using world = createNetns()
      sh(`
        ip link add uplink type veth peer name eth0 netns ${world.name}
        ip link set uplink up
        ip address add 192.0.2.1/24 dev uplink
        ip -netns ${world.name} link set eth0 up
        ip -netns ${world.name} address add 192.0.2.9/24 dev eth0
        ip -netns ${world.name} route add 10.88.0.0/24 via 192.0.2.1`)
      using far = program(world, worldCode)
      await far.says('up')
      const first = plugIn(1)
      using before = program(first, guestCode)
      await before.says('up')
      before.write('hello')
      expect(await far.says('peer 192.0.2.1')).toContain('peer')
      far.write('for the first')
      await before.says('got for the first')
      first.close()

      using second = plugIn(2)
      using after = program(second, guestCode)
      await after.says('up')
      far.write('stale, and known')
      await after.says('got stale, and known')

      const store = openStore(':memory:')
      const clock = createManualClock()
      const nft = createNft({ table: 'strongroom', log: silentLogger, netns: namespace.netns })
      const network = new VmNetwork({
        ledger: store.ledger,
        nft,
        netns: namespace.netns,
        host: hostPart(nft),
        clock,
        log: silentLogger,
        ruleset: plan({ nextHopPorts: [] }),
        ownNetworks: () => [],
        ownAddresses: () => [],
        names: null,
        egressLimitBytes: 1_000_000,
        rescueLimitBytes: 0,
      })
      await network.rest(address, systemRandom)
      far.write('stale, and forgotten')
      // Else it might come in by the connection that the second makes below, which is its own.
      await far.says('sent stale, and forgotten')
      // Its own connection comes after it on the same way: when that is through, the other has not come.
      after.write('hello again')
      await far.says('forgotten\npeer 192.0.2.1')
      far.write('for the second')
      const heard = await after.says('got for the second')
      expect(heard).not.toContain('forgotten')
      expect(restingAt(store.ledger.db, { nowMs: clock.nowMs(), restMs: 1 })).toEqual([address])
      await network.rest(address, systemRandom)
    })

    test('connections over IPv6 are forgotten by their address, and those of others stay', async () => {
      // Goal: the next holder of an address of either family meets nobody else's connections.
      const of = (from: string) =>
        sh(
          `conntrack --create --orig-src ${from} --orig-dst 2a0f:1::9 --protonum udp --sport 5 --dport 7 --timeout 600`,
        )
      const known = () => Bun.spawnSync(['conntrack', '--dump', '--family', 'ipv6']).stdout.toString()
      of('2001:db8:88::1')
      of('2001:db8:88::2')
      await forgetConnections('2001:db8:88::1', timeoutMs)
      await forgetConnections('2001:db8:88::1', timeoutMs)
      expect(known()).toContain('src=2001:db8:88::2 ')
      expect(known()).not.toContain('src=2001:db8:88::1 ')
    })

    test('what is no address is refused, and to forget what nobody knows is no failure', async () => {
      // Goal: nothing but an address reaches the command line.
      requireConntrack()
      await forgetConnections('10.88.0.77', timeoutMs)
      await expect(forgetConnections('--help', timeoutMs)).rejects.toThrow('by address')
    })
  },
  { timeoutMs },
)
