// Goal: a firewall that cuts instances off is reported once, with the remedy, and once more when it ends.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { ProbeLook } from '../../../src/vm/firewall-probe/probe.driver.ts'
import { type NeedKind, neededPackets } from '../../../src/vm/firewall-probe/probe.plan.ts'
import { FirewallWatch } from '../../../src/vm/firewall-probe/watch.ts'

const config = defaultConfig()
const dropping = (...kinds: NeedKind[]): ProbeLook => ({
  dropped: neededPackets(config).filter(({ kind }) => kinds.includes(kind)),
  unknown: null,
})
const cut =
  'a firewall of this host drops SSH to instances, what instances send and instances to port 8446 of this host'

function bench(first: ProbeLook) {
  const clock = createManualClock()
  let now = first
  let lookCount = 0
  const told: string[] = []
  const watch = new FirewallWatch({
    config,
    look: async () => {
      lookCount += 1
      return now
    },
    clock,
    log: createLogger({ level: 'info', sink: line => void told.push(JSON.parse(line).level), nowMs: clock.nowMs }),
    onEvent: kind => told.push(kind),
  })
  const become = (next: ProbeLook) => {
    now = next
  }
  return { watch, clock, told, become, looks: () => lookCount }
}

test('goal: packets that are dropped, and are no more: each change is told once', async () => {
  const { watch, clock, told, become } = bench(dropping('instances', 'services', 'others'))
  const stopping = new AbortController()
  const run = watch.run(stopping.signal)
  await clock.sleepers(1)
  expect(watch.problems()).toEqual([
    { name: 'firewall', detail: cut, remedy: expect.stringContaining('"iifname sr* accept", "oifname sr* accept"') },
  ])
  expect(watch.droppedCount()).toBe(3)
  expect(told).toEqual(['error', 'host.cut_off'])
  const look = async () => {
    clock.advance(30_000)
    await clock.sleepers(1)
  }
  for (let time = 0; time < 3; time += 1) await look()
  expect(told).toEqual(['error', 'host.cut_off'])
  become(dropping('services', 'others'))
  await look()
  expect([watch.problems(), told]).toEqual([[], ['error', 'host.cut_off', 'info', 'host.reachable']])
  stopping.abort()
  await run
})

test('goal: whoever asks gets an answer of the last five seconds; many who ask at once share one look', async () => {
  const { watch, clock, become, looks } = bench(dropping())
  expect(await Promise.all(Array.from({ length: 50 }, () => watch.cutOff()))).toEqual(Array(50).fill(null))
  become(dropping('instances'))
  clock.advance(4_999)
  expect([await watch.cutOff(), looks()]).toEqual([null, 1])
  clock.advance(1)
  expect([await watch.cutOff(), looks()]).toEqual([cut, 2])
})

test('goal: what is not known cuts nobody off, and is told once', async () => {
  const { watch, clock, told, become } = bench(dropping())
  become({ dropped: [], unknown: 'tc: exit code 2' })
  for (let time = 0; time < 3; time += 1) {
    clock.advance(5_000)
    expect(await watch.cutOff()).toBeNull()
  }
  expect(told).toEqual(['warn'])
})

test('goal: chains that are read at times alone change no report, and the last known are named', async () => {
  const { watch, clock, told, become } = bench(dropping('instances'))
  const chains = [{ hook: 'forward', family: 'inet', table: 'fw', chain: 'f', tool: 'nftables' }] as const
  for (let time = 0; time < 6; time += 1) {
    become({ ...dropping('instances'), ...(time % 2 === 0 ? {} : { chains }) })
    expect(await watch.cutOff()).toStartWith(cut)
    clock.advance(5_000)
  }
  expect(told).toEqual(['error', 'host.cut_off'])
  become(dropping('instances'))
  expect(await watch.cutOff()).toEndWith('(nftables, chain f of table inet fw)')
})
