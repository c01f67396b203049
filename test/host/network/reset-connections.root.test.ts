// Clients of a gateway VM that is gone: real kernels, nftables and connection tracking between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  type GatewayVmChange,
  gatewayVmHostPlan,
  gatewayVmPlan,
  listenPort,
  servicePort,
} from '../../../scripts/rigs/gateway/guests.ts'
import { clientCode, restCode } from '../../../scripts/rigs/gateway/vm-death.ts'
import { createGuestNetwork, type GuestNetwork, hostAddress } from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { present } from '../../../src/base/assert.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const first = guest(1)
const second = guest(2)
const local = '127.0.0.1'
/** A second on a quiet machine (`bench gateway`); other tests run beside this one. Untold they wait for ever. */
const resetMs = 20_000

describe.if(needsRoot('the test of clients of a gateway that is gone'))('clients', () => {
  let network: GuestNetwork
  let host: Netns
  let inside: Netns
  let world: Netns
  let instance: Netns

  const apply = async (change: GatewayVmChange = {}) => {
    await network.apply(rulesetText(gatewayVmPlan(change)))
    await network.applyHost(hostTableText(gatewayVmHostPlan(change)))
  }

  const revive = async () => {
    await inside.run(['ip', 'link', 'set', first.tap, 'up'])
    await inside.run(['ip', 'route', 'replace', `${first.address}/32`, 'dev', first.tap, 'src', nextHop])
  }

  beforeAll(async () => {
    network = await createGuestNetwork(5)
    ;({ host, inside, world } = network)
    const [ours, successor, three] = network.guests
    instance = present(three, 'five guests')
    await network.listen(ours, '0.0.0.0', servicePort, 'a ')
    await network.listen(successor, '0.0.0.0', servicePort, 'b ')
  })
  afterAll(() => network?.[Symbol.dispose]())

  // Goal: a client that only waits learns at once that its VM is gone, wherever it is, with a successor that
  // serves and without one; clients of other VMs notice nothing.
  test.each([
    { name: 'nobody serves', after: null, loose: 1 },
    { name: 'a successor serves', after: second.address, loose: 1 },
    { name: 'connection tracking picks nothing up', after: second.address, loose: 0 },
  ])('$name', async ({ after, loose }) => {
    const echo = (value: number) => ['sh', '-c', `echo ${value} > /proc/sys/net/netfilter/nf_conntrack_tcp_loose`]
    for (const netns of [host, inside]) await netns.run(echo(loose))
    await apply({ service: { address: second.address } })
    const other = await network.program(world, clientCode(hostAddress, listenPort))
    await apply()
    const routes: readonly (readonly [Netns, string])[] = [
      [world, hostAddress],
      // Packets of instances that belong to no connection are dropped.
      ...(loose === 1 ? ([[instance, nextHop]] as const) : []),
      [host, local],
      [host, hostAddress],
    ]
    const clients = await Promise.all(
      routes.map(([from, address]) => network.program(from, clientCode(address, listenPort))),
    )
    const daemon = await network.program(host, restCode(first.address, inside))
    // Death: neither FIN nor RST leaves.
    await inside.run(['ip', 'link', 'set', first.tap, 'down'])
    await apply({ vms: { 1: { opened: false } }, service: { address: after } })
    const startedMs = performance.now()
    daemon.write('go')

    for (const client of clients) expect(await client.says('error')).toBe('error ECONNRESET')
    expect(performance.now() - startedMs).toBeLessThan(resetMs)
    expect(await daemon.says('reset')).toBe(`reset ${routes.length}`)
    const noise = Promise.race([other.says('closed'), Bun.sleep(300).then(() => 'open')])
    expect(await noise).toBe('open')
    for (const netns of [host, inside]) await netns.run(echo(1))
    await revive()
  })

  // Goal: address translation on the way, which drops what lies outside of a connection's window, hides no death.
  test('behind a router that translates their addresses', async () => {
    using home = createNetns()
    await world.run(['ip', '-batch', '-'], {
      stdin: [
        `link add lan type veth peer name eth0 netns ${home.name}`,
        'link set lan up',
        'address add 192.168.7.1/24 dev lan',
      ].join('\n'),
    })
    await home.run(['ip', '-batch', '-'], {
      stdin: ['link set eth0 up', 'address add 192.168.7.2/24 dev eth0', 'route add default via 192.168.7.1'].join(
        '\n',
      ),
    })
    await world.run(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward'])
    await world.run(['nft', '--file', '-'], {
      stdin: `add table ip router
        add chain ip router nat { type nat hook postrouting priority srcnat; }
        add rule ip router nat oifname "eth0" masquerade
        add chain ip router forward { type filter hook forward priority filter; policy drop; }
        add rule ip router forward ct state invalid drop
        add rule ip router forward iifname "lan" accept
        add rule ip router forward ct state established accept\n`,
    })
    await apply()
    const client = await network.program(home, clientCode(hostAddress, listenPort))
    const daemon = await network.program(host, restCode(first.address, inside))
    await inside.run(['ip', 'link', 'set', first.tap, 'down'])
    await apply({ vms: { 1: { opened: false } }, service: { address: second.address } })
    const startedMs = performance.now()
    daemon.write('go')
    expect(await client.says('error')).toBe('error ECONNRESET')
    expect(performance.now() - startedMs).toBeLessThan(resetMs)
    await revive()
  })

  // Goal: entries that strangers make by the thousand delay nobody's reset: those that no client confirmed count
  // for nothing, and the others are bounded by what a VM can have.
  test('among thousands of entries', async () => {
    await apply()
    const client = await network.program(world, clientCode(hostAddress, listenPort))
    const entries = Array.from({ length: 8_000 }, (_, at) => {
      const from = `198.18.${at >> 8}.${at & 255}`
      const flags = at % 2 === 0 ? '--status ASSURED,SEEN_REPLY --state ESTABLISHED' : '--state SYN_RECV'
      return `-I --proto tcp --timeout 300 --orig-src ${from} --orig-dst ${hostAddress} --reply-src ${first.address} --reply-dst ${from} --sport 5000 --dport ${listenPort} --reply-port-src ${servicePort} --reply-port-dst 5000 ${flags}`
    })
    await host.run(['conntrack', '--load-file', '-'], { stdin: `${entries.join('\n')}\n`, timeoutMs: 30_000 })
    const daemon = await network.program(host, restCode(first.address, inside))
    await inside.run(['ip', 'link', 'set', first.tap, 'down'])
    await apply({ vms: { 1: { opened: false } }, service: { address: null } })
    const startedMs = performance.now()
    daemon.write('go')
    expect(await client.says('error')).toBe('error ECONNRESET')
    expect(performance.now() - startedMs).toBeLessThan(resetMs)
    expect(await daemon.says('reset')).toBe('reset 4001')
    await revive()
  })

  // Goal: without the challenge a client that waits hears nothing, so that the test above proves what it says.
  test('hear nothing when they are only forgotten', async () => {
    await apply()
    const client = await network.program(world, clientCode(hostAddress, listenPort))
    await inside.run(['ip', 'link', 'set', first.tap, 'down'])
    await apply({ vms: { 1: { opened: false } }, service: { address: null } })
    await host.run(['conntrack', '--delete', '--reply-src', first.address])
    expect(await Promise.race([client.says('error'), Bun.sleep(2_000).then(() => 'silence')])).toBe('silence')
    await revive()
  })
})
