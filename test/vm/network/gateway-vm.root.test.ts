// The gateway's VMs as the kernel sees them, between namespaces: their clients, their upstreams, and attacks of root in
// one. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  type GatewayVmChange,
  gatewayVmHostPlan,
  gatewayVmPlan,
  hostUpstream,
  listenPort,
  servicePort,
} from '../../../scripts/rigs/gateway/guests.ts'
import {
  createGuestNetwork,
  type GuestNetwork,
  hostAddress,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, openText } from '../../../scripts/rigs/guest/two-guests.ts'
import { type Netns, needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const [first, second, instance] = [1, 2, 3].map(n => guest(n).address) as [string, string, string]
const local = '127.0.0.1'
const [otherPort, loopbackPort, worldPort] = [9000, 7777, 80]

describe.if(needsRoot('the test of the network of gateways'))('the network of the gateway’s VMs', () => {
  let network: GuestNetwork
  let host: Netns
  let world: Netns
  let guests: {
    readonly first: Netns
    readonly second: Netns
    readonly instance: Netns
    readonly builder: Netns
    readonly hostile: Netns
  }

  const apply = async (change: GatewayVmChange = {}) => {
    await network.apply(rulesetText(gatewayVmPlan(change)))
    await network.applyHost(hostTableText(gatewayVmHostPlan(change)))
  }
  const flushAll = async () => {
    await host.run(['nft', 'flush', 'ruleset'])
    await network.apply(openText)
  }
  type Attempt = readonly [
    from: Netns,
    address: string,
    port: number,
    local?: { localPort?: number; localAddress?: string },
  ]
  /** Result of each attempt. Null for no way through. */
  const reached = async (attempts: Readonly<Record<string, Attempt>>): Promise<Record<string, string | null>> => {
    const queue = Object.entries(attempts)
    const found: Record<string, string | null> = {}
    const worker = async () => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        found[next[0]] = await network.reach(...next[1])
      }
    }
    await Promise.all([worker(), worker(), worker(), worker()])
    return found
  }
  const nothing = (attempts: Readonly<Record<string, Attempt>>) =>
    Object.fromEntries(Object.keys(attempts).map(what => [what, null]))

  beforeAll(async () => {
    network = await createGuestNetwork(5)
    ;({ host, world } = network)
    const [netns, two, three, four, five] = network.guests
    guests = {
      first: netns,
      second: two,
      instance: present(three, 'five guests'),
      builder: present(four, 'five guests'),
      hostile: present(five, 'five guests'),
    }
    for (const [where, name] of [
      [guests.first, 'a '],
      [guests.second, 'b '],
    ] as const)
      for (const port of [22, servicePort, otherPort]) await network.listen(where, '0.0.0.0', port, name)
    for (const port of [22, servicePort]) await network.listen(guests.instance, '0.0.0.0', port)
    for (const port of [53, worldPort, 443, servicePort, otherPort]) await network.listen(world, '0.0.0.0', port)
    for (const port of [22, 53, 8441, hostUpstream.port]) await network.listen(host, '0.0.0.0', port)
    await network.listen(host, '0.0.0.0', listenPort, 'host ')
  })

  afterAll(() => network?.[Symbol.dispose]())

  test('clients reach the service port of the one that serves, from everywhere, and are seen as who they are', async () => {
    // Goal: whoever may ask the gateway finds it where its address says, and its limits go by the client's own address.
    await apply()
    expect(
      await reached({
        'world, mapped': [world, hostAddress, listenPort],
        'world, routed': [world, first, servicePort],
        'instance, mapped': [guests.instance, nextHop, listenPort],
        'instance, routed': [guests.instance, first, servicePort],
        'host, loopback': [host, local, listenPort],
        'host, its own address': [host, hostAddress, listenPort],
        'host, next hop': [host, nextHop, listenPort],
        'host, routed': [host, first, servicePort],
        'world, the other': [world, second, servicePort],
        'instance, the other': [guests.instance, second, servicePort],
      }),
    ).toEqual({
      'world, mapped': `a ${worldAddress}`,
      'world, routed': `a ${worldAddress}`,
      'instance, mapped': `a ${instance}`,
      'instance, routed': `a ${instance}`,
      'host, loopback': `a ${nextHop}`,
      'host, its own address': `a ${hostAddress}`,
      'host, next hop': `a ${nextHop}`,
      'host, routed': `a ${nextHop}`,
      'world, the other': `b ${worldAddress}`,
      'instance, the other': `b ${instance}`,
    })
  })

  test('what they send counts, and never ends', async () => {
    // Goal: a gateway is as observable as an instance, and does not stop for what it has answered.
    await apply()
    const sent = async () => {
      const counters = await network.inside.run(['nft', 'list', 'counter', 'inet', 'strongroom', guest(1).tap])
      const { [guest(1).tap]: quota = 0, [`${guest(1).tap}_rescue`]: rescue } = await network.quotas()
      return { quota, rescue, counter: Number(/bytes (\d+)/.exec(counters)?.[1]) }
    }
    const before = await sent()
    expect(await network.reach(world, hostAddress, listenPort)).toBe(`a ${worldAddress}`)
    const after = await sent()
    expect(after.quota).toBeGreaterThan(before.quota)
    expect(after.counter - before.counter).toBe(after.quota - before.quota)
    expect(after.rescue).toBe(0)
  })

  test('nobody reaches anything else of them, and who has no business with the gateway reaches none of it', async () => {
    // Goal: one port is open, to those who are clients.
    await apply()
    const attempts: Record<string, Attempt> = {
      'builder, mapped': [guests.builder, nextHop, listenPort],
      'builder, routed': [guests.builder, first, servicePort],
      'instance, address of the host': [guests.instance, hostAddress, listenPort],
    }
    for (const [name, from] of [
      ['world', world],
      ['instance', guests.instance],
      ['host', host],
    ] as const)
      for (const port of [22, otherPort]) attempts[`${name} ${port}`] = [from, first, port]
    expect(await reached(attempts)).toEqual(nothing(attempts))
    // Only one port of this host is mapped.
    expect(await network.reach(world, hostAddress, 8441)).toBe(worldAddress)
    expect(await network.reach(host, local, 8441)).toBe(local)
  })

  /** Attempts of root in a gateway's VM, upstreams aside. */
  const escapes = (from: Netns): Record<string, Attempt> => {
    const targets: readonly (readonly [string, string, number])[] = [
      ['another port of the upstream', worldAddress, worldPort],
      ['resolver of the world', worldAddress, 53],
      ['service port in the world', worldAddress, servicePort],
      ['SSH of the host', nextHop, 22],
      ['resolver of the host', nextHop, 53],
      ['instances API', nextHop, 8441],
      ['upstream port at another address of the host', hostAddress, hostUpstream.port],
      ['mapped port', nextHop, listenPort],
      ['mapped port at another address', hostAddress, listenPort],
      ['SSH of an instance', instance, 22],
      ['service port of an instance', instance, servicePort],
      ['service port of another gateway', second, servicePort],
      ['SSH of another gateway', second, 22],
    ]
    return Object.fromEntries(
      targets.flatMap(([what, address, port]): [string, Attempt][] => [
        [what, [from, address, port]],
        // As if it were an answer to a client, or to the look that the host takes at SSH servers.
        ...[servicePort, 22].map((localPort): [string, Attempt] => [
          `${what}, from ${localPort}`,
          [from, address, port, { localPort }],
        ]),
      ]),
    )
  }

  test('they reach their upstreams, under the address of the host, and of all else that there is nothing', async () => {
    // Goal: prompts leave the VM to where workload.json says, and nowhere else, whoever is root in it.
    const { hostile } = guests
    const attempts = escapes(hostile)
    // Each attempt is one that gets through where nobody forbids it, but that this host's other addresses are closed by
    // its routing already.
    await flushAll()
    const closed = Object.entries(await reached(attempts)).filter(([, seen]) => seen === null)
    expect(closed.map(([what]) => what).toSorted()).toEqual(
      Object.entries(attempts)
        .flatMap(([what, [, address]]) => (address === hostAddress ? [what] : []))
        .toSorted(),
    )
    await apply()
    expect(await reached(attempts)).toEqual(nothing(attempts))
    expect(await network.reach(hostile, worldAddress, 443)).toBe(hostAddress)
    expect(await network.reach(hostile, nextHop, hostUpstream.port)).toBe(guest(5).address)
    // An address of its own choice.
    await hostile.run(['ip', 'address', 'add', '10.88.0.77/32', 'dev', 'eth0'])
    expect(await network.reach(hostile, worldAddress, 443, { localAddress: '10.88.0.77' })).toBeNull()
    await apply({ service: { upstreams: [] } })
    expect(await network.reach(hostile, worldAddress, 443)).toBeNull()
    expect(await network.reach(hostile, nextHop, hostUpstream.port)).toBeNull()
  })

  test('no datagram of theirs arrives anywhere', async () => {
    // Goal: not to an upstream either, whose TCP port is all that is open; names are no way out.
    const { hostile } = guests
    const sender = await network.program(
      hostile,
      `const s = await Bun.udpSocket({ socket: { error() {} } }); console.log('up')
        for await (const line of console) { const [to, port] = line.split(' ')
          // That nobody listens there is said by an error of the next one.
          for (let i = 0; i < 5; i += 1) try { s.send('x', Number(port), to) } catch {}
          console.log('sent ' + line) }`,
    )
    const targets = [
      [world, worldAddress],
      [guests.instance, instance],
      [guests.second, second],
    ] as const
    const arrived = async () => await Promise.all(targets.map(([where]) => network.countArrivals(where)))
    const sendAll = async () => {
      for (const [, to] of targets) {
        for (const port of [53, 443, servicePort]) {
          sender.write(`${to} ${port}`)
          await sender.says(`sent ${to} ${port}`)
        }
      }
    }
    await flushAll()
    const before = await arrived()
    await sendAll()
    await until('some come to each where nobody forbids it', 60_000, async () =>
      (await arrived()).every((bytes, at) => bytes > (before[at] ?? 0)),
    )
    await apply()
    const forbidden = await arrived()
    await sendAll()
    expect(await arrived()).toEqual(forbidden)
  })

  test('before it is opened, this host alone reaches its service port; without a service, nobody does', async () => {
    // Goal: a VM that has proved nothing gets no prompt and sends nothing anywhere, and can be asked for its receipts.
    const attempts: Record<string, Attempt> = {
      'world, routed': [world, first, servicePort],
      'instance, routed': [guests.instance, first, servicePort],
      'host, another port': [host, first, otherPort],
      'host, SSH': [host, first, 22],
      'to its upstream': [guests.first, worldAddress, 443],
      'to its upstream here': [guests.first, nextHop, hostUpstream.port],
    }
    await apply({ vms: { 1: { opened: false } }, service: { address: null } })
    const arrived = await network.countArrivals(guests.first)
    expect(await reached(attempts)).toEqual(nothing(attempts))
    expect(await network.countArrivals(guests.first)).toBe(arrived)
    expect(await network.reach(host, first, servicePort)).toBe(`a ${nextHop}`)
    // Where none serves, this host answers itself: that nobody listens, as a rule.
    expect(await network.reach(world, hostAddress, listenPort)).toBe(`host ${worldAddress}`)
    // One that is not the one that serves is none of their business.
    await apply({ vms: { 1: { opened: false } }, service: { address: second } })
    expect(await reached(attempts)).toEqual(nothing(attempts))
    expect(await network.reach(world, hostAddress, listenPort)).toBe(`b ${worldAddress}`)
    await network.apply(rulesetText({ ...gatewayVmPlan(), gatewayVmService: null }))
    await network.applyHost(hostTableText({ ...gatewayVmHostPlan(), gatewayVmService: null }))
    expect(await reached({ ...attempts, 'host, routed': [host, first, servicePort] })).toEqual({
      ...nothing(attempts),
      'host, routed': null,
    })
  })

  test('where this host listens on one address, or on none that can be mapped, clients come by that alone', async () => {
    // Goal: what the configuration names is what is taken; instances have their way in any case.
    const attempts: Record<string, Attempt> = {
      world: [world, hostAddress, listenPort],
      'host, loopback': [host, local, listenPort],
      'host, its own address': [host, hostAddress, listenPort],
      'host, next hop': [host, nextHop, listenPort],
      instance: [guests.instance, nextHop, listenPort],
    }
    const always = { 'host, next hop': `a ${nextHop}`, instance: `a ${instance}` }
    await apply({ listen: { address: local, port: listenPort } })
    expect(await reached(attempts)).toEqual({
      world: `host ${worldAddress}`,
      'host, its own address': `host ${hostAddress}`,
      ...always,
      'host, loopback': `a ${nextHop}`,
    })
    await apply({ listen: { address: hostAddress, port: listenPort } })
    expect(await reached(attempts)).toEqual({
      world: `a ${worldAddress}`,
      'host, its own address': `a ${hostAddress}`,
      ...always,
      'host, loopback': `host ${local}`,
    })
    await apply({ listen: { address: null, port: listenPort } })
    expect(await reached(attempts)).toEqual({
      world: `host ${worldAddress}`,
      'host, its own address': `host ${hostAddress}`,
      ...always,
      'host, loopback': `host ${local}`,
    })
  })

  test('what listens on the loopback address of this host gets nothing of them', async () => {
    // Goal: that clients on this host may use 127.0.0.1 opens no way in the other direction.
    const { hostile } = guests
    await leadLoopbackOut(hostile)
    const ears = await network.program(
      host,
      `await Bun.udpSocket({ hostname: '${local}', port: ${loopbackPort}, socket: { data: (_, d) => console.log('got ' + d) } })
        console.log('up')`,
    )
    const sender = await network.program(
      hostile,
      `const s = await Bun.udpSocket({}); console.log('up')
        for await (const line of console) { s.send(line, ${loopbackPort}, '${local}'); console.log('sent ' + line) }`,
    )
    const send = async (what: string) => {
      sender.write(what)
      await sender.says(`sent ${what}`)
    }
    await apply()
    await send('with rules')
    await flushAll()
    await send('without rules')
    const here = await network.program(
      host,
      `const s = await Bun.udpSocket({}); console.log('up')
        for await (const line of console) s.send(line, ${loopbackPort}, '${local}')`,
    )
    here.write('from this host')
    expect(await ears.says('got')).toBe('got from this host')
    await apply()
  })
})

/** Routes 127.0.0.1 out of the interface. */
async function leadLoopbackOut(guest: Netns): Promise<void> {
  await guest.run(['sh', '-c', 'echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet'])
  await guest.run(['ip', '-batch', '-'], {
    stdin: [
      'route delete local 127.0.0.0/8 dev lo table local',
      'route delete local 127.0.0.1 dev lo table local',
      `route add ${local} via ${nextHop} dev eth0`,
    ].join('\n'),
  })
}
