// Goal: a firewall that cuts instances off is reported once, with the remedy, and once more when it ends.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Firewalls } from '../../../src/vm/foreign-firewalls/foreign.driver.ts'
import { firewallSite } from '../../../src/vm/foreign-firewalls/site.plan.ts'
import type { Chain } from '../../../src/vm/foreign-firewalls/trace.plan.ts'
import { FirewallWatch } from '../../../src/vm/foreign-firewalls/watch.ts'

const chain = (policy: 'accept' | 'drop', table = 'filter', family = 'ip'): Chain => ({
  family,
  table,
  name: 'FORWARD',
  rules: [],
  base: { hook: 'forward', policy },
})

function bench(first: readonly Chain[]) {
  const clock = createManualClock()
  let firewalls: Firewalls = { chains: first, unread: [] }
  let lookCount = 0
  const told: string[] = []
  const watch = new FirewallWatch({
    look: async () => {
      lookCount += 1
      return firewalls
    },
    site: () => firewallSite(defaultConfig(), 'eth0'),
    own: new Set(['strongroom']),
    clock,
    log: createLogger({ level: 'info', sink: line => void told.push(JSON.parse(line).level), nowMs: clock.nowMs }),
    onEvent: kind => told.push(kind),
  })
  const become = (next: Partial<Firewalls>) => {
    firewalls = { ...firewalls, ...next }
  }
  return { watch, clock, told, become, looks: () => lookCount }
}

test('goal: a chain that drops, one that does no more: each change is told once', async () => {
  const { watch, clock, told, become } = bench([chain('drop')])
  const stopping = new AbortController()
  const run = watch.run(stopping.signal)
  await clock.sleepers(1)
  expect(watch.problems()).toEqual([
    {
      name: 'firewall',
      detail: expect.stringContaining('ip filter FORWARD drops SSH to instances, '),
      remedy: expect.stringContaining('iptables --table filter --insert FORWARD --in-interface sr+ --jump ACCEPT'),
    },
  ])
  expect(told).toEqual(['error', 'host.cut_off'])
  const look = async () => {
    clock.advance(30_000)
    await clock.sleepers(1)
  }
  for (let time = 0; time < 3; time += 1) await look()
  expect(told).toEqual(['error', 'host.cut_off'])
  become({ chains: [chain('accept')] })
  await look()
  expect([watch.problems(), told]).toEqual([[], ['error', 'host.cut_off', 'info', 'host.reachable']])
  stopping.abort()
  await run
})

test('goal: who asks gets what is so now; many who ask at once share one look', async () => {
  const { watch, clock, become, looks } = bench([chain('accept')])
  expect(await Promise.all(Array.from({ length: 50 }, () => watch.cutOff()))).toEqual(Array(50).fill(null))
  expect(looks()).toBe(1)
  become({ chains: [chain('drop')] })
  clock.advance(1_000)
  expect(await watch.cutOff()).toContain('ip filter FORWARD drops')
  expect(looks()).toBe(2)
})

test('goal: our own table and what only may drop cut nobody off; what cannot be read is told once', async () => {
  const unsure: Chain = { ...chain('drop'), rules: [{ matches: ['unknown'], verdict: { kind: 'accept' } }] }
  const { watch, clock, told, become } = bench([chain('drop', 'strongroom', 'inet'), unsure])
  expect(await watch.cutOff()).toBeNull()
  become({ unread: ['nft: not done within 10000 ms'] })
  for (let time = 0; time < 3; time += 1) {
    clock.advance(1_000)
    expect(await watch.cutOff()).toBeNull()
  }
  expect(told).toEqual(['warn'])
})
