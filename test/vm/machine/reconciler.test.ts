// The engine's decisions with a driver that does what each test says: real SQLite, manual clock, no QEMU.

import { expect, test } from 'bun:test'
import { Fault } from '../../../src/base/fault.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { listResources } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, listVms, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import { LaunchMismatch } from '../../../src/vm/launch/launcher.driver.ts'
import { engineBench as bench, bootTimeoutMs, hello, roomy, spec } from '../../rigs/launch/vm-engine.ts'

test('a VM goes from waiting to running, gets its address from the pool, and gives it back', async () => {
  // Goal: the plain path, and that a gone VM holds nothing.
  const { clock, define, observe, dismiss, state, networks, engine, store, alive } = bench()
  const id = define()
  expect(state(id)).toBe('waiting')
  await clock.elapse(0)
  expect(state(id)).toBe('booting')
  expect(engine.view(id)?.guest).toBeNull()
  await observe(id, { hello })
  expect(state(id)).toBe('running')
  expect(networks).toEqual([
    { address: '10.88.0.1', gateway: '169.254.88.1', mtuBytes: 1500, resolvers: ['192.0.2.53'] },
  ])
  expect(engine.view(id)).toMatchObject({ guest: hello, platform: 'tcg' })
  await dismiss(id)
  expect(state(id)).toBe('gone')
  expect(engine.view(id)?.address).toBeNull()
  expect(listResources(store.ledger.db, 'address')).toEqual([])
  expect(alive.size).toBe(0)
})

test('every move is by the table and on record, admission too', async () => {
  // Goal: the journal tells the whole life of a VM, each state with the event that led to it.
  const { clock, define, observe, dismiss, store } = bench()
  const id = define()
  await clock.elapse(0)
  await observe(id, { hello })
  await dismiss(id)
  const journal = listEvents(store.ledger.db, { subject: id, limit: 10 }).reverse()
  expect(journal.map(({ kind, detail }) => `${detail.from} ${detail.event} ${kind}`)).toEqual([
    'waiting admitted vm.launching',
    'launching spawned vm.booting',
    'booting greeted vm.running',
    'running dismissed vm.stopping',
    'stopping released vm.gone',
  ])
})

test('a VM is defined once per id, and a VM that is not there can be dismissed', async () => {
  // Goal: whoever repeats a definition after a crash makes no second VM and changes nothing of the first.
  const { clock, define, dismiss, state, engine, store } = bench()
  const id = define()
  await clock.elapse(0)
  engine.define(id, { ...spec, vcpus: 9 })
  await clock.elapse(0)
  expect(state(id)).toBe('booting')
  expect(listVms(store.ledger.db, store.hostId)).toMatchObject([{ id, vcpus: spec.vcpus }])
  await dismiss('none')
  expect(engine.view('none')).toBeNull()
  expect(listVms(store.ledger.db, store.hostId)).toHaveLength(1)
})

test('no more VMs boot at a time than configured, and the next has its turn when one is up', async () => {
  // Goal: waiting for a turn is no failure; turns are handed on by running, failing and going alike.
  const { clock, define, observe, dismiss, state } = bench({ capacity: { ...roomy, bootingMax: 1 } })
  const [first, second, third] = [define(), define(), define()]
  await clock.elapse(10_000)
  expect([first, second, third].map(state)).toEqual(['booting', 'waiting', 'waiting'])
  await observe(first, { hello })
  expect([first, second, third].map(state)).toEqual(['running', 'booting', 'waiting'])
  await dismiss(second)
  expect([first, second, third].map(state)).toEqual(['running', 'gone', 'booting'])
})

test('without room a VM fails at once, or after its wait, or gets room that comes free', async () => {
  // Goal: capacity_exhausted exactly when the configured wait is over.
  const capacity = { ...roomy, memoryMib: 2048 }
  const strict = bench({ capacity })
  strict.define()
  const refused = strict.define()
  await strict.clock.elapse(0)
  expect([strict.state(refused), strict.failure(refused)]).toEqual(['failed', 'capacity_exhausted'])

  const patient = bench({ capacity, capacityWaitMs: 60_000 })
  const [holder, served] = [patient.define(), patient.define()]
  await patient.clock.elapse(20_000)
  await patient.observe(holder, { hello })
  expect(patient.state(served)).toBe('waiting')
  await patient.dismiss(holder)
  expect(patient.state(served)).toBe('booting')
  await patient.observe(served, { hello })
  const late = patient.define()
  await patient.clock.elapse(59_000)
  expect(patient.state(late)).toBe('waiting')
  await patient.clock.elapse(2_000)
  expect([patient.state(late), patient.failure(late)]).toEqual(['failed', 'capacity_exhausted'])
})

