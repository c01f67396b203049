// The port of published ports of VMs, as the kernel sees it, between namespaces. Needs root.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { createGuestNetwork, type GuestNetwork, worldAddress } from '../../../../scripts/rigs/guest/network.ts'
import { guest, plan } from '../../../../scripts/rigs/guest/two-guests.ts'
import { needsRoot } from '../../../../scripts/rigs/netns.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { publicTlsPort } from '../../../../src/contract/vm/orders/published.ts'
import { type NftVm, rulesetText } from '../../../../src/vm/network/nft.plan.ts'

const published = { limitBytes: 20_000, usedBytes: 0 }
const first = (change: Partial<NftVm>, publicPort: number | null = publicTlsPort) =>
  plan({ publicPort, vms: plan().vms.map((vm, at) => (at === 0 ? { ...vm, opened: true, ...change } : vm)) })

describe.if(needsRoot('the test of published ports'))('a client', () => {
  let network: GuestNetwork
  /** Another source in the world. */
  const neighbour = worldAddress.replace(/\d+$/, '77')

  beforeAll(async () => {
    network = await createGuestNetwork()
    const { guests, listen, world } = network
    for (const port of [22, publicTlsPort, 8_080]) await listen(guests[0], '0.0.0.0', port)
    await world.run(['ip', 'address', 'add', `${neighbour}/24`, 'dev', 'eth0'])
  })
  afterAll(() => network?.[Symbol.dispose]())

  const usedOf = async () => {
    const quotas = await network.quotas()
    return { cap: quotas[guest(1).tap] ?? 0, port: quotas[`${guest(1).tap}_published`] ?? 0 }
  }
  const flush = () => network.inside.run(['nft', 'flush', 'ruleset'])
  const reached = (localAddress = worldAddress) =>
    network.reach(network.world, guest(1).address, publicTlsPort, { localAddress })

  test('goal: reaches it at an opened VM that publishes alone, beside SSH and nothing else, and the answers count', async () => {
    const { apply, world, reach } = network
    await apply(rulesetText(first({ opened: false, published })))
    expect(await reached()).toBeNull()
    await apply(rulesetText(first({})))
    expect(await reached()).toBeNull()
    await apply(rulesetText(first({ published })))
    const before = await usedOf()
    expect(await reached()).not.toBeNull()
    const after = await usedOf()
    expect(after.cap - before.cap).toBe(after.port)
    expect(after.port).toBeGreaterThan(0)
    expect(await reach(world, guest(1).address, 22)).not.toBeNull()
    expect((await usedOf()).port).toBe(after.port)
    expect(await reach(world, guest(1).address, 8_080)).toBeNull()
    // Guests have no way to each other.
    expect(await reach(network.guests[1], guest(1).address, publicTlsPort)).toBeNull()
  })

  test("goal: uses no more of the cap than the owner's part, beyond which the port alone stops", async () => {
    const { apply, world, reach } = network
    await flush()
    await apply(rulesetText(first({ published })))
    await network.program(world, flood(guest(1).address, 100_000))
    const used = await usedOf()
    expect(used.port).toBe(published.limitBytes)
    // Nothing else answers in this test, and dropped packets do not count.
    expect(used.cap).toBeLessThanOrEqual(published.limitBytes)
    expect(used.cap).toBeGreaterThan(published.limitBytes - 4_000)
    expect(await reached()).toBeNull()
    expect(await reach(world, guest(1).address, 22)).not.toBeNull()
    // A greater part opens it again, and goes on from what was used.
    const next = { limitBytes: 40_000, usedBytes: used.port }
    const removed = { quotas: [`${guest(1).tap}_published`], counters: [] }
    await apply(rulesetText({ ...first({ published: next }), removed }))
    expect(await reached()).not.toBeNull()
    expect((await usedOf()).port).toBeGreaterThan(used.port)
    // Unpublished, it gets no new connection.
    await apply(rulesetText(first({ published: { limitBytes: 0, usedBytes: 0 } })))
    expect(await reached()).toBeNull()
  })

  test('goal: gets no more than its share of connections, and others have theirs', async () => {
    const { apply, world } = network
    await flush()
    await apply(rulesetText(first({ published: { limitBytes: 90_000, usedBytes: 0 } })))
    const { says } = await network.program(world, holding(guest(1).address, 48))
    // 32 at once; what was reset beyond them has an end of its own.
    expect(await says('held')).toBe('held 32')
    expect(await reached()).toBeNull()
    expect(await reached(neighbour)).not.toBeNull()
  })

  test('goal: gets no answer once the cap of the VM is spent, and none where the operator has not opened it', async () => {
    const { apply, world, reach } = network
    await flush()
    await apply(rulesetText(first({ limitBytes: 1, usedBytes: 1, published })))
    expect(await reached(neighbour)).toBeNull()
    await flush()
    await apply(rulesetText(first({ published }, null)))
    expect(await reached(neighbour)).toBeNull()
    expect(await reach(world, guest(1).address, 22)).not.toBeNull()
  })

  test('goal: gets nothing more by a connection that is open when the operator or the owner closes the port', async () => {
    const { apply, world, guests, reach, program, countArrivals } = network
    const open = first({ published: { limitBytes: 900_000, usedBytes: 0 } })
    const closed = { operator: first({}, null), owner: first({ published: { limitBytes: 0, usedBytes: 0 } }) }
    for (const [who, text] of Object.entries(closed)) {
      await flush()
      await apply(rulesetText(open))
      const { write, says } = await program(world, asking(guest(1).address))
      const removed = { quotas: [`${guest(1).tap}_published`], counters: [] }
      await apply(rulesetText({ ...text, removed }))
      const [before, arrived] = [await usedOf(), await countArrivals(guests[0])]
      write('50000')
      await until('the request is in the VM', 10_000, async () => (await countArrivals(guests[0])) > arrived)
      // Its answers take the way that those on 443 would have taken before.
      expect(await reach(world, guest(1).address, 22)).not.toBeNull()
      expect([who, (await usedOf()).cap - before.cap < 5_000]).toEqual([who, true])
      // Nothing but the firewall held them back.
      await apply(rulesetText({ ...open, removed: who === 'owner' ? removed : open.removed }))
      await says('got 50000')
    }
  })
})

