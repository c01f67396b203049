// The warm pool on a whole host without QEMU: who gets which VM, what is kept, what goes. Real SQLite, manual clock.

import { describe, expect, test } from 'bun:test'
import { newUuid } from '../../src/base/ids.ts'
import { createPoolMetrics } from '../../src/instances/pool-metrics.ts'
import { insertPoolVm, removePoolVm } from '../../src/store/directory/pool.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { digestA, digestB, poolBench } from '../rigs/instances/warm-pool.ts'
import { roomy, spec } from '../rigs/launch/vm-engine.ts'

const minuteMs = 60_000

describe('a create', () => {
  test('gets a warm VM, and is ready without a boot', async () => {
    // Goal: the instance has the id of a waiting VM, the journal says so, and the pool refills itself.
    const b = poolBench({ wanted: 2 })
    const host = b.startHost()
    await b.bootAll()
    const before = b.pooled()
    expect(host.pool.status()).toMatchObject({ wanted: 2, warm: 2, booting: 0, lacking: null, nextAttemptAtMs: null })
    const name = await host.create()
    await b.clock.elapse(0)
    const { id, vmId, status } = b.instance(name)
    expect(status).toBe('ready')
    expect(vmId).toBe(before[0] ?? '')
    expect(b.claims).toEqual([{ vmId: before[0] ?? '', claimId: id }])
    expect(
      listEvents(b.store.ledger.db, { subject: id, limit: 9 }).map(event => [event.kind, event.detail.start]),
    ).toEqual([['instance.accepted', 'warm']])
    await b.clock.elapse(5_000)
    await b.bootAll()
    expect(host.pool.status().warm).toBe(2)
    expect(b.pooled()).not.toContain(before[0] ?? '')
    await host.end()
  })

  test('repeated with its Idempotency-Key takes no second VM', async () => {
    // Goal: a hundred repetitions, across a restart too, have one instance and cost one VM.
    const b = poolBench({ wanted: 3 })
    const first = b.startHost()
    await b.bootAll()
    const warm = b.pooled()
    const names = new Set(await Promise.all(Array.from({ length: 50 }, () => first.create('once'))))
    await first.end()
    const second = b.startHost()
    for (let i = 0; i < 50; i += 1) names.add(await second.create('once'))
    expect(names.size).toBe(1)
    expect(warm.filter(vmId => !b.pooled().includes(vmId))).toHaveLength(1)
    await second.end()
  })

  test('that comes to nothing leaves its VM in the pool', async () => {
    // Goal: the VM is taken in the transaction of the create, and with it only.
    const b = poolBench({ wanted: 1 })
    const host = b.startHost()
    await b.bootAll()
    const [vmId = ''] = b.pooled()
    const attempt = () =>
      b.store.directory.transact(tx => {
        expect(host.pool.take(tx)).toEqual({ vmId, start: 'warm' })
        expect(host.pool.take(tx)).toBeNull()
        throw new Error('no free name')
      })
    expect(attempt).toThrow('no free name')
    expect(b.pooled()).toEqual([vmId])
    expect(b.instance(await host.create()).vmId).toBe(vmId)
    await host.end()
  })

  test('gets the VM that is furthest along, and never stands behind one of the pool', async () => {
    // Goal: with two boot slots, a warm VM first, then those that boot; no boot is begun for either.
    const b = poolBench({ wanted: 3 })
    const host = b.startHost()
    await b.clock.elapse(0)
    const [text = '', two = ''] = b.vmsIn('booting')
    await b.boot(two)
    const [, , three = ''] = b.pooled()
    const vms = (await Promise.all([host.create(), host.create(), host.create()])).map(name => b.instance(name).vmId)
    expect(vms).toEqual([two, text, three])
    expect(host.pool.counts().creates).toEqual({ warm: 1, booting: 2, cold: 0 })
    await b.boot(text)
    await b.boot(three)
    await b.clock.elapse(1_000)
    expect(b.living().map(row => row.status)).toEqual(['ready', 'ready', 'ready'])
    await host.end()
  })

  test('whose claim fails does not give its VM back', async () => {
    // Goal: a VM that was taken is never in the pool again.
    const b = poolBench({ wanted: 1 })
    const host = b.startHost()
    await b.bootAll()
    const [vmId = ''] = b.pooled()
    b.faces.claim = async () => {
      throw new Error('refused')
    }
    const name = await host.create()
    await b.clock.elapse(100)
    expect(b.instance(name)).toMatchObject({ vmId, status: 'failed', failureCode: 'claim_failed' })
    await b.bootAll()
    expect(b.vmsIn('running', 'booting')).not.toContain(vmId)
    expect(b.pooled()).not.toContain(vmId)
    await host.end()
  })
})

