// The holder of an address, from a VM's failure to the next VM that gets it: the engine's decisions, real SQLite,
// manual clock.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { present } from '../../../src/base/assert.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { instanceAddresses } from '../../../src/instances/dns/address.plan.ts'
import { insertInstance, instanceById } from '../../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { listResources, recordResource } from '../../../src/store/ledger/resource.query.ts'
import { addressRestMs, engineBench, hello, spec } from '../../rigs/launch/vm-engine.ts'

test('the name of a failed instance leads nowhere, least of all to the VM that gets its address', async () => {
  // Goal: a name resolves only while its own VM holds the address (issue 9: it gave a shell in another tenant's VM).
  const b = engineBench()
  const own = b.define()
  insertOrganization(b.store.directory.db, { id: 'org', slug: 'acme', nowMs: 0 })
  insertInstance(b.store.directory.db, {
    id: 'instance',
    hostId: b.store.hostId,
    organizationId: 'org',
    name: 'abcd1234',
    hostname: 'abcd1234.acme.agents.test',
    agent: 'opencode',
    publicKey: 'ssh-ed25519 AAAA me',
    inferenceMode: 'default_gateway',
    inferenceModel: 'tiny',
    vmId: own,
    nowMs: 0,
  })
  const resolve = () => {
    const instance = present(instanceById(b.store.directory.db, 'instance'), 'the instance is on record')
    return instanceAddresses(instance, vmId => b.engine.view(vmId))
  }
  await b.clock.elapse(0)
  await b.observe(own, { hello })
  expect(resolve()).toEqual({ v4: '10.88.0.1', v6: null })
  await b.observe(own, { hello, stopped: true })
  expect([b.state(own), b.engine.view(own)?.address]).toEqual(['failed', null])
  expect(resolve()).toBeNull()
  await b.clock.elapse(addressRestMs)
  const next = b.define()
  await b.clock.elapse(0)
  expect(b.engine.view(next)?.address).toBe('10.88.0.1')
  expect(resolve()).toBeNull()
})

test('an address rests before another VM gets it, across restarts and whatever the clock does', async () => {
  // Goal: who still has the old answer, or an old connection, does not meet the next tenant.
  const b = engineBench()
  const first = b.define()
  await b.clock.elapse(0)
  await b.dismiss(first)
  expect(b.state(first)).toBe('gone')
  const address = async (engine = b.engine) => {
    const id = b.define(engine)
    await b.clock.elapse(0)
    const given = engine.view(id)?.address
    await b.dismiss(id, engine)
    return given
  }
  expect(await address()).toBe('10.88.0.2')
  await b.engine.stop()
  const restarted = b.create()
  expect(await address(restarted)).toBe('10.88.0.3')
  await b.clock.elapse(addressRestMs)
  expect(await address(restarted)).toBe('10.88.0.1')
  // The wall clock jumps back by a day: the rest begins anew then, and ends.
  b.clock.set(b.clock.nowMs() - 24 * 60 * 60 * 1000)
  expect(await address(restarted)).not.toBe('10.88.0.1')
  await b.clock.elapse(addressRestMs)
  expect(await address(restarted)).toBe('10.88.0.1')
})

test('when every free address rests, a new VM waits for one within its wait and else fails', async () => {
  // Goal: the rest is a bound that shows, not a deadlock.
  for (const [capacityWaitMs, state] of [
    [0, 'failed'],
    [2 * addressRestMs, 'booting'],
  ] as const) {
    const b = engineBench({ pools: { v4: '10.88.0.0/30' }, capacityWaitMs })
    for (const id of [b.define(), b.define()]) {
      await b.clock.elapse(0)
      await b.dismiss(id)
    }
    const id = b.define()
    await b.clock.elapse(addressRestMs + 1)
    expect(b.state(id)).toBe(state)
  }
})

const poolV6 = '2001:db8:88::/64'

