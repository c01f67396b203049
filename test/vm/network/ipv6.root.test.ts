// Guests with IPv6, with and without IPv4, between namespaces with the real firewall: what passes and what counts.
// Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createGuestNetwork, type GuestNetwork, worldAddress } from '../../../scripts/rigs/guest/network.ts'
import {
  guest,
  guestV6,
  hostPlan,
  nextHopV6,
  objectsOf,
  openText,
  planV6,
  unspent,
} from '../../../scripts/rigs/guest/two-guests.ts'
import { type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { parseEgressEntryV6 } from '../../../src/config/egress-v6.ts'
import { tapMac } from '../../../src/host/network/tap.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'
import { hostV6, plugInV6, worldV6 } from '../../rigs/guest/network-v6.ts'
import {
  broadcastMac,
  ETHERTYPES,
  ethernet,
  frameSender,
  framesSeen,
  ipv4,
  macOfLink,
  nobodyAsks,
  PROTOCOLS,
  udp,
} from '../../rigs/network/frames.ts'
import { frameV6, icmpFrameV6, udpFrameV6 } from '../../rigs/network/frames-v6.ts'

const [first, second] = [guestV6(1), guestV6(2)]

for (const alone of [false, true]) {
  const how = alone ? 'IPv6 alone' : 'both families'
  describe.if(needsRoot(`the test of ${how}`))(`a guest with ${how}`, () => {
    let network: GuestNetwork
    let host: Netns
    let world: Netns
    let netns: Netns
    let two: Netns

    beforeAll(async () => {
      network = await createGuestNetwork()
      ;({ host, world } = network)
      ;[netns, two] = network.guests
      await network.apply(rulesetText(planV6({ alone })))
      await network.applyHost(hostTableText(hostPlan({ nextHopV6, sourceV6: { kind: 'pool' } })))
      await plugInV6(network, { alone })
      for (const [where, port] of [
        [host, 8442],
        [host, 9090],
        [world, 80],
        [world, 25],
        [netns, 22],
        [netns, 80],
        [two, 22],
      ] as const)
        await network.listen(where, '::', port)
    })
    afterAll(() => network?.[Symbol.dispose]())

    test('goal: reaches the world under its own address, and the gateway; the world reaches its SSH and no more', async () => {
      expect(await network.reach(netns, worldV6, 80)).toBe(first.addressV6)
      expect(await network.reach(netns, nextHopV6, 8442)).toBe(first.addressV6)
      expect(await network.reach(world, first.addressV6, 22)).toBe(worldV6)
      expect(await network.reach(world, first.addressV6, 80)).toBeNull()
      expect(await network.reach(host, first.addressV6, 22)).toBe(nextHopV6)
      const used = await network.quotas()
      expect(used[first.tap]).toBeGreaterThan(300)
      expect(used[second.tap]).toBe(0)
    })

    test('goal: reaches no other guest, no other port of the host, no TCP port 25 and no network of the host', async () => {
      for (const [to, port] of [
        [second.addressV6, 22],
        [nextHopV6, 9090],
        [hostV6, 8442],
        [hostV6, 9090],
        [worldV6, 25],
      ] as const)
        expect([to, port, await network.reach(netns, to, port)]).toEqual([to, port, null])
      const allowed = ['[::/0]:25'].flatMap(text => parseEgressEntryV6(text) ?? [])
      await network.apply(rulesetText(planV6({ alone, v6: { allowed } })))
      expect(await network.reach(netns, worldV6, 25)).toBe(first.addressV6)
      await network.apply(rulesetText(planV6({ alone, ownNetworks: ['2a0f:ffff::/64'] })))
      expect(await network.reach(netns, worldV6, 80)).toBeNull()
      await network.apply(rulesetText(planV6({ alone })))
      expect(await network.reach(netns, worldV6, 80)).toBe(first.addressV6)
    })

    test('goal: leaves under an address of the host where the configuration says so', async () => {
      for (const source of [{ kind: 'masquerade' }, { kind: 'snat', to: hostV6 }] as const) {
        await network.applyHost(hostTableText(hostPlan({ nextHopV6, sourceV6: source })))
        expect(await network.reach(netns, worldV6, 80)).toBe(hostV6)
      }
      await network.applyHost(hostTableText(hostPlan({ nextHopV6, sourceV6: { kind: 'pool' } })))
    })

    test('goal: before it is opened, nothing passes but the host’s look at its SSH server', async () => {
      const vms = [{ ...guestV6(1, { alone }), ...unspent, opened: false, network: 'world' as const }]
      await network.apply(rulesetText(planV6({ alone, vms, removed: objectsOf(second.tap) })))
      expect(await network.reach(host, first.addressV6, 22)).toBe(nextHopV6)
      expect(await network.reach(netns, worldV6, 80)).toBeNull()
      expect(await network.reach(netns, nextHopV6, 8442)).toBeNull()
      expect(await network.reach(world, first.addressV6, 22)).toBeNull()
      await network.apply(rulesetText(planV6({ alone })))
    })

    test('goal: reaches nobody while the table of VMs is missing, and everybody again once it is back', async () => {
      await network.inside.run(['nft', 'flush', 'ruleset'])
      for (const [to, port] of [
        [worldV6, 80],
        [hostV6, 9090],
        [nextHopV6, 8442],
        [second.addressV6, 22],
      ] as const)
        expect([to, port, await network.reach(netns, to, port)]).toEqual([to, port, null])
      await network.apply(rulesetText(planV6({ alone })))
      expect(await network.reach(netns, worldV6, 80)).toBe(first.addressV6)
    })

    test('goal: has as many connections to a service as one address may have, whatever others of its network do', async () => {
      // Four each (perAddressMax), six together (allMax).
      const hold = `const { connect } = require('node:net'); let open = 0, refused = 0
        const settle = () => { if (open + refused === 8) console.log('held ' + open) }
        console.log('up')
        for (let n = 0; n < 8; n += 1) connect({ host: '${nextHopV6}', port: 8442 })
          .once('data', () => { open += 1; settle() }).on('error', () => { refused += 1; settle() })`
      const held = async (where: Netns) => await (await network.program(where, hold)).says('held')
      expect(await held(netns)).toBe('held 4')
      expect(await held(two)).toBe('held 2')
    })
  })
}

describe.if(needsRoot('the test of IPv6 frames'))('a guest with root and IPv6', () => {
  let network: GuestNetwork
  let host: Netns
  let inside: Netns
  let world: Netns
  let netns: Netns
  let two: Netns
  let send: Awaited<ReturnType<typeof frameSender>>

  beforeAll(async () => {
    network = await createGuestNetwork()
    ;({ host, inside, world } = network)
    ;[netns, two] = network.guests
    await network.apply(rulesetText(planV6()))
    await plugInV6(network)
    send = await frameSender(network, netns)
  })
  afterAll(() => network?.[Symbol.dispose]())

  const link = { from: first.mac, to: tapMac }
  const own = { link, from: first.addressV6, to: worldV6 }
  const payload = Buffer.from('x'.repeat(32))
  const seen = async () => [await framesSeen(two), await framesSeen(world)]
  const neighbours = async () =>
    (await inside.run(['ip', '-6', 'neighbour', 'show']))
      .split('\n')
      .map(line => line.split(' ').slice(0, 5).join(' '))
      .toSorted()

  /** Where frames arrive, at least so many to the other guest and the world, and what the host learns and counts. */
  const effectOf = async (frames: readonly Uint8Array[], ...least: number[]) => {
    // Some seconds after packets of an earlier test a kernel says that it has found no neighbour for them.
    await nobodyAsks([host, inside, world, netns, two])
    const before = { seen: await seen(), known: await neighbours(), used: await network.quotas() }
    await send(frames)
    const arrived = async () => (await seen()).map((count, at) => count - (before.seen[at] ?? 0))
    await until('what passes has come', 60_000, async () => {
      const counts = await arrived()
      return least.every((count, at) => (counts[at] ?? 0) >= count)
    })
    return {
      arrived: await arrived(),
      learnt: (await neighbours()).filter(line => !before.known.includes(line)),
      isCharged: (await network.quotas())[first.tap] !== before.used[first.tap],
    }
  }
  const nothing = { arrived: [0, 0], learnt: [], isCharged: false }

  /**
   * Neighbour discovery, routers, redirects and multicast listeners (RFC 4861, RFC 3810), from own, foreign and
   * unspecified sources.
   */
  const discovery = () =>
    [first.addressV6, second.addressV6, nextHopV6, 'fe80::1', '::', worldV6].flatMap(from =>
      ['ff02::1', 'ff02::2', nextHopV6, second.addressV6, worldV6].flatMap(to =>
        [130, 131, 132, 133, 134, 135, 136, 137, 143].flatMap(type => {
          const target = Buffer.alloc(28)
          Buffer.from('20010db8008800000000000000000002', 'hex').copy(target, 4)
          target.set([type === 135 ? 1 : 2, 1, ...Buffer.from(first.mac.replaceAll(':', ''), 'hex')], 20)
          const everyone = { ...link, to: '33:33:00:00:00:01' }
          return [link, everyone, { ...link, to: second.mac }].map(by =>
            icmpFrameV6({ link: by, from, to }, type, target),
          )
        }),
      ),
    )

  const dhcp = () =>
    [first.addressV6, 'fe80::1'].flatMap(from =>
      (
        [
          [546, 547],
          [547, 546],
        ] as const
      ).map(ports =>
        udpFrameV6({ link: { ...link, to: '33:33:00:01:00:02' }, from, to: 'ff02::1:2' }, ports, Buffer.alloc(60)),
      ),
    )

  const spoofed = () => [
    ...[
      second.addressV6,
      nextHopV6,
      hostV6,
      worldV6,
      '2001:db8:88::77',
      '::',
      '::1',
      'fe80::1',
      'ff02::1',
      '::ffff:a58:1',
    ].flatMap(from => [worldV6, second.addressV6, hostV6].map(to => udpFrameV6({ link, from, to }, [9, 9], payload))),
    ...[second.mac, tapMac, '02:00:00:00:00:99'].map(from =>
      udpFrameV6({ ...own, link: { ...link, from } }, [9, 9], payload),
    ),
    udpFrameV6({ ...own, link: { ...link, to: second.mac }, to: second.addressV6 }, [9, 9], payload),
    udpFrameV6({ ...own, link: { ...link, to: broadcastMac }, to: 'ff02::1' }, [9, 9], payload),
    // IPv4 in the frame of IPv6, and the other way.
    ethernet(
      link,
      ETHERTYPES.ipv6,
      ipv4({ from: guest(1).address, to: worldAddress, protocol: PROTOCOLS.udp }, udp(9, 9, payload)),
    ),
    ethernet(link, ETHERTYPES.ipv4, udpFrameV6(own, [9, 9], payload).subarray(14)),
    // ICMPv6 in IPv4, and ICMP in IPv6.
    ethernet(
      link,
      ETHERTYPES.ipv4,
      ipv4(
        { from: guest(1).address, to: worldAddress, protocol: PROTOCOLS.icmpv6 },
        Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]),
      ),
    ),
    frameV6(own, PROTOCOLS.icmp, Buffer.from([0, 0, 255, 255, 0, 0, 0, 0])),
  ]

  /** Hop-by-hop, routing, fragment, destination options, authentication, none, and other protocols (RFC 8200 4). */
  const extended = () => {
    const datagram = udpFrameV6(own, [9, 9], payload).subarray(14 + 40)
    const header = Buffer.from([PROTOCOLS.udp, 0, 1, 4, 0, 0, 0, 0])
    const fragment = (offset: number, more: number) =>
      Buffer.from([PROTOCOLS.udp, 0, (offset >> 8) & 0xff, (offset & 0xf8) | more, 0, 0, 0, 1])
    return [
      ...[0, 43, 60, 51].map(next => frameV6(own, next, Buffer.concat([header, datagram]))),
      frameV6(own, 44, Buffer.concat([fragment(0, 1), datagram.subarray(0, 16)])),
      frameV6(own, 44, Buffer.concat([fragment(16, 0), datagram.subarray(16)])),
      // A fragment that is whole (RFC 6946).
      frameV6(own, 44, Buffer.concat([fragment(0, 0), datagram])),
      ...[PROTOCOLS.ipip, 41, PROTOCOLS.gre, PROTOCOLS.esp, PROTOCOLS.sctp, 59, 89, 103].map(next =>
        frameV6(own, next, payload),
      ),
      frameV6(
        { ...own, to: 'ff02::1' },
        0,
        Buffer.concat([Buffer.from([PROTOCOLS.icmpv6, 0, 5, 2, 0, 0, 1, 0]), datagram]),
      ),
    ]
  }

  /** Closed to it: not given out, private, of documentation, and what wraps IPv4 that is closed. */
  const closed = [
    ...['::', '::1', '::a58:1', '::ffff:a58:1', 'fe80::9', 'febf::9', 'fec0::9', 'ff02::9', 'ff0e::9'],
    ...['fc00::9', 'fd73:7472:6f6e:67::2', '100::9', '200::9', '4000::9', '8000::9', 'e000::9'],
    ...['2001::9', '2001:0:a00:1::9', '2001:2::9', '2001:1ff::9', '2001:db8::9', '2001:db8:88::77', '3fff::9'],
    ...[
      '2002:a00:1::9',
      '2002:c000:209::9',
      '64:ff9b::a00:1',
      '64:ff9b::a9fe:a9fe',
      '64:ff9b::a58:2',
      '64:ff9b:1::a00:1',
    ],
  ]

  test('goal: frames arrive where no rule forbids them, so that what is stopped below is stopped by the rules', async () => {
    await network.apply(openText)
    for (const where of [host, inside])
      await where.run(['sh', '-c', 'for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done'])
    const { arrived } = await effectOf([...spoofed(), ...extended(), ...discovery()], 1, 1)
    for (const count of arrived) expect(count).toBeGreaterThan(0)
    const routable = closed.filter(to => !/^(::|fe[89ab]|ff)/.test(to))
    const sent = routable.map(to => udpFrameV6({ ...own, to }, [9, 9], payload))
    expect((await effectOf(sent, 0, routable.length)).arrived[1]).toBe(routable.length)
    await network.apply(rulesetText(planV6()))
  })

  test('goal: neighbour discovery, routers, redirects, listeners and DHCP reach nobody and teach nothing', async () => {
    expect(await effectOf(discovery())).toEqual(nothing)
    expect(await effectOf(dhcp())).toEqual(nothing)
  })

  test('goal: an echo passes both ways, with its answer', async () => {
    const heard = await framesSeen(netns)
    expect((await effectOf([icmpFrameV6(own, 128)], 0, 1)).arrived).toEqual([0, 1])
    await until('the answer comes', 60_000, async () => (await framesSeen(netns)) >= heard + 1)
    const uplink = { from: await macOfLink(world, 'eth0'), to: await macOfLink(host, 'uplink') }
    const there = await frameSender(network, world)
    const before = await framesSeen(world)
    await there([icmpFrameV6({ link: uplink, from: worldV6, to: first.addressV6 }, 128)])
    await until('the answer comes', 60_000, async () => (await framesSeen(world)) >= before + 1)
    // An answer to nothing, and an error about nothing.
    const other = Buffer.from([7, 7, 0, 1])
    for (const type of [1, 2, 3, 4, 129])
      expect([type, await effectOf([icmpFrameV6(own, type, other)])]).toEqual([type, nothing])
  })

  test('goal: what is not its own address, or is more than TCP, UDP or ICMPv6 in one packet, reaches nobody', async () => {
    expect(await effectOf(spoofed())).toEqual(nothing)
    expect(await effectOf(extended())).toEqual(nothing)
    const whole = udpFrameV6(own, [9, 9], Buffer.alloc(1500 - 48))
    expect((await effectOf([whole], 0, 1)).arrived).toEqual([0, 1])
  })

  test('goal: each denied destination stays closed, and entries of the allow-list open what they name', async () => {
    const to = (addresses: readonly string[], ports: readonly [number, number] = [9, 9]) =>
      addresses.map(address => udpFrameV6({ ...own, to: address }, ports, payload))
    expect(await effectOf(to(closed))).toEqual(nothing)
    // In the well-known NAT64 prefix, open IPv4 addresses are open.
    expect((await effectOf(to(['64:ff9b::808:808', '2a0f:ffff::9', '2600::9']), 0, 3)).arrived).toEqual([0, 3])
    const allowed = ['fd00::/8', '[4000::/8]:53', 'fe80::/10'].flatMap(text => parseEgressEntryV6(text) ?? [])
    await network.apply(rulesetText(planV6({ v6: { allowed } })))
    expect((await effectOf(to(['fd12::9', '4000::9'], [9, 53]), 0, 2)).arrived).toEqual([0, 2])
    expect(await effectOf(to(['4000::9', 'fe80::9', 'fc00::9', '2001:db8:88::77']))).toEqual(nothing)
    await network.apply(rulesetText(planV6()))
  })
})