test('each way of failing has its code, releases everything but the directory, and keeps nothing reserved', async () => {
  // Goal: deadline, death, power-off and a refused start end alike, and a delete then finishes them.
  const cases = [
    { end: async (b: ReturnType<typeof bench>) => b.clock.elapse(bootTimeoutMs), code: 'boot_timeout' },
    {
      end: async (b: ReturnType<typeof bench>, id: string) => {
        b.alive.delete(id)
        await b.observe(id, { closed: true })
      },
      code: 'boot_failed',
    },
    { end: async (b: ReturnType<typeof bench>, id: string) => b.observe(id, { stopped: true }), code: 'boot_failed' },
    {
      end: async (b: ReturnType<typeof bench>, id: string) => {
        await b.observe(id, { hello })
        await b.observe(id, { hello, stopped: true })
      },
      code: 'agent_unreachable',
    },
  ]
  for (const { end, code } of cases) {
    const b = bench()
    const id = b.define()
    await b.clock.elapse(0)
    await end(b, id)
    expect([b.state(id), b.failure(id)]).toEqual(['failed', code])
    expect(b.releases).toContain(`${id} true`)
    expect(b.alive.size).toBe(0)
    await b.dismiss(id)
    expect(b.state(id)).toBe('gone')
    expect(b.releases.at(-1)).toBe(`${id} false`)
  }
})

test('a launch that is not what was expected fails the VM with the part in question', async () => {
  // Goal: the owner and the operator read which part it was, also after a restart of the daemon.
  const b = bench({
    driver: { build: vm => Promise.reject(new LaunchMismatch(vm.id, ['kernel', 'command line'])) },
  })
  const id = b.define()
  await b.clock.elapse(0)
  const message = 'The virtual machine was not launched from what this host expects: kernel, command line.'
  for (const engine of [b.engine, b.create()]) {
    expect(engine.view(id)).toMatchObject({ state: 'failed', failureCode: 'launch_mismatch', failureMessage: message })
  }
  expect(b.releases).toContain(`${id} true`)
})

test('evidence of a VM that is not there, not attached or not on record says so', async () => {
  // Goal: whoever asks for evidence gets a failure with a code, never a wait for nobody.
  const { engine, define, observe, clock } = bench()
  const nonce = new Uint8Array(32)
  const codeOf = (id: string) => engine.evidence(id, nonce, 1_000).catch(error => Reflect.get(Object(error), 'code'))
  expect(await codeOf('none')).toBe('attest.unavailable')
  const id = define()
  await clock.elapse(0)
  await observe(id, { hello })
  expect(await codeOf(id)).toBe('attest.unavailable')
  await expect(engine.handReceipt('none', {} as never, 1_000)).rejects.toMatchObject({ code: 'channel.closed' })
})

test('after a reboot of the host, VMs that had booted are failed with host_restarted and new ones are not', async () => {
  // Goal: the reboot is named as the cause for exactly those that it took.
  const { store, clock, engine, define, state, failure } = bench({ hostRestarted: true })
  const lost = newUuid()
  insertVm(store.ledger.db, { id: lost, hostId: store.hostId, ...spec, nowMs: 0 })
  moveVm(store.ledger.db, { id: lost, from: 'waiting', to: 'launching', nowMs: 0 })
  moveVm(store.ledger.db, { id: lost, from: 'launching', to: 'booting', nowMs: 0 })
  moveVm(store.ledger.db, { id: lost, from: 'booting', to: 'running', nowMs: 0 })
  const lastSeenMs = clock.nowMs() - 2 * 24 * 60 * 60 * 1000
  recordEgress(store.ledger.db, [
    {
      vmId: lost,
      usedBytes: 1,
      rescueBytes: 0,
      observedAtMs: lastSeenMs,
      blockedAtMs: null,
    },
  ])
  engine.start()
  await clock.elapse(0)
  expect([state(lost), failure(lost)]).toEqual(['failed', 'host_restarted'])
  // A host that was down for two days is not billed for them.
  expect(engine.view(lost)?.failedAtMs).toBe(lastSeenMs)
  const fresh = define()
  await clock.elapse(bootTimeoutMs + 1_000)
  expect(failure(fresh)).toBe('boot_timeout')
  await engine.stop()
})

