// Destinations of an instance as the kernel enforces them, between namespaces: each denied one is tried. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  createGuestNetwork,
  type GuestNetwork,
  hostAddress,
  type Target,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { guest, hostPlan, nextHop, openText, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { parseEgressEntry } from '../../../src/config/egress.ts'
import { type HostTablePlan, hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { type NftPlan, rulesetText } from '../../../src/vm/network/nft.plan.ts'
import {
  ETHERTYPES,
  ethernet,
  fragments,
  frameSender,
  icmp,
  ipv4,
  macOfLink,
  PROTOCOLS,
  tcpHeader,
  udp,
} from '../../rigs/network/frames.ts'

/** Addresses that the world has besides its own, each reached by a route. */
const PRIVATE = ['10.1.2.3', '172.16.5.5', '192.168.7.7', '100.64.9.9', '169.254.169.254'] as const
const publicAddress = '198.51.100.7'
/** In the network that the host is in, which `own` says. */
const neighbour = worldAddress
const own = { ownNetworks: ['192.0.2.0/24'] } as const
const allow = (...entries: string[]): Partial<NftPlan> => ({
  ...own,
  egress: {
    ...plan().egress,
    allowed: entries.map(text => present(parseEgressEntry(text), `an entry of the configuration: ${text}`)),
  },
})

describe.if(needsRoot('the test of destinations'))('an instance', () => {
  let network: GuestNetwork
  let host: Netns
  let inside: Netns
  let world: Netns
  let netns: Netns
  let two: Netns

  beforeAll(async () => {
    network = await createGuestNetwork()
    ;({ host, inside, world } = network)
    ;[netns, two] = network.guests
    for (const address of [...PRIVATE, publicAddress]) {
      await world.run(['ip', 'address', 'add', `${address}/32`, 'dev', 'lo'])
      await host.run(['ip', 'route', 'add', address, 'via', worldAddress])
    }
    for (const port of [25, 80, 465, 587, 8080]) await network.listen(world, '0.0.0.0', port)
    await network.listen(two, '0.0.0.0', 22)
    for (const port of [22, 53, 8441, 8442]) await network.listen(host, '0.0.0.0', port)
  })
  afterAll(() => network?.[Symbol.dispose]())

  const apply = (change: Partial<NftPlan> = own) => network.apply(rulesetText(plan(change)))
  const targets = (): Target[] => [
    ...PRIVATE.map((address): Target => [address, 80]),
    [neighbour, 80],
    [hostAddress, 8441],
    [nextHop, 8441],
    [guest(2).address, 22],
    [publicAddress, 25],
  ]
  const nameOf = ([address, port]: Target) => `${address}:${port}`
  const reached = async () => (await network.reachAny(netns, targets())).map(nameOf)
  const charged = async () => (await network.quotas())[guest(1).tap]

  test('is told at once that a destination is closed, and no more often than the host can afford', async () => {
    // Goal: a program fails with a reason instead of two minutes' silence; a flood of attempts is not answered one by
    // one.
    await apply()
    const { stderr, exitCode } = Bun.spawnSync(
      netns.argv(['timeout', '60', 'bash', '-c', 'exec 3<>/dev/tcp/10.1.2.3/80']),
    )
    expect([exitCode, stderr.toString()]).toEqual([1, expect.stringContaining('No route to host')])
    const told = async () =>
      Number(/IcmpInDestUnreachs +(\d+)/.exec(await netns.run(['nstat', '-asz', 'IcmpInDestUnreachs']))?.[1])
    const flood = await network.program(netns, floodCode)
    // Without the kernel's own bound, which others of a host may have lifted.
    await inside.run(['sh', '-c', 'echo 0 > /proc/sys/net/ipv4/icmp_ratelimit'])
    const before = await told()
    const startedMs = performance.now()
    flood.write('10.1.2.3')
    await flood.says('sent 10.1.2.3')
    const answered = (await told()) - before
    // Ten at once and five a second.
    expect(answered).toBeLessThan(20 + 5 * Math.ceil((performance.now() - startedMs) / 1_000))
  })

  test('reaches none of what is denied by default, and is not charged for trying', async () => {
    // Goal: a tenant is a stranger to the operator's networks, a cloud's metadata service, mail servers and this host.
    await network.apply(openText)
    // Each of them is one that answers where nobody forbids it; another address of this host is closed by its routing.
    expect(await reached()).toEqual(
      targets()
        .filter(([address]) => address !== hostAddress)
        .map(nameOf),
    )
    await apply()
    expect(await reached()).toEqual([])
    // As if it were an answer to SSH.
    for (const [address, port] of targets())
      expect([address, port, await network.reach(netns, address, port, { localPort: 22 })]).toEqual([
        address,
        port,
        null,
      ])
    expect(await charged()).toBe(0)
    expect(await network.reach(netns, publicAddress, 80)).toBe(hostAddress)
    for (const port of [465, 587]) expect(await network.reach(netns, publicAddress, port)).toBe(hostAddress)
    expect(await network.reach(netns, nextHop, 8442)).toBe(guest(1).address)
    expect(await charged()).toBeGreaterThan(0)
  })

  test('sends no datagram, echo or other packet to what is denied', async () => {
    // Goal: TCP is not the only way out; multicast, broadcast and reserved addresses are none either.
    await apply()
    const sender = await network.program(netns, datagramCode)
    const send = async (address: string) => {
      sender.write(address)
      await sender.says(`sent ${address}`)
    }
    const arrived = async () => [await network.countArrivals(world), await network.countArrivals(two)]
    // An end of an earlier connection may still be on its way.
    let before = await arrived()
    await until('nothing more comes of what was before', 60_000, async () => {
      await Bun.sleep(200)
      const now = await arrived()
      const isQuiet = Bun.deepEquals(now, before)
      before = now
      return isQuiet
    })
    for (const address of [
      ...PRIVATE,
      ...[
        neighbour,
        '192.0.2.255',
        guest(2).address,
        '0.1.2.3',
        '224.0.0.1',
        '239.1.2.3',
        '240.1.2.3',
        '255.255.255.255',
      ],
    ])
      await send(address)
    const raw = await frameSender(network, netns)
    const link = { from: guest(1).mac, to: await macOfLink(inside, guest(1).tap) }
    const packet = (to: string, protocol: number, payload: Uint8Array) =>
      ethernet(link, ETHERTYPES.ipv4, ipv4({ from: guest(1).address, to, protocol }, payload))
    const kinds = (to: string) => [
      // An echo, an unrequested answer, an error about nothing; a TCP packet without a connection, as if from SSH.
      ...[icmp(8), icmp(0), icmp(3, 1), icmp(5), icmp(9)].map(message => packet(to, PROTOCOLS.icmp, message)),
      ...[0x02, 0x10, 0x12, 0x14].map(flags => packet(to, PROTOCOLS.tcp, tcpHeader(22, 80, flags))),
    ]
    await raw([...PRIVATE, neighbour, guest(2).address].flatMap(kinds))
    expect(await arrived()).toEqual(before)
    await raw([packet(publicAddress, PROTOCOLS.icmp, icmp(8))])
    await send(publicAddress)
    await until('what is open arrives', 60_000, async () => ((await arrived())[0] ?? 0) > (before[0] ?? 0))
  })

  test('reaches exactly what an allow-list opens', async () => {
    // Goal: an entry opens exactly its addresses and ports; other instances and this host stay closed.
    await apply(allow('10.1.2.0/24'))
    expect(await reached()).toEqual(['10.1.2.3:80'])
    expect(await network.reach(netns, '10.1.2.3', 8080)).toBe(hostAddress)
    await apply(allow('10.1.2.3:8000-8099', '10.0.0.0/8:443'))
    expect(await reached()).toEqual([])
    expect(await network.reach(netns, '10.1.2.3', 8080)).toBe(hostAddress)
    await apply(allow('10.1.2.3:80', '10.0.0.0/8:70-90', '192.0.2.9', '0.0.0.0/0:25'))
    expect(await reached()).toEqual(['10.1.2.3:80', `${neighbour}:80`, `${publicAddress}:25`])
    await apply(allow('0.0.0.0/0'))
    expect(await reached()).toEqual([
      ...PRIVATE.map(address => `${address}:80`),
      `${neighbour}:80`,
      `${publicAddress}:25`,
    ])
    // A removed entry is closed to running connections, too.
    const session = await network.program(
      netns,
      `const s = require('node:net').connect({ host: '10.1.2.3', port: 80, localPort: 22 }); let n = 0
        s.on('data', d => { n += d.length; console.log(n === d.length ? 'up' : 'got ' + n) })
        for await (const line of console) { s.write(line); console.log('wrote') }`,
    )
    await apply()
    const before = await network.countArrivals(world)
    session.write('100')
    await session.says('wrote')
    expect(await reached()).toEqual([])
    expect(await network.countArrivals(world)).toBe(before)
  })

  test('sends nothing in fragments, and is charged for exactly what the far side captures', async () => {
    // Goal: counted bytes are those on the wire. 2.80 MB on the wire were once counted as 0.80.
    await apply()
    const raw = await frameSender(network, netns)
    const link = { from: guest(1).mac, to: await macOfLink(inside, guest(1).tap) }
    const header = { from: guest(1).address, to: publicAddress, protocol: PROTOCOLS.udp }
    const frame = (packet: Uint8Array) => ethernet(link, ETHERTYPES.ipv4, packet)
    const datagram = (bytes: number) => udp(7, 9, Buffer.alloc(bytes))
    const [chargedBefore = 0, seenBefore] = [await charged(), await network.countArrivals(world)]
    const whole = [1, 100, 1400].map(bytes => ipv4(header, datagram(bytes)))
    const pieces = [8, 16, 800, 1480].flatMap((bytes, id) =>
      fragments({ ...header, id: id + 2 }, datagram(3000), bytes),
    )
    // One that never becomes whole, and one that says it has no more to come and begins in the middle.
    const odd = [
      ipv4({ ...header, id: 9, moreFragments: true }, datagram(100)),
      ipv4({ ...header, id: 10, offset: 8 }, datagram(100)),
    ]
    await raw([...pieces, ...odd, ...whole].map(frame))
    const wire = whole.reduce((sum, packet) => sum + packet.length, 0)
    await until('what is whole has come', 60_000, async () => (await network.countArrivals(world)) - seenBefore >= wire)
    expect((await network.countArrivals(world)) - seenBefore).toBe(wire)
    expect(((await charged()) ?? 0) - chargedBefore).toBe(wire)
  })

  test('sends no packet of a protocol without ports, and none that belongs to no connection', async () => {
    // Goal: nothing leaves under the address of the pool, where that is nobody's on the other side.
    await apply()
    const raw = await frameSender(network, netns)
    const link = { from: guest(1).mac, to: await macOfLink(inside, guest(1).tap) }
    const packet = (protocol: number, payload: Uint8Array) =>
      ethernet(link, ETHERTYPES.ipv4, ipv4({ from: guest(1).address, to: publicAddress, protocol }, payload))
    const { igmp, ipip, gre, esp, icmpv6, sctp, tcp } = PROTOCOLS
    const [chargedBefore, seenBefore] = [await charged(), await network.countArrivals(world)]
    await raw([
      ...[igmp, ipip, gre, esp, icmpv6, sctp, 0, 255].map(protocol => packet(protocol, Buffer.alloc(64))),
      // Flags that no TCP sends, an answer to nothing, and less than a header.
      ...[0x00, 0x03, 0x29, 0x12, 0x3f].map(flags => packet(tcp, tcpHeader(4000 + flags, 80, flags))),
      packet(tcp, Buffer.alloc(19)),
      packet(PROTOCOLS.icmp, icmp(13)),
    ])
    await raw([packet(PROTOCOLS.icmp, icmp(8))])
    await until('the last has come', 60_000, async () => (await network.countArrivals(world)) > seenBefore)
    expect((await network.countArrivals(world)) - seenBefore).toBe(28 + 4)
    expect(((await charged()) ?? 0) - (chargedBefore ?? 0)).toBe(28 + 4)
  })

  test('answers whoever comes to it, from a private network, too', async () => {
    // Goal: owners within the operator's networks log in and ping.
    await apply()
    for (const localAddress of [...PRIVATE.slice(0, 4), neighbour])
      expect(await network.reach(world, guest(2).address, 22, { localAddress })).toBe(localAddress)
    expect(await network.reach(host, guest(2).address, 22)).toBe(nextHop)
    const echo = ipv4({ from: '10.1.2.3', to: guest(1).address, protocol: PROTOCOLS.icmp }, icmp(8))
    const link = { from: await macOfLink(world, 'eth0'), to: await macOfLink(host, 'uplink') }
    const before = await network.countArrivals(world)
    await (await frameSender(network, world))([ethernet(link, ETHERTYPES.ipv4, echo)])
    await until('it answers an echo', 60_000, async () => (await network.countArrivals(world)) - before === echo.length)
  })

  test('has the source address that the configuration says', async () => {
    // Goal: traffic of instances can be distinguished from that of this host.
    await apply()
    const source = (source: HostTablePlan['source']) => network.applyHost(hostTableText(hostPlan({ source })))
    await world.run(['ip', 'route', 'replace', '192.0.2.200/32', 'via', hostAddress])
    await source({ kind: 'snat', to: '192.0.2.200' })
    expect(await network.reach(netns, publicAddress, 80)).toBe('192.0.2.200')
    await source({ kind: 'pool' })
    expect(await network.reach(netns, publicAddress, 80)).toBe(guest(1).address)
    await source({ kind: 'masquerade' })
    expect(await network.reach(netns, publicAddress, 80)).toBe(hostAddress)
  })

  test('does not make a router of the host for others where the configuration says so', async () => {
    // Goal: forwarding is on for instances alone.
    using other = createNetns()
    await host.run(['ip', 'link', 'add', 'lan', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', other.name])
    await host.run(['ip', 'address', 'add', '203.0.113.1/24', 'dev', 'lan'])
    await host.run(['ip', 'link', 'set', 'lan', 'up'])
    await other.run(['ip', '-batch', '-'], {
      stdin: 'address add 203.0.113.2/24 dev eth0\nlink set eth0 up\nroute add default via 203.0.113.1\n',
    })
    await world.run(['ip', 'route', 'add', '203.0.113.0/24', 'via', hostAddress])
    await apply()
    await network.applyHost(hostTableText(hostPlan()))
    expect(await network.reach(other, publicAddress, 80)).toBe('203.0.113.2')
    await network.listen(netns, '0.0.0.0', 22)
    await network.applyHost(hostTableText(hostPlan({ dropOthers: true })))
    expect(await network.reach(other, publicAddress, 80)).toBeNull()
    expect(await network.reach(netns, publicAddress, 80)).toBe(hostAddress)
    expect((await network.reachAny(world, [[guest(1).address, 22]])).length).toBe(1)
  })
})

/** Sends datagrams to the address of each line, to where nobody answers. */
const datagramCode = `const s = await Bun.udpSocket({ socket: { error() {} } }); s.setBroadcast(true); console.log('up')
  for await (const line of console) {
    for (let i = 0; i < 5; i += 1) try { s.send('x', 9, line) } catch {}
    console.log('sent ' + line) }`

/** Two thousand datagrams to the address of each line. */
const floodCode = `const s = await Bun.udpSocket({ socket: { error() {} } }); console.log('up')
  for await (const line of console) {
    for (let i = 0; i < 2000; i += 1) try { s.send('x', 9, line) } catch {}
    console.log('sent ' + line) }`