/** Connects, and has the server send as many bytes as each line says. */
function asking(address: string): string {
  return `
const { connect } = await import('node:net')
const { createInterface } = await import('node:readline')
let got = 0
const socket = connect({ host: '${address}', port: ${publicTlsPort}, localAddress: '${worldAddress}' })
socket.on('error', () => {}).once('data', () => {
  console.log('up')
  socket.on('data', data => { got += data.length; if (got >= 50_000) console.log('got ' + got) })
})
createInterface({ input: process.stdin }).on('line', line => socket.write(line + '\\n'))
await new Promise(() => {})
`
}

/** Has the server send as many bytes to one connection, and waits until no more come. */
function flood(address: string, bytes: number): string {
  return `
const { connect } = await import('node:net')
const socket = connect({ host: '${address}', port: ${publicTlsPort}, localAddress: '${worldAddress}' })
let last = performance.now()
socket.on('error', () => {}).on('data', () => { last = performance.now() })
await new Promise(resolve => socket.on('connect', resolve))
socket.write('${bytes}\\n')
while (performance.now() - last < 2_000) await Bun.sleep(50)
socket.resetAndDestroy()
console.log('up')
`
}

function holding(address: string, count: number): string {
  return `
const { connect } = await import('node:net')
console.log('up')
const opened = await Promise.all(Array.from({ length: ${count} }, () => new Promise(resolve => {
  const socket = connect({ host: '${address}', port: ${publicTlsPort}, localAddress: '${worldAddress}' })
  socket.on('error', () => resolve(false)).on('data', () => resolve(true))
})))
console.log('held ' + opened.filter(Boolean).length)
await new Promise(() => {})
`
}