describe('the pool gives way', () => {
  test('it asks for nothing without room, and for nothing while an instance waits', async () => {
    // Goal: no VM of the pool fails for lack of room, and none is in front of an instance.
    const b = poolBench({ wanted: 3, capacity: { ...roomy, memoryMib: 2 * spec.memoryMib }, capacityWaitMs: minuteMs })
    const host = b.startHost()
    await b.bootAll()
    expect(b.pooled()).toHaveLength(2)
    expect(host.pool.status()).toMatchObject({ warm: 2, booting: 0, lacking: 'memory', lastFailure: null })
    const names = await Promise.all([host.create(), host.create(), host.create()])
    await b.clock.elapse(1_000)
    expect(names.map(name => b.instance(name).status)).toEqual(['ready', 'ready', 'provisioning'])
    await host.remove(names[0] ?? '')
    await b.bootAll()
    await b.clock.elapse(1_000)
    expect(b.instance(names[2] ?? '').status).toBe('ready')
    expect(b.pooled()).toEqual([])
    await host.end()
  })

  test('VMs of an old image that fill the host make room for a create', async () => {
    // Goal: a create after an image change boots the new image, and surplus VMs of the pool do not make it fail.
    const b = poolBench({ wanted: 2, capacity: { ...roomy, memoryMib: 2 * spec.memoryMib } })
    const host = b.startHost()
    await b.bootAll()
    const old = b.pooled()
    b.image.digest = digestB
    const name = await host.create()
    expect(old).not.toContain(b.instance(name).vmId ?? '')
    await b.bootAll()
    await b.clock.elapse(1_000)
    expect(b.instance(name).status).toBe('ready')
    expect(b.vmsIn('running').filter(vmId => old.includes(vmId))).toEqual([])
    await host.end()
  })

  test('a refill lets claims go first, but not for ever', async () => {
    // Goal: while a claim is under way nothing boots, for three seconds at most.
    const b = poolBench({ wanted: 1 })
    const host = b.startHost()
    await b.bootAll()
    b.faces.claim = () => b.clock.sleep(4_500)
    await host.create()
    await b.clock.elapse(2_500)
    expect(b.pooled()).toEqual([])
    await b.clock.elapse(1_000)
    expect(b.pooled()).toHaveLength(1)
    expect(b.living().map(row => row.status)).toEqual(['provisioning'])
    await b.clock.elapse(5_000)
    await host.end()
  })
})

describe('health', () => {
  test('boots that fail are tried again with back-off, which the status shows', async () => {
    // Goal: exponential, bounded, told; and a pool that works again is as eager as before.
    const b = poolBench({ wanted: 1 })
    const host = b.startHost()
    await b.clock.elapse(0)
    const waits: number[] = []
    for (let i = 0; i < 11; i += 1) {
      const [vmId = ''] = b.vmsIn('booting')
      b.alive.delete(vmId)
      await b.observe(vmId, { closed: true })
      const { nextAttemptAtMs, lastFailure } = host.pool.status()
      expect(lastFailure?.reason).toBe('it failed: boot_failed')
      waits.push((nextAttemptAtMs ?? 0) - b.clock.nowMs())
      expect(b.pooled()).toEqual([])
      await b.clock.elapse(waits.at(-1) ?? 0)
      expect(b.pooled()).toHaveLength(1)
    }
    expect(waits).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(seconds => seconds * 1000))
    await b.bootAll()
    await b.clock.elapse(2 * minuteMs)
    const [vmId = ''] = b.pooled()
    b.alive.delete(vmId)
    await b.observe(vmId, { closed: true })
    expect((host.pool.status().nextAttemptAtMs ?? 0) - b.clock.nowMs()).toBe(1_000)
    expect(host.pool.status().lastFailure?.reason).toBe('it failed: agent_unreachable')
    await b.bootAll()
    expect(b.vmsIn('failed', 'stopping')).toEqual([])
    await host.end()
  })

  test('a VM whose agent restarted is replaced, across a restart of the daemon too', async () => {
    // Goal: the key that an agent began with is on record.
    const b = poolBench({ wanted: 1 })
    const first = b.startHost()
    await b.bootAll()
    const [vmId = ''] = b.pooled()
    await first.end()
    await b.boot(vmId)
    const second = b.startHost()
    await b.clock.elapse(0)
    expect(b.pooled()).not.toContain(vmId)
    expect(second.pool.status().lastFailure?.reason).toBe('its agent restarted')
    expect(b.vmsIn('running')).toEqual([])
    await second.end()
  })

  test('nobody knocks at the SSH port of a VM that is nobody’s', async () => {
    // Goal: ten minutes in the pool, with its pulse taken, and not one probe.
    const b = poolBench({ wanted: 1 })
    let probes = 0
    b.world.ssh = async () => {
      probes += 1
    }
    const host = b.startHost()
    await b.bootAll()
    await b.clock.elapse(10 * minuteMs)
    expect(host.pool.status().warm).toBe(1)
    expect(probes).toBe(0)
    await host.end()
  })
})

