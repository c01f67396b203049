// How many connections one instance may have and begin, as the kernel tracks them, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  createGuestNetwork,
  type GuestNetwork,
  hostAddress,
  worldAddress,
} from '../../../scripts/rigs/guest/network.ts'
import { guest, objectsOf, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const datagrams = 30_000
/** Datagrams, each to another port of the address: a flow each. */
const floodCode = `const s = await Bun.udpSocket({ socket: { error() {} } }); console.log('up')
  for await (const line of console) {
    for (let i = 0; i < ${datagrams}; i += 1) { try { s.send('x', 10_000 + i, line) } catch {} if (i % 500 === 0) await Bun.sleep(1) }
    console.log('sent ' + line) }`

describe.if(needsRoot('the test of flows'))('an instance that floods', () => {
  let network: GuestNetwork
  const tracked = async () => Number(await network.inside.run(['cat', '/proc/sys/net/netfilter/nf_conntrack_count']))
  const bounded = (newFlowsPerSecondMax: number, flowsMax: number) =>
    rulesetText(plan({ egress: { ...plan().egress, newFlowsPerSecondMax, flowsMax } }))
  const flood = async (address: string) => {
    const { guests, program } = network
    const flooding = await program(guests[0], floodCode)
    const startedMs = performance.now()
    flooding.write(address)
    await flooding.says(`sent ${address}`)
    return (performance.now() - startedMs) / 1000
  }

  beforeAll(async () => {
    network = await createGuestNetwork()
    await network.listen(network.world, '0.0.0.0', 80)
    // Whether it answers must not matter here.
    await network.world.run(['nft', 'add', 'rule', 'inet', 'seen', 'pre', 'udp', 'dport', '10000-65535', 'drop'])
  })
  afterAll(() => network?.[Symbol.dispose]())

  test('begins no more of them in a second than it may', async () => {
    // Goal: one guest cannot fill the table that all VMs share: 30,000 datagrams once made 30,000 entries in half a
    // second.
    const rate = 100
    await network.apply(bounded(rate, 1_000_000))
    const seconds = await flood(worldAddress)
    const flows = await tracked()
    expect(flows).toBeLessThanOrEqual(rate * 4 + rate * Math.ceil(seconds) + 20)
    expect(flows).toBeGreaterThanOrEqual(rate * 4)
    expect(await network.reach(network.guests[1], worldAddress, 80)).toBe(hostAddress)
  })

  test('sends as much within one as it likes, whether or not anybody answers', async () => {
    // Goal: the bound is on flows; a stream that nobody answers, as of a log or a camera, is one.
    await network.inside.run(['conntrack', '--flush'])
    await network.apply(bounded(1, 2))
    const stream = await network.program(
      network.guests[0],
      `const s = await Bun.udpSocket({ socket: { error() {} } }); console.log('up')
        // No faster than a busy kernel takes them on: it has room for a thousand, and a socket for fewer.
        for await (const line of console) { for (let i = 0; i < 2000; i += 1) { while (!s.send('x', 9, line)) await Bun.sleep(1); if (i % 10 === 0) await Bun.sleep(1) } console.log('sent') }`,
    )
    const before = await network.countArrivals(network.world)
    stream.write(worldAddress)
    await stream.says('sent')
    await until(
      'all have come',
      60_000,
      async () => (await network.countArrivals(network.world)) - before === 2000 * 29,
    )
  })

  test('has no more of them at a time than it may, and only what passes is charged', async () => {
    // Goal: however slowly they are begun, one VM does not fill the table; bytes that are dropped cost nobody anything.
    await network.inside.run(['conntrack', '--flush'])
    await network.inside.run(['nft', 'flush', 'ruleset'])
    await network.apply(bounded(100_000, 150))
    const before = await network.countArrivals(network.world)
    await flood(worldAddress)
    expect(await tracked()).toBeLessThanOrEqual(150 + 20)
    const passed = (await network.countArrivals(network.world)) - before
    expect((await network.quotas())[guest(1).tap]).toBe(passed)
    expect(passed / 29).toBeLessThanOrEqual(150 + 5)
    expect(await network.reach(network.guests[0], worldAddress, 80)).toBeNull()
    expect(await network.reach(network.guests[1], worldAddress, 80)).toBe(hostAddress)
    // Its own come back as they end.
    await network.inside.run(['conntrack', '--delete', '--orig-src', guest(1).address])
    expect(await network.reach(network.guests[0], worldAddress, 80)).toBe(hostAddress)
  })

  test('leaves nothing tracked of what is refused', async () => {
    // Goal: a flood of what goes nowhere costs no entry: to a denied network, and over the cap.
    await network.inside.run(['conntrack', '--flush'])
    await network.apply(rulesetText(plan({ ownNetworks: ['192.0.2.0/24'] })))
    await flood(worldAddress)
    expect(await tracked()).toBeLessThanOrEqual(5)
    const vms = plan().vms.map(vm => ({ ...vm, limitBytes: 0 }))
    await network.apply(rulesetText(plan({ vms })))
    await flood(worldAddress)
    expect(await tracked()).toBeLessThanOrEqual(5)
    const closed = await network.inside.run(['nft', 'list', 'set', 'inet', 'strongroom', 'closed'])
    expect(closed).toContain(guest(1).tap)
    // A higher cap counts at once.
    await network.apply(rulesetText(plan()))
    expect(await network.reach(network.guests[0], worldAddress, 80)).toBe(hostAddress)
  })

  test('leaves nothing behind when it goes', async () => {
    // Goal: sets that packets fill do not grow with every VM that there ever was.
    await network.apply(rulesetText(plan({ vms: plan().vms.slice(1), removed: objectsOf(guest(1).tap) })))
    expect(await network.inside.run(['nft', 'list', 'ruleset'])).not.toContain(guest(1).tap)
  })
})
