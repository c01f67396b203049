// Goal: a VM is lost after four silences of its monitor, six of its guest, or two of its interface, in a row.

import { expect, test } from 'bun:test'
import {
  agentTimeoutMs,
  count,
  guestMissesMax,
  lossOf,
  type Misses,
  noMisses,
  pulseEveryMs,
  type Round,
  sshEveryMs,
  sshTimeoutMs,
} from '../../../src/vm/machine/liveness.plan.ts'

const good: Round = { monitor: true, agent: true, ssh: true, network: true }
/** The verdict after this many rounds of one kind. */
const lossAfter = (rounds: number, round: Partial<Round>) =>
  lossOf(Array.from({ length: rounds }).reduce<Misses>(misses => count(misses, { ...good, ...round }), noMisses))

test('goal: each part has its number of silences, and one fewer is no loss', () => {
  const dead = { monitor: false, agent: false, ssh: false }
  for (const [round, mostGood, loss] of [
    [{ monitor: false }, 3, 'unanswered'],
    [{ agent: false, ssh: false }, 5, 'unanswered'],
    [{ agent: false, ssh: null }, 5, 'unanswered'],
    [{ network: false }, 1, 'network_lost'],
    // Its interface goes first: it explains the others' silence.
    [{ ...dead, network: false }, 1, 'network_lost'],
    [dead, 3, 'unanswered'],
  ] as const)
    expect([round, lossAfter(mostGood, round), lossAfter(mostGood + 1, round)]).toEqual([round, null, loss])
  for (const round of [good, { agent: false }, { ssh: false }, { ssh: null }])
    expect([round, lossAfter(1_000, round)]).toEqual([round, null])
})

test('goal: misses are counted one by one, an answer ends the count, and what was not asked does not change it', () => {
  expect(noMisses).toEqual({ monitor: 0, agent: 0, ssh: 0, guest: 0, network: 0 })
  const silent: Round = { monitor: false, agent: false, ssh: false, network: false }
  const twice = count(count(noMisses, silent), silent)
  expect(twice).toEqual({ monitor: 2, agent: 2, ssh: 2, guest: 2, network: 2 })
  for (const [answer, expected] of [
    [{ monitor: true }, { monitor: 0, agent: 3, ssh: 3, guest: 3, network: 3 }],
    [{ agent: true }, { monitor: 3, agent: 0, ssh: 3, guest: 0, network: 3 }],
    [{ ssh: true }, { monitor: 3, agent: 3, ssh: 0, guest: 0, network: 3 }],
    [{ ssh: null }, { monitor: 3, agent: 3, ssh: 2, guest: 3, network: 3 }],
    [{ network: true }, { monitor: 3, agent: 3, ssh: 3, guest: 3, network: 0 }],
  ] as const)
    expect([answer, count(twice, { ...silent, ...answer })]).toEqual([answer, expected])
})

test('goal: a loaded guest has three minutes for an answer, and SSH is tried once a minute', () => {
  // Each miss is a question that had its full time.
  expect(guestMissesMax * agentTimeoutMs).toBe(180_000)
  expect([sshEveryMs, pulseEveryMs]).toEqual([60_000, 15_000])
  // Both are asked at once: SSH makes no round longer.
  expect(sshTimeoutMs).toBe(20_000)
  expect(sshTimeoutMs).toBeLessThan(agentTimeoutMs)
})
