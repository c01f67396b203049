// Whether a running VM still lives: the engine's probes, their interval, and its verdict on silence. Real SQLite,
// manual clock.

import { expect, test } from 'bun:test'
import { Fault } from '../../../src/base/fault.ts'
import type { Hello } from '../../../src/contract/vm/agent-responses.ts'
import { vmById } from '../../../src/store/ledger/vm.query.ts'
import { count, lossOf, noMisses } from '../../../src/vm/machine/liveness.plan.ts'
import { engineBench, hello } from '../../rigs/launch/vm-engine.ts'

const claimed: Hello = { ...hello, claimId: 'instance' }
const minuteMs = 60_000

/** An engine with one VM that runs, claimed, and sweeps as it does in the daemon. */
async function running() {
  const b = engineBench()
  /** Silent for as long as the one who asks has patience. */
  const silence = (ms: number) => async () => {
    await b.clock.sleep(ms)
    throw new Fault('qmp.timeout', 'nothing')
  }
  b.world.agent = async () => claimed
  b.engine.start()
  const id = b.define()
  await b.clock.elapse(0)
  await b.observe(id, { hello: claimed })
  await b.clock.elapse(minuteMs)
  expect(b.state(id)).toBe('running')
  return { ...b, id, silence, end: () => [b.state(id), b.failure(id)] }
}

test('a stopped QEMU is noticed in less than two minutes, and has failed when it was last well', async () => {
  // Goal: SIGSTOP for three minutes is a failure, and no hour of it is billed (issue 9: still `ready`).
  const b = await running()
  const stoppedMs = b.clock.nowMs()
  b.world.monitor = b.silence(5_000)
  // As long as they are given.
  b.world.agent = timeoutMs => b.silence(timeoutMs)()
  b.world.ssh = ({ timeoutMs }) => b.silence(timeoutMs)()
  await b.clock.elapse(40_000)
  expect(b.end()).toEqual(['running', null])
  await b.clock.elapse(60_000)
  expect(b.end()).toEqual(['failed', 'agent_unreachable'])
  const failedAtMs = vmById(b.store.ledger.db, b.id)?.changedAtMs ?? 0
  expect(failedAtMs).toBeLessThanOrEqual(stoppedMs)
  expect(failedAtMs).toBeGreaterThan(stoppedMs - 20_000)
  expect(b.engine.view(b.id)?.failedAtMs).toBe(failedAtMs)
  await b.engine.stop()
})

test('a guest under load that is silent for two minutes lives on', async () => {
  // Goal: nobody is killed in haste; one word starts the count anew.
  const b = await running()
  for (let i = 0; i < 5; i += 1) {
    b.world.agent = b.silence(30_000)
    b.world.ssh = b.silence(20_000)
    await b.clock.elapse(2 * minuteMs)
    expect(b.end()).toEqual(['running', null])
    b.world.agent = async () => claimed
    await b.clock.elapse(minuteMs)
  }
  expect(b.end()).toEqual(['running', null])
  await b.engine.stop()
})

test('a guest without agent and SSH is failed after three minutes; with either of them it is not', async () => {
  // Goal: the agent's death alone ends nobody's work, nor does a flood of port 22 from outside.
  for (const [agent, ssh, end] of [
    [false, false, ['failed', 'agent_unreachable']],
    [true, false, ['running', null]],
    [false, true, ['running', null]],
  ] as const) {
    const b = await running()
    if (!agent) b.world.agent = b.silence(30_000)
    if (!ssh) b.world.ssh = b.silence(20_000)
    await b.clock.elapse(2 * minuteMs)
    expect(b.end()).toEqual(['running', null])
    await b.clock.elapse(3 * minuteMs)
    expect(b.end()).toEqual([...end])
    await b.engine.stop()
  }
})

test('a lost interface fails the VM with its own code, but not one that could not be looked at', async () => {
  // Goal: the tap deleted is no `ready` (issue 9: 75 s and more); a failing command of ours is no verdict.
  const b = await running()
  b.world.network = async () => {
    throw new Fault('host.command_failed', 'ip: no memory')
  }
  await b.clock.elapse(10 * minuteMs)
  expect(b.end()).toEqual(['running', null])
  b.world.network = async () => false
  await b.clock.elapse(40_000)
  expect(b.end()).toEqual(['failed', 'network_lost'])
  await b.engine.stop()
})

test('after a restart of the daemon a QEMU that cannot be attached to is failed too', async () => {
  // Goal: a stopped QEMU does not stay `running` for ever because nobody could ever ask it.
  const b = await running()
  await b.engine.stop()
  b.world.attach = b.silence(15_000)
  const restarted = b.create()
  restarted.start()
  await b.clock.elapse(minuteMs / 2)
  expect(b.end()).toEqual(['running', null])
  await b.clock.elapse(2 * minuteMs)
  expect(b.end()).toEqual(['failed', 'agent_unreachable'])
  await restarted.stop()
})

test('a daemon that stood still for an hour counts that as nothing', async () => {
  // Goal: silence is counted in questions, not in time: a suspended host kills no VM.
  const b = await running()
  b.clock.advance(60 * minuteMs)
  await b.clock.elapse(minuteMs)
  expect(b.end()).toEqual(['running', null])
  await b.engine.stop()
})

test('what is asked is bounded: a round in 15 s, SSH once a minute, one question of each at a time', async () => {
  // Goal: watching costs little, however many look.
  const b = await running()
  const asked = { monitor: 0, agent: 0, ssh: 0, network: 0 }
  const counted =
    <T>(who: keyof typeof asked, answer: T) =>
    async () => {
      asked[who] += 1
      return answer
    }
  b.world.monitor = counted('monitor', {})
  b.world.agent = counted('agent', claimed)
  b.world.ssh = counted('ssh', undefined)
  b.world.network = counted('network', true)
  for (let second = 0; second < 600; second += 1) {
    b.engine.wake(b.id)
    await b.clock.elapse(1_000)
  }
  expect(asked).toEqual({ monitor: 40, agent: 40, ssh: 10, network: 40 })
  await b.engine.stop()
})

test('an orderly shutdown of the host is on record as host_restarted, whatever it looked like', async () => {
  // Goal: scopes end while the daemon still runs (issue 9: agent_unreachable).
  const b = await running()
  b.world.isHostStopping = true
  b.alive.delete(b.id)
  await b.observe(b.id, { hello: claimed, stopped: true, closed: true })
  await b.clock.elapse(minuteMs)
  expect(b.end()).toEqual(['running', null])
  await b.engine.stop()
  b.world.isHostStopping = false
  const next = b.create(true)
  next.start()
  await b.clock.elapse(0)
  expect(b.end()).toEqual(['failed', 'host_restarted'])
  await next.stop()
})

test('one good answer clears a count, and no single round is a loss', () => {
  // Goal: over every round that there can be.
  const each = [true, false]
  for (const monitor of each)
    for (const agent of each)
      for (const ssh of [...each, null])
        for (const network of each) {
          const round = { monitor, agent, ssh, network }
          const once = count(noMisses, round)
          expect(lossOf(once)).toBeNull()
          const cleared = count(once, { monitor: true, agent: true, ssh: true, network: true })
          expect(cleared).toEqual(noMisses)
        }
})

test('an agent that restarted is asked anew who it is, once', async () => {
  // Goal: its old keys are not handed to services any longer; the same keys are no news.
  const b = await running()
  expect(b.forgotten).toEqual([])
  b.world.agent = async () => ({ ...claimed, boxKey: 'another' })
  await b.clock.elapse(2 * minuteMs)
  expect(b.forgotten).toEqual([b.id])
  await b.engine.stop()
})
