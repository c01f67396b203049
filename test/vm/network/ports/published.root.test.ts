// The port of published ports of VMs, as the kernel sees it, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createGuestNetwork, type GuestNetwork } from '../../../../scripts/rigs/guest/network.ts'
import { guest, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../../scripts/rigs/netns.ts'
import { publicTlsPort } from '../../../../src/contract/vm/orders/published.ts'
import { type NftVm, rulesetText } from '../../../../src/vm/network/nft.plan.ts'

const first = (change: Partial<NftVm>, publicPort: number | null = publicTlsPort) =>
  plan({ publicPort, vms: plan().vms.map((vm, at) => (at === 0 ? { ...vm, opened: true, ...change } : vm)) })

describe.if(needsRoot('the test of published ports'))('a client', () => {
  let network: GuestNetwork

  beforeAll(async () => {
    network = await createGuestNetwork()
    const { guests, listen } = network
    for (const port of [22, publicTlsPort, 8_080]) await listen(guests[0], '0.0.0.0', port)
  })
  afterAll(() => network?.[Symbol.dispose]())

  const used = async () => (await network.quotas())[guest(1).tap] ?? 0

  test('goal: reaches it at an opened VM alone, beside SSH and nothing else, and the answers count', async () => {
    const { apply, world, reach } = network
    await apply(rulesetText(first({ opened: false })))
    expect(await reach(world, guest(1).address, publicTlsPort)).toBeNull()
    await apply(rulesetText(first({})))
    const before = await used()
    expect(await reach(world, guest(1).address, publicTlsPort)).not.toBeNull()
    expect(await used()).toBeGreaterThan(before)
    expect(await reach(world, guest(1).address, 22)).not.toBeNull()
    expect(await reach(world, guest(1).address, 8_080)).toBeNull()
    // Guests have no way to each other.
    expect(await reach(network.guests[1], guest(1).address, publicTlsPort)).toBeNull()
  })

  test('goal: gets no answer once the cap of the VM is spent, and none where the operator has not opened it', async () => {
    const { apply, world, reach } = network
    await network.inside.run(['nft', 'flush', 'ruleset'])
    await apply(rulesetText(first({ limitBytes: 1, usedBytes: 1 })))
    expect(await reach(world, guest(1).address, publicTlsPort)).toBeNull()
    await network.inside.run(['nft', 'flush', 'ruleset'])
    await apply(rulesetText(first({}, null)))
    expect(await reach(world, guest(1).address, publicTlsPort)).toBeNull()
    expect(await reach(world, guest(1).address, 22)).not.toBeNull()
  })
})
