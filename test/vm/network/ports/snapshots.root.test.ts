// The port where VMs hand over snapshots, as the kernel sees it, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createGuestNetwork, type GuestNetwork, worldAddress } from '../../../../scripts/rigs/guest/network.ts'
import { guest, nextHop, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../../scripts/rigs/netns.ts'
import { type NftVm, rulesetText } from '../../../../src/vm/network/nft.plan.ts'

const snapshotPort = 8446
const first = (change: Partial<NftVm>, port: number | null = snapshotPort) =>
  plan({ snapshotPort: port, vms: plan().vms.map((vm, at) => (at === 0 ? { ...vm, opened: true, ...change } : vm)) })

describe.if(needsRoot('the test of the port of snapshots'))('a VM', () => {
  let network: GuestNetwork

  beforeAll(async () => {
    network = await createGuestNetwork()
    const { host, world, guests, listen } = network
    await listen(world, '0.0.0.0', snapshotPort)
    await listen(guests[1], '0.0.0.0', snapshotPort)
    for (const port of [8442, snapshotPort]) await listen(host, '0.0.0.0', port)
  })
  afterAll(() => network?.[Symbol.dispose]())

  const used = async () => (await network.quotas())[guest(1).tap]

  test('goal: reaches it once opened, and what goes there does not count against its cap', async () => {
    const { apply, guests, reach } = network
    await apply(rulesetText(first({ opened: false })))
    expect(await reach(guests[0], nextHop, snapshotPort)).toBeNull()
    await apply(rulesetText(first({})))
    const before = await used()
    for (let count = 0; count < 3; count += 1) expect(await reach(guests[0], nextHop, snapshotPort)).toBe('10.88.0.1')
    expect(await used()).toBe(before)
    expect(await reach(guests[0], nextHop, 8442)).toBe('10.88.0.1')
    expect(await used()).toBeGreaterThan(before ?? 0)
  })

  test('goal: reaches it after the cap is spent, and nothing else; no other address has the port open for it', async () => {
    const { apply, guests, reach } = network
    // Without it the kernel keeps its own count.
    await network.inside.run(['nft', 'flush', 'ruleset'])
    await apply(rulesetText(first({ limitBytes: 1, usedBytes: 1 })))
    // The first packet of another destination finds the cap spent.
    expect(await reach(guests[0], worldAddress, snapshotPort)).toBeNull()
    expect(await reach(guests[0], nextHop, snapshotPort)).toBe('10.88.0.1')
    expect(await reach(guests[0], nextHop, 8442)).toBeNull()
    expect(await reach(guests[0], '10.88.0.2', snapshotPort)).toBeNull()
  })

  test('goal: a host without snapshots has no such port', async () => {
    const { apply, guests, reach } = network
    await apply(rulesetText(first({}, null)))
    expect(await reach(guests[0], nextHop, snapshotPort)).toBeNull()
    expect(await reach(guests[0], nextHop, 8442)).toBe('10.88.0.1')
  })
})