describe('drained', () => {
  // Goal: what is not wanted any more is dismissed whole, with the reason in the journal, and nothing else is.
  test.each([
    ['when the image changes', digestB, {}, 'the image has changed', 2],
    [
      'when the shape of instances changes',
      digestA,
      { shape: 'tcg, 4 vCPUs, 2048 MiB' },
      'the shape of instances has changed',
      2,
    ],
    ['when fewer are wanted', digestA, { wanted: 1 }, 'the pool keeps 1', 1],
    ['when none are wanted', digestA, { wanted: 0 }, 'the pool keeps 0', 0],
  ] as const)('%s', async (_, digest, changes, reason, warm) => {
    const b = poolBench({ wanted: 2 })
    const first = b.startHost()
    await b.bootAll()
    const before = b.pooled()
    await first.end()
    b.image.digest = digest
    const second = b.startHost(changes)
    await b.bootAll()
    await b.clock.elapse(6_000)
    await b.bootAll()
    expect(second.pool.status()).toMatchObject({ warm, booting: 0, lastFailure: null })
    const gone = before.filter(vmId => !b.pooled().includes(vmId))
    expect(gone).toHaveLength(warm === 1 ? 1 : 2)
    for (const vmId of gone) {
      const [, ...events] = listEvents(b.store.ledger.db, { subject: vmId, limit: 9 })
      expect(events.find(event => event.kind === 'pool.dismissed')?.detail.reason).toBe(reason)
      expect(b.state(vmId)).toBe('gone')
    }
    expect(b.vmsIn('running')).toHaveLength(warm)
    await second.end()
  })

  test('an image that cannot be read changes nothing, and is told', async () => {
    // Goal: while an operator replaces the image nothing is drained, given away or booted.
    const b = poolBench({ wanted: 1 })
    const host = b.startHost()
    await b.bootAll()
    const before = b.pooled()
    b.image.isThere = false
    await b.clock.elapse(minuteMs)
    expect(b.pooled()).toEqual(before)
    expect(host.pool.status().lastFailure?.reason).toBe('no manifest')
    expect(b.instance(await host.create()).vmId).not.toBe(before[0] ?? '')
    await host.end()
  })
})