type Count = { readonly packets: number; readonly bytes: number }

/** Counts what arrives for port 9 alone: neighbours ask one another at any time. */
async function countDatagrams(world: Netns): Promise<() => Promise<Count>> {
  const counted = `add table inet both
    add counter inet both arrived
    add chain inet both pre { type filter hook prerouting priority -460; }
    add rule inet both pre iifname "eth0" udp dport 9 counter name arrived`
  await world.run(['nft', '--file', '-'], { stdin: counted })
  return async () => {
    const text = await world.run(['nft', '--json', 'list', 'counters', 'table', 'inet', 'both'])
    const { nftables } = JSON.parse(text) as { nftables: { counter?: Count }[] }
    return nftables.flatMap(({ counter }) => counter ?? [])[0] ?? { packets: -1, bytes: -1 }
  }
}

describe.if(needsRoot('the test of the cap of both families'))('the cap of a guest with both families', () => {
  test('goal: what both send counts together, to the packet, and the packet that would pass it and all later ones stay here', async () => {
    using network = await createGuestNetwork()
    const { world, guests } = network
    const limitBytes = 20_000
    const vms = [{ ...first, ...unspent, limitBytes, opened: true, network: 'world' as const }]
    await network.apply(rulesetText(planV6({ vms, removed: objectsOf(second.tap) })))
    await plugInV6(network)
    const arrived = await countDatagrams(world)
    const send = await frameSender(network, guests[0])
    const link = { from: first.mac, to: tapMac }
    const v4 = ethernet(
      link,
      ETHERTYPES.ipv4,
      ipv4({ from: guest(1).address, to: worldAddress, protocol: PROTOCOLS.udp }, udp(9, 9, Buffer.alloc(500 - 28))),
    )
    const v6 = udpFrameV6({ link, from: first.addressV6, to: worldV6 }, [9, 9], Buffer.alloc(500 - 48))
    const hasCome = async (bytes: number) => {
      await until(`${bytes} bytes have come`, 60_000, async () => (await arrived()).bytes >= bytes)
      expect(await arrived()).toMatchObject({ bytes })
    }
    // Ten of each: half of it.
    await send(Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? v4 : v6)))
    await hasCome(10_000)
    expect((await network.quotas())[first.tap]).toBe(10_000)
    await send(Array.from({ length: 60 }, (_, n) => (n % 3 === 0 ? v4 : v6)))
    await hasCome(limitBytes)
    for (const frame of [v4, v6]) await send([frame])
    expect(await arrived()).toMatchObject({ bytes: limitBytes })
    // Answers within SSH from outside have their own allowance, over IPv6 too; what the guest itself begins has not.
    await network.listen(world, '::', 80)
    await network.listen(guests[0], '::', 22)
    expect(await network.reach(world, first.addressV6, 22)).toBe(worldV6)
    expect(await network.reach(guests[0], worldV6, 80)).toBeNull()
    const used = await network.quotas()
    expect(used[first.tap]).toBe(limitBytes)
    expect(used[`${first.tap}_rescue`]).toBeGreaterThan(0)
  })

  test('goal: flows of both families count together, up to what one VM may have', async () => {
    using network = await createGuestNetwork()
    const { world, guests, inside } = network
    const egress = { ...planV6().egress, flowsMax: 6 }
    await network.apply(rulesetText(planV6({ egress })))
    await plugInV6(network)
    const send = await frameSender(network, guests[0])
    const link = { from: first.mac, to: tapMac }
    const v4 = (port: number) =>
      ethernet(
        link,
        ETHERTYPES.ipv4,
        ipv4({ from: guest(1).address, to: worldAddress, protocol: PROTOCOLS.udp }, udp(port, 9, Buffer.alloc(8))),
      )
    const v6 = (port: number) => udpFrameV6({ link, from: first.addressV6, to: worldV6 }, [port, 9], Buffer.alloc(8))
    const ports = Array.from({ length: 4 }, (_, n) => 5_000 + n)
    // The path to the world knows its neighbour of IPv4 then, and nothing else is under way.
    const arrived = await countDatagrams(world)
    await send([v4(4_000)])
    await until('it arrives', 60_000, async () => (await arrived()).packets === 1)
    await inside.run(['conntrack', '--flush'])
    await send(ports.flatMap(port => [v4(port), v6(port)]))
    await until('as many as may have come', 60_000, async () => (await arrived()).packets >= 1 + 6)
    expect(await arrived()).toMatchObject({ packets: 1 + 6 })
  })
})
