// A create commits only a directory row; afterwards the reconciler of the row's host makes the VM in the ledger.
// These tests stop the process in between, with the real engine (without its driver) over one database file.

import { expect, test } from 'bun:test'
import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { type Appliance, publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { InstanceReconciler } from '../../../src/instances/reconciler.ts'
import { instanceById, listLiving, moveInstance } from '../../../src/store/directory/instance.query.ts'
import { listVms, moveVm } from '../../../src/store/ledger/vm.query.ts'
import type { Vm } from '../../../src/store/ledger/vm.table.ts'
import { VmReconciler } from '../../../src/vm/machine/reconciler.ts'

const sweepMs = 5_000
const vmSpec = { image: 'instance', vcpus: 2, memoryMib: 2048 } as const

type Host = {
  readonly instances: InstanceReconciler
  readonly built: string[]
  readonly start: () => void
} & AsyncDisposable

/** The reconcilers of a host over the appliance's database. Its stand-in for QEMU is built and never speaks. */
function hostOf({ store, clock }: Appliance, options: { hostId?: string; memoryMib?: number } = {}): Host {
  const hostId = options.hostId ?? store.hostId
  const built: string[] = []
  const engine = new VmReconciler({
    ledger: store.ledger,
    hostId,
    driver: {
      build: async vm => void built.push(vm.id),
      isAlive: () => true,
      attach: () => Promise.reject(new Error('this QEMU does not speak')),
      boundLog: () => {},
      open: async () => {},
      resume: async () => null,
      checkNetwork: async () => true,
      powerDown: async () => {},
      release: async () => {},
    },
    evidence: { collateral: null, simulated: () => Promise.reject(new Error('nobody asks here')) },
    clock,
    guard: createClockGuard(clock),
    log: silentLogger,
    capacity: { memoryMib: options.memoryMib ?? 65_536, vcpus: 64, addresses: 14, asids: null, bootingMax: 8 },
    pools: { v4: '10.88.0.0/28', v6: null },
    addressRestMs: 0,
    platform: 'tcg',
    isHostStopping: async () => false,
    probeSsh: async () => {},
    guestNetwork: { nextHop: '169.254.88.1', nextHopV6: '', nextHopMac: '', mtuBytes: 1500, resolvers: [] },
    diskGibMax: () => 0,
    bootTimeoutMs: 600_000,
    capacityWaitMs: 0,
    hostLoss: null,
  })
  const instances = new InstanceReconciler({
    bootingPerOrganizationMax: 4,
    store: { ...store, hostId },
    engine,
    vmSpec,
    trust: () => Promise.reject(new Error('nobody is attested here')),
    onReady: () => {},
    probe: async () => {},
    clock,
    random: systemRandom,
    log: silentLogger,
    gateway: async () => ({ baseUrl: '', address: null, gateway: { kind: 'none' } }),
    egress: { limitBytes: 1, names: 'any' },
    drawsKeys: false,
    registerKey: () => {},
    claimTimeoutMs: 1_000,
    sshTimeoutMs: 1_000,
  })
  return {
    instances,
    built,
    start: () => {
      instances.start()
      engine.start()
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all([instances.stop(), engine.stop()])
    },
  }
}

const vmsOf = ({ store }: Appliance): Vm[] => listVms(store.ledger.db, store.hostId)

test('a create writes no VM; the reconciler makes it, under the id that the row names', async () => {
  // Goal: the two rooms are never written together, and the id ties them.
  await using appliance = await startAppliance()
  const { vmId } = await appliance.create()
  expect(vmsOf(appliance)).toEqual([])
  await using host = hostOf(appliance)
  host.instances.wake(appliance.store.db.all<{ id: string }>('SELECT id FROM instances')[0]?.id ?? '')
  await appliance.clock.elapse(0)
  expect(vmsOf(appliance)).toMatchObject([{ id: vmId, ...vmSpec, state: 'booting' }])
})

test('goal: one organization that creates all that it may does not stand before another with all of it', async () => {
  await using appliance = await startAppliance()
  await using host = hostOf(appliance)
  host.start()
  const own: string[] = []
  for (let at = 0; at < 10; at += 1) {
    own.push(String((await appliance.create()).name))
    appliance.clock.advance(1)
  }
  const other = await appliance.create(appliance.keys.globex)
  await appliance.clock.elapse(sweepMs)
  const made = () => vmsOf(appliance).map(vm => vm.id)
  const vmIdOf = (name: string) => String(appliance.instance(name).vmId)
  expect(made().sort()).toEqual([...own.slice(0, 4).map(vmIdOf), String(other.vmId)].sort())
  // The next is made as soon as one of them is out of the way, in the order in which they were asked for.
  const next = vmIdOf(own[4] ?? '')
  expect((await appliance.send('DELETE', `/v1/instances/${own[0]}`)).status).toBe(202)
  await appliance.clock.elapse(sweepMs)
  expect([made().includes(next), made().includes(vmIdOf(own[5] ?? ''))]).toEqual([true, false])
})

test('a crash between the commit and the VM is healed at the next start, once', async () => {
  // Goal: an accepted create is never lost and never doubled, however often the process ends.
  const before = await startAppliance()
  const post = (appliance: Appliance) =>
    appliance.send('POST', '/v1/instances', { body: { public_key: publicKey }, headers: { 'Idempotency-Key': 'k' } })
  const first = await post(before)
  await using appliance = await before.restart()
  expect((await post(appliance)).data).toEqual(first.data)
  const { vmId } = appliance.instance(String(first.data.name))
  const built: string[] = []
  for (let i = 0; i < 3; i += 1) {
    await using host = hostOf(appliance)
    host.start()
    await appliance.clock.elapse(0)
    built.push(...host.built)
    expect(vmsOf(appliance).map(vm => vm.id)).toEqual([String(vmId)])
  }
  expect(built).toEqual([String(vmId)])
})

test('a wake that was lost is made good by the sweep', async () => {
  // Goal: without the callback of the create, its VM is there after one sweep.
  await using appliance = await startAppliance()
  await using host = hostOf(appliance)
  host.start()
  await appliance.clock.elapse(0)
  const { vmId } = await appliance.create()
  await appliance.clock.elapse(sweepMs - 1)
  expect(vmsOf(appliance)).toEqual([])
  await appliance.clock.elapse(1)
  expect(vmsOf(appliance)).toMatchObject([{ id: vmId }])
})

test('a delete before the VM exists ends the instance, and no VM is ever made', async () => {
  // Goal: deletion does not depend on the create having got through.
  await using appliance = await startAppliance()
  const { id, name } = await appliance.create()
  expect((await appliance.send('DELETE', `/v1/instances/${name}`)).data.status).toBe('terminating')
  await using host = hostOf(appliance)
  host.start()
  await appliance.clock.elapse(0)
  expect(instanceById(appliance.store.db, id)).toMatchObject({ status: 'terminated', vmId: null })
  await appliance.clock.elapse(10 * sweepMs)
  expect(vmsOf(appliance)).toEqual([])
  expect(host.built).toEqual([])
})

test('a crash between an accepted delete and the dismissal of its VM is healed at the next start', async () => {
  // Goal: no VM runs on for an instance that is to go, nor for one that has failed.
  await using appliance = await startAppliance()
  const deleted = await appliance.create()
  const failed = await appliance.create()
  const kept = await appliance.create()
  {
    await using host = hostOf(appliance)
    host.start()
    await appliance.clock.elapse(0)
  }
  await appliance.send('DELETE', `/v1/instances/${deleted.name}`)
  const nowMs = appliance.clock.nowMs()
  for (const { vmId } of [failed, kept]) {
    moveVm(appliance.store.ledger.db, { id: String(vmId), from: 'booting', to: 'running', nowMs })
  }
  moveInstance(appliance.store.db, { id: failed.id, from: 'provisioning', to: 'failed', nowMs })
  expect(vmsOf(appliance)).toHaveLength(3)
  await using host = hostOf(appliance)
  host.start()
  await appliance.clock.elapse(100)
  expect(vmsOf(appliance).map(vm => vm.id)).toEqual([String(kept.vmId)])
  expect(
    listLiving(appliance.store.db, appliance.store.hostId)
      .map(({ id }) => id)
      .sort(),
  ).toEqual([failed.id, kept.id].sort())
})

test('without room the create is accepted and the instance fails with capacity_exhausted', async () => {
  // Goal: the client's view of a full host is what it was: 202, then failed with the documented code.
  await using appliance = await startAppliance()
  await using host = hostOf(appliance, { memoryMib: 1_024 })
  host.start()
  const { id, name } = await appliance.create()
  host.instances.wake(id)
  await appliance.clock.elapse(0)
  expect((await appliance.send('GET', `/v1/instances/${name}`)).data).toMatchObject({
    status: 'failed',
    failure_code: 'capacity_exhausted',
  })
})

test("another host's instances are left alone", async () => {
  // Goal: in a fleet each row has one host that acts on it.
  await using appliance = await startAppliance()
  const { id } = await appliance.create()
  await using host = hostOf(appliance, { hostId: 'another host' })
  host.start()
  host.instances.wake(id)
  await appliance.clock.elapse(2 * sweepMs)
  expect(vmsOf(appliance)).toEqual([])
  expect(instanceById(appliance.store.db, id)?.status).toBe('provisioning')
})
