// A guest before and after it is opened, as the kernel sees it, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createGuestNetwork, type GuestNetwork, worldAddress } from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const shut = plan({ vms: plan().vms.map(vm => ({ ...vm, opened: false })) })

/** Says up, then sends datagrams to the address of each line. */
const datagramCode = `const s = await Bun.udpSocket({}); console.log('up')
  for await (const line of console) { for (let i = 0; i < 5; i += 1) s.send('x', 9, line); console.log('sent ' + line) }`

describe.if(needsRoot('the test of guests that are not opened'))('a guest that has proved nothing yet', () => {
  let network: GuestNetwork

  beforeAll(async () => {
    network = await createGuestNetwork()
    const { host, world, guests, listen, apply } = network
    await apply(rulesetText(shut))
    await listen(world, '0.0.0.0', 80)
    await listen(guests[1], '0.0.0.0', 22)
    await listen(guests[1], '0.0.0.0', 80)
    await listen(host, '0.0.0.0', 8442)
    await listen(host, '0.0.0.0', 22)
  })

  afterAll(() => network?.[Symbol.dispose]())

  test('nothing passes either way but the look of this host at its SSH server, and nothing counts', async () => {
    // Goal: an unverified VM reaches nobody and nobody reaches it; its owner is charged nothing.
    const { host, inside, world, guests, reach, quotas, program, countArrivals } = network
    expect(await reach(host, '10.88.0.2', 22)).toBe(nextHop)
    const arrived = [await countArrivals(guests[1]), await countArrivals(world)]
    expect(arrived[0]).toBeGreaterThan(0)
    const tried: Promise<string | null>[] = [
      reach(world, '10.88.0.2', 22),
      reach(world, '10.88.0.2', 80),
      reach(host, '10.88.0.2', 80),
      reach(guests[1], worldAddress, 80),
      reach(guests[1], nextHop, 8442),
      reach(guests[1], '10.88.0.1', 22),
    ]
    expect(await Promise.all(tried)).toEqual(tried.map(() => null))
    // From port 22, where the answers to the host come from: no new connection, to whomever.
    for (const [address, port] of [
      [worldAddress, 80],
      [nextHop, 8442],
      [nextHop, 22],
    ] as const) {
      expect([address, port, await reach(guests[0], address, port, { localPort: 22 })]).toEqual([address, port, null])
    }
    for (const [from, to] of [
      [world, '10.88.0.2'],
      [guests[1], worldAddress],
    ] as const) {
      const sender = await program(from, datagramCode)
      sender.write(to)
      await sender.says('sent ')
    }
    expect([await countArrivals(guests[1]), await countArrivals(world)]).toEqual(arrived)
    expect(await quotas()).toMatchObject({ [guest(1).tap]: 0, [guest(2).tap]: 0 })
    const counters = await inside.run(['nft', 'list', 'counters'])
    expect(counters.match(/bytes [1-9]/g)).toBeNull()
  })

  test('opening one opens that one alone, for good, and lets its connections be', async () => {
    // Goal: the owner's way in and the guest's way out open at once, are counted, and survive further runs of nft.
    const { host, world, guests, reach, apply, quotas, program } = network
    const session = await program(
      host,
      `const s = require('node:net').connect(22, '10.88.0.2'); let n = 0
        s.on('data', d => { n += d.length; console.log(n === d.length ? 'up' : 'got ' + n) })
        for await (const line of console) s.write(line)`,
    )
    const opened = rulesetText(plan({ vms: plan().vms.map((vm, at) => ({ ...vm, opened: at === 1 })) }))
    for (let run = 0; run < 2; run += 1) {
      await apply(opened)
      expect(await reach(world, '10.88.0.2', 22)).toBe(worldAddress)
      expect(await reach(guests[1], nextHop, 8442)).toBe('10.88.0.2')
      expect(await reach(guests[0], nextHop, 8442)).toBeNull()
      expect(await reach(host, '10.88.0.2', 22)).toBe(nextHop)
    }
    session.write('100')
    await session.says('got ')
    const used = await quotas()
    expect(used[guest(2).tap]).toBeGreaterThan(0)
    expect(used).toMatchObject({ [guest(1).tap]: 0, [`${guest(2).tap}_rescue`]: 0 })
  })
})
