// A VM that builds, while it may fetch and before and after, as the kernel sees it, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createGuestNetwork, type GuestNetwork, worldAddress } from '../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, plan } from '../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../scripts/rigs/netns.ts'
import { type NftVm, rulesetText } from '../../../src/vm/network/nft.plan.ts'

const fetchPort = 3129
const proxied = (change: Partial<NftVm>) =>
  plan({ fetchPort, vms: plan().vms.map((vm, at) => (at === 0 ? { ...vm, network: 'fetch', ...change } : vm)) })

describe.if(needsRoot('the test of the network of builds'))('a VM that builds', () => {
  let network: GuestNetwork

  beforeAll(async () => {
    network = await createGuestNetwork()
    const { host, world, guests, listen } = network
    await listen(world, '0.0.0.0', 80)
    await listen(world, '0.0.0.0', fetchPort)
    for (const port of [22, fetchPort]) await listen(guests[1], '0.0.0.0', port)
    for (const port of [22, 53, 8442, fetchPort]) await listen(host, '0.0.0.0', port)
  })

  afterAll(() => network?.[Symbol.dispose]())

  /** The destinations that the VM reaches. */
  const reached = async (): Promise<string[]> => {
    const { guests, reach } = network
    const from = guests[0]
    const tried = [
      ...[22, 53, 8442, fetchPort].map(port => ['next hop', port, () => reach(from, nextHop, port)] as const),
      ...[22, 8442, fetchPort].map(
        port => ['next hop from 22', port, () => reach(from, nextHop, port, { localPort: 22 })] as const,
      ),
      ...[80, fetchPort].map(port => ['world', port, () => reach(from, worldAddress, port)] as const),
      ...[22, fetchPort].map(port => ['neighbour', port, () => reach(from, '10.88.0.2', port)] as const),
    ]
    // Four at a time: what is dropped is waited for.
    const answers: (string | null)[] = []
    const queue = [...tried.entries()]
    const worker = async () => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        const [at, [, , attempt]] = next
        answers[at] = await attempt()
      }
    }
    await Promise.all([worker(), worker(), worker(), worker()])
    return tried.flatMap(([what, port], at) => (answers[at] === null ? [] : [`${what} ${port}`]))
  }

  test('reaches the fetch proxy of the host while it is opened, and nothing before, beside or after', async () => {
    // Goal: no source or dependency can send anything out except through the proxy and its list, and nothing after the
    // fetch.
    const { apply, guests, reach, quotas } = network
    await apply(rulesetText(proxied({ opened: false })))
    expect(await reached()).toEqual([])
    await apply(rulesetText(proxied({ opened: true })))
    expect(await reached()).toEqual([`next hop ${fetchPort}`, `next hop from 22 ${fetchPort}`])
    // It is charged for that, and the neighbour lives as before.
    expect((await quotas())[guest(1).tap]).toBeGreaterThan(0)
    expect(await reach(guests[1], nextHop, 8442)).toBe('10.88.0.2')
    expect(await reach(guests[1], nextHop, fetchPort)).toBeNull()
    await apply(rulesetText(proxied({ opened: false })))
    expect(await reached()).toEqual([])
  })

  test('a connection that was open when it is closed carries nothing more', async () => {
    // Goal: what was begun while fetching is no way out while building.
    const { apply, guests, program } = network
    await apply(rulesetText(proxied({ opened: true })))
    const session = await program(
      guests[0],
      `const s = require('node:net').connect(${fetchPort}, '${nextHop}'); let n = 0
        s.on('data', d => { n += d.length; console.log(n === d.length ? 'up' : 'got ' + n) })
        for await (const line of console) { s.write(line); console.log('wrote') }`,
    )
    await apply(rulesetText(proxied({ opened: false })))
    session.write('100')
    await session.says('wrote')
    expect(await reached()).toEqual([])
  })

  test('nobody reaches it', async () => {
    // Goal: a build VM serves nobody, whatever listens in it.
    const { apply, host, world, guests, reach, listen } = network
    await listen(guests[0], '0.0.0.0', 22)
    await apply(rulesetText(proxied({ opened: true })))
    expect([await reach(world, '10.88.0.1', 22), await reach(guests[1], '10.88.0.1', 22)]).toEqual([null, null])
    await apply(rulesetText(plan()))
    expect(await reach(world, '10.88.0.1', 22)).toBe(worldAddress)
    expect(await reach(host, '10.88.0.1', 22)).toBe(nextHop)
  })

  test('without a proxy it reaches nothing at all', async () => {
    // Goal: an appliance without service C never opens anything to such a VM.
    const { apply } = network
    await apply(rulesetText({ ...proxied({ opened: true }), fetchPort: null }))
    expect(await reached()).toEqual([])
  })
})