test('a release that fails is tried again until it succeeds, and only then is the VM gone', async () => {
  // Goal: nothing is struck off as gone that may still be there.
  let broken = true
  const b = bench({
    driver: {
      release: async () => {
        if (broken) throw new Fault('host.command_failed', 'ip: no')
      },
    },
  })
  const id = b.define()
  await b.clock.elapse(0)
  await b.dismiss(id)
  await b.clock.elapse(30_000)
  expect(b.state(id)).toBe('stopping')
  broken = false
  await b.clock.elapse(11_000)
  expect(b.state(id)).toBe('gone')
})

test('a VM is opened once it runs and that is wanted; what could not be applied is tried again', async () => {
  // Goal: `opened` reports the firewall's state, not the request; a restarted daemon applies it again unasked.
  const { engine, create, define, observe, clock, world, store } = bench()
  let runs = 0
  world.open = async () => {
    runs += 1
    if (runs === 1) throw new Fault('host.command_failed', 'nft is away')
  }
  const told: string[] = []
  engine.onChange(vmId => told.push(vmId))
  const id = define()
  await clock.elapse(0)
  await observe(id, { hello })
  expect([engine.view(id)?.state, engine.view(id)?.opened, runs]).toEqual(['running', false, 0])
  engine.open(id)
  expect(engine.view(id)?.opened).toBe(false)
  await clock.elapse(0)
  expect([engine.view(id)?.opened, runs]).toEqual([false, 1])
  const toldBefore = told.length
  await clock.elapse(1_000)
  expect([engine.view(id)?.opened, runs, told.length]).toEqual([true, 2, toldBefore + 1])
  const openedAtMs = vmById(store.ledger.db, id)?.openedAtMs
  engine.open(id)
  engine.open('no such VM')
  await clock.elapse(10_000)
  expect([vmById(store.ledger.db, id)?.openedAtMs, runs]).toEqual([openedAtMs, 2])

  const next = create()
  expect(next.view(id)?.opened).toBe(false)
  next.start()
  await clock.elapse(0)
  expect([next.view(id)?.opened, runs]).toEqual([true, 3])
  await next.stop()
})

test('a VM is closed for good: by whom it was opened, by a daemon that came later, and never opened again', async () => {
  // Goal: after its fetch a build has no network, whatever is killed in between; a VM that was never opened is left
  // alone.
  const { engine, create, define, observe, clock, world } = bench()
  let runs = 0
  let broken = false
  world.open = async () => {
    runs += 1
    if (broken) throw new Fault('host.command_failed', 'nft is away')
  }
  const id = define()
  await clock.elapse(0)
  await observe(id, { hello })
  engine.close(id)
  await clock.elapse(0)
  expect([engine.view(id)?.opened, runs]).toEqual([false, 0])
  engine.open(id)
  await clock.elapse(0)
  expect([engine.view(id)?.opened, runs]).toEqual([true, 1])
  broken = true
  engine.close(id)
  // From the word on: what the firewall still does is no reason to call it open.
  expect(engine.view(id)?.opened).toBe(false)
  await clock.elapse(0)
  expect(runs).toBe(2)
  // Killed before it could be applied: the next daemon applies it without being asked.
  await engine.stop()
  broken = false
  const next = create()
  next.start()
  await clock.elapse(0)
  expect([next.view(id)?.opened, runs]).toEqual([false, 3])
  next.open(id)
  await clock.elapse(20_000)
  expect([next.view(id)?.opened, runs]).toEqual([false, 3])
  await next.stop()
})
