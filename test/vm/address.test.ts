// Whose an address is, from a VM's failure to the next VM that gets it: the engine's decisions, real SQLite, manual clock.

import { expect, test } from 'bun:test'
import { present } from '../../src/base/assert.ts'
import { instanceAddresses } from '../../src/instances/dns/address.plan.ts'
import { insertInstance, instanceById } from '../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { addressRestMs, engineBench, hello } from '../rigs/vm-engine.ts'

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
