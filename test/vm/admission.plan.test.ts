// Admission: which VM gets room on the host, and which is refused at once.

import { expect, test } from 'bun:test'
import { newUuid } from '../../src/base/ids.ts'
import { vmById } from '../../src/store/ledger/vm.query.ts'
import { admission, type Capacity, type Lacking, type Occupancy } from '../../src/vm/admission.plan.ts'
import { admissionFor } from '../../src/vm/capacity.query.ts'
import { engineBench, hello, roomy, spec } from '../rigs/launch/vm-engine.ts'

const capacity: Capacity = { memoryMib: 4096, vcpus: 4, addresses: 10, asids: 3, bootingMax: 1 }
const none = { vms: 0, vcpus: 0, memoryMib: 0, diskGib: 0, booting: 0 }
const small = { vcpus: 2, memoryMib: 2048, diskGib: 8 }
const empty: Occupancy = { reserved: none, ahead: none, ending: none, restingAddresses: 0, diskGibMax: 100 }
const full = (lacking: Lacking, isEnding = false) => ({ kind: 'full', lacking, isEnding }) as const

test('admission counts memory, vCPUs, addresses, ASIDs and boots, each at its exact limit', () => {
  // Goal: the last that fits is admitted, the next one is refused for the right reason.
  const by = (reserved: Partial<typeof none>, of: Partial<Capacity> = {}) =>
    admission(small, { ...empty, reserved: { ...none, ...reserved } }, { ...capacity, ...of })
  expect(by({})).toEqual({ kind: 'admit' })
  expect(by({ memoryMib: 2048 })).toEqual({ kind: 'admit' })
  expect(by({ memoryMib: 2049 })).toEqual(full('memory'))
  expect(by({ vcpus: 3 })).toEqual(full('vcpus'))
  expect(by({ diskGib: 92 })).toEqual({ kind: 'admit' })
  expect(by({ diskGib: 93 })).toEqual(full('disk'))
  expect(by({ vms: 10 })).toEqual(full('addresses'))
  expect(by({ vms: 3 })).toEqual(full('asids'))
  expect(by({ vms: 3 }, { asids: null })).toEqual({ kind: 'admit' })
  expect(by({ vms: 1, booting: 1 })).toEqual({ kind: 'queue' })
})

test('a VM without a scratch disk needs no room for one, and what ends gives its room back', () => {
  // Goal: a full disk refuses only who wants some of it; a delete makes room.
  const reserved = { ...none, vms: 1, diskGib: 96 }
  const taken = { ...empty, reserved }
  expect(admission({ ...small, diskGib: 0 }, { ...taken, diskGibMax: 0 }, capacity)).toEqual({ kind: 'admit' })
  expect(admission(small, taken, capacity)).toEqual(full('disk'))
  expect(admission(small, { ...taken, ending: { ...none, vms: 1, diskGib: 8 } }, capacity)).toEqual(full('disk', true))
})

test('a create that does not fit on the disk is refused, and its size stays on record for those that do', async () => {
  // Goal: the host's disk is promised once; a daemon with another configuration counts what was promised before.
  const b = engineBench({ scratchGib: 8, diskGibMax: 20 })
  const ids = [b.define(), b.define(), b.define()]
  await b.clock.elapse(0)
  expect(ids.map(b.state)).toEqual(['booting', 'booting', 'failed'])
  expect(b.failure(ids[2] ?? '')).toBe('capacity_exhausted')
  expect(vmById(b.store.ledger.db, ids[0] ?? '')?.scratchGib).toBe(8)
})

test('the exchange disk of a build VM is promised like its scratch disk', async () => {
  // Goal: builds and instances share one bound: what waits, what holds its room, and what nobody has asked for yet.
  const capacity = { ...roomy, bootingMax: 4 }
  const b = engineBench({ diskGibMax: 20, capacity })
  const builder = { ...spec, image: 'builder', scratchGib: 4, exchangeGib: 4 }
  const ids = [newUuid(), newUuid(), newUuid()]
  for (const id of ids) b.engine.define(id, builder)
  const host = { hostId: b.store.hostId, capacity, diskGibMax: () => 20, addressRestMs: 0, nowMs: 0 }
  const roomOf = (diskGib: number) => admissionFor(b.store.ledger.db, { vcpus: 1, memoryMib: 512, diskGib }, host)
  expect([roomOf(0).kind, roomOf(1)]).toEqual(['queue', { kind: 'full', lacking: 'disk', isEnding: false }])
  await b.clock.elapse(0)
  expect(ids.map(b.state)).toEqual(['booting', 'booting', 'failed'])
  expect(b.failure(ids[2] ?? '')).toBe('capacity_exhausted')
  expect([roomOf(4).kind, roomOf(5)]).toEqual(['admit', { kind: 'full', lacking: 'disk', isEnding: false }])
})