test('a VM gets an address of each family in one go, and of what it has the guest is told', async () => {
  // Goal: both leases are on record before anything is made, and both come back, rested.
  const b = engineBench({ pools: { v6: poolV6 } })
  const id = b.define()
  await b.clock.elapse(0)
  expect(b.engine.view(id)).toMatchObject({ address: '10.88.0.1', addressV6: '2001:db8:88::1' })
  await b.observe(id, { hello })
  expect(b.networks).toEqual([
    {
      address: '10.88.0.1',
      gateway: '169.254.88.1',
      v6: { address: '2001:db8:88::1', gateway: 'fd73:7472:6f6e:67::1', gatewayMac: '0a:73:74:72:6f:6e' },
      mtuBytes: 1500,
      resolvers: ['192.0.2.53', '2001:db8::53'],
    },
  ])
  await b.dismiss(id)
  expect(b.engine.view(id)).toMatchObject({ state: 'gone', address: null, addressV6: null })
  expect(listResources(b.store.ledger.db, 'address_v6')).toEqual([])
  const next = b.define()
  await b.clock.elapse(0)
  expect(b.engine.view(next)).toMatchObject({ address: '10.88.0.2', addressV6: '2001:db8:88::2' })
  await b.dismiss(next)
  await b.clock.elapse(addressRestMs)
  const third = b.define()
  await b.clock.elapse(0)
  expect(b.engine.view(third)).toMatchObject({ address: '10.88.0.1', addressV6: '2001:db8:88::1' })
})

test('with an IPv6 pool alone a VM has IPv6 alone, and its SSH is looked at there', async () => {
  // Goal: nothing asks for the address that it does not have.
  const probed: string[] = []
  const b = engineBench({ pools: { v4: null, v6: poolV6 } })
  b.world.ssh = async ({ address }) => void probed.push(address)
  const claimed = { ...hello, claimId: 'claimed' }
  b.world.agent = async () => claimed
  b.engine.start()
  const id = b.define()
  await b.clock.elapse(0)
  expect(b.engine.view(id)).toMatchObject({ address: null, addressV6: '2001:db8:88::1' })
  await b.observe(id, { hello: claimed })
  expect(b.networks[0]).toEqual({
    v6: { address: '2001:db8:88::1', gateway: 'fd73:7472:6f6e:67::1', gatewayMac: '0a:73:74:72:6f:6e' },
    mtuBytes: 1500,
    resolvers: ['2001:db8::53'],
  })
  await b.clock.elapse(10 * 60_000)
  expect(new Set(probed)).toEqual(new Set(['2001:db8:88::1']))
  await b.engine.stop()
})

test('VMs that build, and those of the gateway, have IPv4 alone; without a pool of it they get no place', async () => {
  // Goal: their firewall knows IPv4 alone, so nothing of the other family is leased to them.
  for (const network of ['fetch', 'gateway'] as const) {
    for (const [v4, state, address] of [
      ['10.88.0.0/28', 'booting', '10.88.0.1'],
      [null, 'failed', null],
    ] as const) {
      const b = engineBench({ pools: { v4, v6: poolV6 } })
      const id = newUuid()
      b.engine.define(id, { ...spec, network })
      await b.clock.elapse(0)
      expect(b.engine.view(id)).toMatchObject({ state, address, addressV6: null })
    }
  }
})

test('however VMs come and go, no two have one address of either family', async () => {
  // Goal: over any order of creates and deletes, held addresses are distinct, in the ledger as in what is shown.
  await fc.assert(
    fc.asyncProperty(fc.array(fc.boolean(), { minLength: 1, maxLength: 24 }), async steps => {
      const b = engineBench({ pools: { v6: poolV6 } })
      const living: string[] = []
      for (const isCreate of steps) {
        if (isCreate) living.push(b.define())
        else if (living.length > 0) await b.dismiss(living.shift() ?? '')
        await b.clock.elapse(0)
        const views = living.map(id => b.engine.view(id))
        for (const key of ['address', 'addressV6'] as const) {
          const held = views.flatMap(view => view?.[key] ?? [])
          expect(new Set(held).size).toBe(held.length)
        }
      }
      b.store.close()
    }),
    { numRuns: 15 },
  )
  const { store, define, clock } = engineBench({ pools: { v6: poolV6 } })
  const [text, two] = [define(), define()]
  await clock.elapse(0)
  const name = '2001:db8:88::1'
  expect(listResources(store.ledger.db, 'address_v6').find(row => row.name === name)?.vmId).toBe(text)
  expect(() => recordResource(store.ledger.db, { vmId: two, kind: 'address_v6', name, nowMs: 1 })).toThrow('UNIQUE')
})