describe('killed', () => {
  const killed = () => {
    throw new Error('killed')
  }

  test('between the row and the VM: the row goes, the pool is filled, nothing is left over', async () => {
    // Goal: a row whose VM the ledger does not know is never given away.
    const b = poolBench({ wanted: 1 })
    const first = b.startHost({ engine: { define: killed } })
    await b.clock.elapse(0)
    const [row = ''] = b.pooled()
    expect(b.vmsIn('waiting', 'booting')).toEqual([])
    await first.end()
    const second = b.startHost({ engine: { define: killed } })
    expect(b.store.directory.transact(tx => second.pool.take(tx))).toBeNull()
    await second.end()
    const third = b.startHost()
    await b.bootAll()
    expect(b.pooled()).toHaveLength(1)
    expect(b.pooled()).not.toContain(row)
    expect(b.vmsIn('running')).toEqual(b.pooled())
    await third.end()
  })

  test('between the VM and its boot, and while it boots: the next daemon has it', async () => {
    // Goal: nothing is booted twice and nothing is lost.
    const b = poolBench({ wanted: 1 })
    const first = b.startHost()
    await first.end()
    const second = b.startHost()
    await b.clock.elapse(0)
    const booting = b.vmsIn('booting')
    expect(booting).toEqual(b.pooled())
    await second.end()
    const third = b.startHost()
    await b.bootAll()
    expect(b.vmsIn('running')).toEqual(booting)
    expect(third.pool.status().warm).toBe(1)
    await third.end()
  })

  test('after a VM was taken and before anything else: the instance has it, the pool has not', async () => {
    // Goal: the commit alone decides.
    const b = poolBench({ wanted: 1 })
    const first = b.startHost()
    await b.bootAll()
    const [vmId = ''] = b.pooled()
    await first.end()
    const name = await first.create()
    expect(b.instance(name)).toMatchObject({ vmId, status: 'provisioning' })
    const second = b.startHost()
    await b.clock.elapse(0)
    expect(b.instance(name).status).toBe('ready')
    expect(b.claims.map(claim => claim.vmId)).toEqual([vmId])
    await b.clock.elapse(5_000)
    expect(b.pooled()).not.toContain(vmId)
    await second.end()
  })

  test('between the end of a row and the end of its VM: the VM is an orphan, and goes', async () => {
    // Goal: a VM that no record names does not run for ever; one that somebody has claimed is left alone and told.
    const b = poolBench({ wanted: 1 })
    const first = b.startHost()
    await b.bootAll()
    const [vmId = ''] = b.pooled()
    await first.end()
    removePoolVm(b.store.directory.db, vmId)
    const second = b.startHost()
    await b.bootAll()
    await b.clock.elapse(6_000)
    expect(b.state(vmId)).toBe('gone')
    expect(second.pool.claimedOrphans()).toEqual([])
    const [other = ''] = b.pooled()
    await b.observe(other, { hello: { ...b.hello, boxKey: 'x', claimId: 'somebody' } })
    await b.clock.elapse(1_000)
    await second.end()
    expect(b.pooled()).not.toContain(other)
    const third = b.startHost()
    await b.clock.elapse(0)
    await b.clock.elapse(6_000)
    expect(b.state(other)).toBe('running')
    expect(third.pool.claimedOrphans()).toEqual([other])
    b.alive.delete(other)
    await b.observe(other, { closed: true })
    await b.clock.elapse(6_000)
    expect(b.state(other)).toBe('gone')
    expect(third.pool.claimedOrphans()).toEqual([])
    await third.end()
  })
})

test('a restored row never hands out a VM that an instance has, nor one that is claimed', async () => {
  // Goal: two records of one VM, as after a mishap with a backup, are one owner: the instance.
  const b = poolBench({ wanted: 1 })
  const first = b.startHost()
  await b.bootAll()
  const name = await first.create()
  await b.clock.elapse(0)
  const vmId = b.instance(name).vmId ?? ''
  await first.end()
  const row = { vmId, hostId: b.store.hostId, imageDigest: digestA, shape: 'tcg, 2 vCPUs, 2048 MiB' }
  insertPoolVm(b.store.directory.db, { ...row, nowMs: b.clock.nowMs() })
  const second = b.startHost()
  expect(b.store.directory.transact(tx => second.pool.take(tx))).toBeNull()
  await b.clock.elapse(0)
  expect(b.pooled()).not.toContain(vmId)
  expect([b.state(vmId), b.instance(name).status]).toEqual(['running', 'ready'])
  await second.end()
})

test('VMs of other images and of other hosts are no business of the pool', async () => {
  // Goal: what another service makes later is no orphan.
  const b = poolBench({ wanted: 0 })
  const host = b.startHost()
  const id = newUuid()
  b.engine.define(id, { ...spec, image: 'inference' })
  await b.clock.elapse(11_000)
  expect(b.vmsIn('booting')).toEqual([id])
  await host.end()
})

test('the metrics of a pool that works', async () => {
  // Goal: every family and every label, of a pool that has given away one VM and boots the next.
  const b = poolBench({ wanted: 2 })
  const host = b.startHost()
  await b.bootAll()
  await host.create()
  await b.clock.elapse(1_000)
  expect(
    createPoolMetrics(host.pool)
      .render()
      .split('\n')
      .filter(line => !line.startsWith('#')),
  ).toEqual([
    'strongroom_pool_vms{state="warm"} 1',
    'strongroom_pool_vms{state="booting"} 1',
    'strongroom_pool_vms_wanted 2',
    'strongroom_instance_creates_total{start="warm"} 1',
    'strongroom_instance_creates_total{start="booting"} 0',
    'strongroom_instance_creates_total{start="cold"} 0',
    'strongroom_pool_failures_total 0',
    'strongroom_pool_refills_total 2',
    'strongroom_pool_refill_seconds_total 0',
    '',
  ])
  await host.end()
})