test('a VM that is paused for want of disk space stays what it is, and is looked at again until it runs', async () => {
  // Goal: ENOSPC costs the one VM its time, never its life; its silence is no loss.
  const b = engineBench({ scratchGib: 8 })
  b.engine.start()
  const id = b.define()
  await b.clock.elapse(0)
  await b.observe(id, { hello })
  await b.observe(id, { hello, paused: true })
  b.world.agent = () => Promise.reject(new Error('silent'))
  b.world.ssh = () => Promise.reject(new Error('silent'))
  await b.clock.elapse(600_000)
  expect(b.state(id)).toBe('running')
  expect(b.resumed.length).toBeGreaterThan(100)
  const before = b.resumed.length
  await b.observe(id, { hello })
  b.world.agent = async () => hello
  await b.clock.elapse(60_000)
  expect([b.state(id), b.resumed.length]).toEqual(['running', before])
})

test('those that wait for longer count as if they had their places, and resting addresses as taken', () => {
  // Goal: a place is promised once; who comes after the last one is not kept waiting for a turn.
  const ahead = { vms: 1, vcpus: 2, memoryMib: 2048, diskGib: 8 }
  expect(admission(small, { ...empty, ahead }, capacity)).toEqual({ kind: 'admit' })
  expect(admission(small, { ...empty, ahead: { ...ahead, memoryMib: 4096 } }, capacity)).toEqual(full('memory'))
  expect(admission(small, { ...empty, restingAddresses: 9 }, capacity)).toEqual({ kind: 'admit' })
  expect(admission(small, { ...empty, restingAddresses: 10 }, capacity)).toEqual(full('addresses'))
  expect(admission(small, { ...empty, ahead, restingAddresses: 9 }, capacity)).toEqual(full('addresses'))
})

test('a full host says whether what is ending would be enough', () => {
  // Goal: an address that is being given back is no use yet, for it rests first.
  const reserved = { ...none, vms: 2, vcpus: 4, memoryMib: 4096 }
  const ending = { vms: 1, vcpus: 2, memoryMib: 2048, diskGib: 8 }
  expect(admission(small, { ...empty, reserved }, capacity)).toEqual(full('memory'))
  expect(admission(small, { ...empty, reserved, ending }, capacity)).toEqual(full('memory', true))
  expect(admission(small, { ...empty, reserved, ending }, { ...capacity, addresses: 2 })).toEqual(full('memory'))
})

test('a create beyond the last place fails at once, though others still wait for their turn to boot', async () => {
  // Goal: no minute of `provisioning` for what cannot become anything (issue 9: 52 s).
  const b = engineBench({ capacity: { ...roomy, memoryMib: 3 * 2048, bootingMax: 1 } })
  const ids = [b.define(), b.define(), b.define(), b.define()]
  await b.clock.elapse(0)
  expect(ids.map(b.state)).toEqual(['booting', 'waiting', 'waiting', 'failed'])
  expect(b.failure(ids[3] ?? '')).toBe('capacity_exhausted')
  for (const id of ids.slice(0, 3)) await b.observe(id, { hello })
  expect(ids.map(b.state)).toEqual(['running', 'running', 'running', 'failed'])
})

test('a create on a full host waits for what is ending, for a short time', async () => {
  // Goal: delete and create again works on a full host; an end that never comes is not waited for.
  let hangs = false
  const powerDown = () => new Promise<void>(resolve => (hangs ? undefined : b.clock.sleep(5_000).then(resolve)))
  const b = engineBench({ capacity: { ...roomy, memoryMib: 2048 }, driver: { powerDown } })
  const first = b.define()
  await b.clock.elapse(0)
  await b.observe(first, { hello })
  await b.dismiss(first)
  const second = b.define()
  await b.clock.elapse(1_000)
  expect([first, second].map(b.state)).toEqual(['stopping', 'waiting'])
  await b.clock.elapse(5_000)
  expect([first, second].map(b.state)).toEqual(['gone', 'booting'])
  await b.observe(second, { hello })
  hangs = true
  await b.dismiss(second)
  const third = b.define()
  await b.clock.elapse(14_000)
  expect([second, third].map(b.state)).toEqual(['stopping', 'waiting'])
  await b.clock.elapse(2_000)
  expect([b.state(third), b.failure(third)]).toEqual(['failed', 'capacity_exhausted'])
})
