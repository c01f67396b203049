// Root in a guest that spoofs others, frame by frame, and an interface that belongs to no VM, between namespaces. Needs
// root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  createGuestNetwork,
  type GuestNetwork,
  hostAddress,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, objectsOf, openText, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'
import {
  arp,
  broadcastMac,
  ETHERTYPES,
  ethernet,
  frameSender,
  framesSeen,
  icmp,
  ipv4,
  ipv6,
  macOfLink,
  nobodyAsks,
  PROTOCOLS,
  tcpHeader,
  udp,
} from '../../rigs/network/frames.ts'

/** For interfaces of the kind that namespaces have; taps would need a QEMU. */
const ofVeth = (text: string) =>
  text.replaceAll('ifkind "tun"', 'ifkind "veth"').replaceAll('ifname "sr*"', 'ifname "srtest*"')
const ruleset = (...args: Parameters<typeof plan>) => ofVeth(rulesetText(plan(...args)))

describe.if(needsRoot('the test of spoofing'))('a guest that spoofs', () => {
  let network: GuestNetwork
  let host: Netns
  let inside: Netns
  let world: Netns
  let netns: Netns
  let two: Netns
  let send: Awaited<ReturnType<typeof frameSender>>
  let hostMac = ''
  let other = { mac: '', address: '' }

  beforeAll(async () => {
    network = await createGuestNetwork()
    ;({ host, inside, world } = network)
    ;[netns, two] = network.guests
    other = guest(2)
    // Packets of the other kernels themselves would count as arrivals.
    for (const where of [host, inside, world, netns, two])
      await where.run(['sh', '-c', 'for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done'])
    // Believes what it hears, as an operator may have set it.
    await inside.run(['sh', '-c', 'for f in /proc/sys/net/ipv4/conf/*/arp_accept; do echo 1 > $f; done'])
    hostMac = await macOfLink(inside, guest(1).tap)
    send = await frameSender(network, netns)
    await network.listen(host, '0.0.0.0', 8442)
    await network.listen(world, '0.0.0.0', 80)
  })
  afterAll(() => network?.[Symbol.dispose]())

  /** Addresses of another guest, of the host and of nobody, in frames with foreign or own MAC addresses. */
  const spoofed = (): Buffer[] => {
    const { mac, address } = guest(1)
    const datagram = (from: string, to: string) =>
      ipv4({ from, to, protocol: PROTOCOLS.udp }, udp(9, 9, Buffer.from('x')))
    const ip = (fromMac: string, payload: Buffer, to = hostMac) =>
      ethernet({ from: fromMac, to }, ETHERTYPES.ipv4, payload)
    const targets = [worldAddress, other.address, hostAddress, nextHop]
    const sources = [
      other.address,
      nextHop,
      hostAddress,
      worldAddress,
      '10.88.0.77',
      '0.0.0.0',
      '127.0.0.1',
      '198.51.100.9',
    ]
    const link = { from: mac, to: hostMac }
    const everyone = { from: mac, to: '33:33:00:00:00:01' }
    const [linkLocal, allNodes] = [`fe80${'0'.repeat(27)}1`, `ff02${'0'.repeat(27)}1`]
    const v6 = (type: number, to = everyone) =>
      ethernet(
        to,
        ETHERTYPES.ipv6,
        ipv6(linkLocal, allNodes, PROTOCOLS.icmpv6, Buffer.concat([Buffer.from([type, 0]), Buffer.alloc(30)])),
      )
    return [
      // IPv4 addresses, in frames of its own; MACs, with its own address; both.
      ...sources.flatMap(from => targets.map(to => ip(mac, datagram(from, to)))),
      ...[other.mac, hostMac, '02:00:00:00:00:99'].flatMap(from => targets.map(to => ip(from, datagram(address, to)))),
      ip(other.mac, datagram(other.address, worldAddress)),
      // Straight to the other guest, and to everyone.
      ip(mac, datagram(address, other.address), other.mac),
      ip(mac, datagram(address, '255.255.255.255'), broadcastMac),
      // An answer within a connection of another guest; a redirect and an announcement of a router.
      ip(mac, ipv4({ from: other.address, to: worldAddress, protocol: PROTOCOLS.tcp }, tcpHeader(22, 80, 0x12))),
      ...[5, 9].map(type => ip(mac, ipv4({ from: address, to: worldAddress, protocol: PROTOCOLS.icmp }, icmp(type)))),
      // DHCP, as a client and as a server.
      ip(
        mac,
        ipv4({ from: '0.0.0.0', to: '255.255.255.255', protocol: PROTOCOLS.udp }, udp(68, 67, Buffer.alloc(240))),
        broadcastMac,
      ),
      ip(
        mac,
        ipv4({ from: address, to: '255.255.255.255', protocol: PROTOCOLS.udp }, udp(67, 68, Buffer.alloc(240))),
        broadcastMac,
      ),
      // ARP: as the other guest, as the next hop and as nobody, asked and unasked.
      ...[other.address, nextHop, hostAddress, worldAddress, '10.88.0.77'].flatMap(claimed =>
        ([1, 2] as const).flatMap(operation => [
          ethernet(
            { from: mac, to: broadcastMac },
            ETHERTYPES.arp,
            arp({ operation, mac, address: claimed, target: claimed }),
          ),
          ethernet(
            { from: mac, to: broadcastMac },
            ETHERTYPES.arp,
            arp({ operation, mac, address: claimed, target: nextHop }),
          ),
        ]),
      ),
      // Its own address with the MAC of another.
      ethernet(link, ETHERTYPES.arp, arp({ operation: 2, mac: other.mac, address, target: nextHop })),
      ethernet({ ...link, from: other.mac }, ETHERTYPES.arp, arp({ operation: 2, mac, address, target: nextHop })),
      // IPv6 neighbour and router discovery: solicitations, advertisements, redirects; DHCPv6 and a datagram.
      ...[133, 134, 135, 136, 137].flatMap(type => [v6(type), v6(type, link), v6(type, { ...link, from: other.mac })]),
      ...[
        [546, 547],
        [547, 546],
        [9, 9],
      ].map(([from = 0, to = 0]) =>
        ethernet(everyone, ETHERTYPES.ipv6, ipv6(linkLocal, allNodes, PROTOCOLS.udp, udp(from, to, Buffer.alloc(8)))),
      ),
      // In a VLAN, and of a kind that nobody has.
      ethernet(
        link,
        ETHERTYPES.vlan,
        Buffer.concat([Buffer.from([0, 1, 8, 0]), datagram(other.address, worldAddress)]),
      ),
      ethernet({ from: mac, to: broadcastMac }, 0x88b5, Buffer.alloc(46)),
    ]
  }

  /** Neighbours that the host knows, other than those of its uplink. */
  const neighbours = async () =>
    (await inside.run(['ip', 'neighbour', 'show']))
      .split('\n')
      .filter(line => line.includes(guest(1).tap) || line.includes(other.mac))
      .map(line => line.split(' ').slice(0, 5).join(' '))
      .toSorted()

  /**
   * Some seconds after packets of earlier tests a kernel asks whether its neighbour is still there. That would count
   * as a frame that has come.
   */
  const allQuiet = () => nobodyAsks([host, inside, world, netns, two])

  const expectNothingThrough = async () => {
    const seen = async () => [await framesSeen(two), await framesSeen(world)]
    await allQuiet()
    const before = await seen()
    const [known, used] = [await neighbours(), await network.quotas()]
    await send(spoofed())
    expect(await seen()).toEqual(before)
    expect(await neighbours()).toEqual(known)
    expect(await network.quotas()).toEqual(used)
  }

  test('gets a frame through where nobody forbids it', async () => {
    // Goal: what is stopped below is stopped by the rules, not by the network of this test.
    await network.apply(openText)
    for (const where of [host, inside])
      await where.run(['sh', '-c', 'for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done'])
    const before = [await framesSeen(two), await framesSeen(world)]
    await send(spoofed())
    await until('some come to each', 60_000, async () => {
      const after = [await framesSeen(two), await framesSeen(world)]
      return after.every((count, at) => count > (before[at] ?? 0))
    })
    await until('the host has learnt a neighbour', 60_000, async () =>
      (await neighbours()).some(line => line.includes('10.88.0.77')),
    )
    await inside.run(['ip', 'neighbour', 'flush', 'dev', guest(1).tap])
  })

  test('reaches no other guest and no uplink with any frame, and teaches the host no neighbour', async () => {
    // Goal: MAC, IPv4, IPv6, ARP, neighbour discovery, routers and DHCP are refused by the rules alone, without the
    // kernel's filters.
    await network.apply(ruleset())
    // Both know each other, as they do after the first packet.
    expect(await network.reach(netns, nextHop, 8442)).toBe(guest(1).address)
    expect(await network.reach(netns, worldAddress, 80)).toBe(hostAddress)
    await expectNothingThrough()
    expect(await network.reach(netns, worldAddress, 80)).toBe(hostAddress)
  })

  test('is nobody once its interface is no VM’s any more, with our own table alone', async () => {
    // Goal: a tap that the ledger does not know is shut by its name, both ways.
    await network.apply(openText)
    await network.listen(netns, '0.0.0.0', 22)
    const ways = async () => [
      await network.reach(netns, worldAddress, 80),
      await network.reach(netns, nextHop, 8442),
      await network.reach(netns, nextHop, 8442, { localPort: 2222 }),
      await network.reach(world, guest(1).address, 22),
      await network.reach(host, guest(1).address, 22),
    ]
    const vms = plan().vms.slice(1)
    expect(await ways()).not.toContain(null)
    await network.apply(ruleset({ vms, removed: objectsOf(null) }))
    expect(await ways()).toEqual([null, null, null, null, null])
    // Nothing leaves it either, whether or not an answer would come back.
    const datagram = ipv4(
      { from: guest(1).address, to: worldAddress, protocol: PROTOCOLS.udp },
      udp(9, 9, Buffer.alloc(9)),
    )
    const frame = ethernet({ from: guest(1).mac, to: hostMac }, ETHERTYPES.ipv4, datagram)
    await allQuiet()
    const before = await framesSeen(world)
    await send([frame])
    expect(await framesSeen(world)).toBe(before)
    // Nor does anything come to it.
    const there = [await frameSender(network, world), await network.program(host, speakCode)] as const
    const uplink = { from: await macOfLink(world, 'eth0'), to: await macOfLink(host, 'uplink') }
    const toGuest = { from: worldAddress, to: guest(1).address, protocol: PROTOCOLS.udp }
    const speak = async () => {
      await there[0]([ethernet(uplink, ETHERTYPES.ipv4, ipv4(toGuest, udp(22, 22, Buffer.alloc(9))))])
      there[1].write(guest(1).address)
      await there[1].says('said')
    }
    await allQuiet()
    const heard = await framesSeen(netns)
    await speak()
    expect(await framesSeen(netns)).toBe(heard)
    await network.apply(openText)
    await speak()
    await until('both are heard', 60_000, async () => (await framesSeen(netns)) >= heard + 2)
    expect(await framesSeen(netns)).toBe(heard + 2)
    await network.apply(ruleset())
    await send([frame])
    await until('it leaves', 60_000, async () => (await framesSeen(world)) > before)
    expect(await ways()).not.toContain(null)
  })

  test('has no IPv6, wherever it would be routed', async () => {
    // Goal: the other family is no way around rules and cap, until it has both.
    for (const where of [host, inside, world, netns])
      await where.run(['sh', '-c', 'for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 0 > $f; done'])
    for (const where of [host, inside]) await where.run(['sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'])
    const at = async (where: Netns, ...words: string[]) => await where.run(['ip', '-6', ...words])
    await at(inside, 'address', 'add', 'fd00:1::1/64', 'dev', guest(1).tap, 'nodad')
    await at(inside, 'route', 'add', 'default', 'via', 'fe80::1', 'dev', 'sr-host')
    await at(host, 'route', 'add', 'fd00:1::/64', 'via', 'fe80::1', 'dev', 'sr-vms')
    await at(host, 'address', 'add', 'fd00:2::1/64', 'dev', 'uplink', 'nodad')
    await at(netns, 'address', 'add', 'fd00:1::2/64', 'dev', 'eth0', 'nodad')
    await at(netns, 'route', 'add', 'default', 'via', 'fd00:1::1')
    await at(world, 'address', 'add', 'fd00:2::9/64', 'dev', 'eth0', 'nodad')
    await at(world, 'route', 'add', 'default', 'via', 'fd00:2::1')
    const speaker = await network.program(netns, speakCode)
    const arrived = async () =>
      Number(/Udp6NoPorts +(\d+)/.exec(await world.run(['nstat', '-asz', 'Udp6NoPorts']))?.[1])
    const speak = async () => {
      speaker.write('fd00:2::9')
      await speaker.says('said')
    }
    await network.apply(openText)
    const before = await arrived()
    await speak()
    await until('it arrives', 60_000, async () => (await arrived()) === before + 1)
    await network.apply(ruleset())
    await speak()
    expect(await arrived()).toBe(before + 1)
    expect((await network.quotas())[guest(1).tap]).toBe(0)
  })
})

/** Sends one datagram to the address of each line. */
const speakCode = `const sockets = { 4: await Bun.udpSocket({ hostname: '0.0.0.0', socket: { error() {} } }),
    6: await Bun.udpSocket({ hostname: '::', socket: { error() {} } }) }
  console.log('up')
  for await (const line of console) { try { sockets[line.includes(':') ? 6 : 4].send('x', 9999, line) } catch {} console.log('said') }`
