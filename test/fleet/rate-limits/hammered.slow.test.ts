// One set of keys hammered on several hosts that share their limits over a real PostgreSQL, through random faults.
//
// Held: in any 60 seconds all hosts together admit at most a key's requests and tokens, and at any moment at most its
// requests at once. Clocks move when told, so that hours pass in seconds.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { connect, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { addHosts } from '../../../scripts/rigs/postgres/hosts.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { type Link, type SharedGateway, SharedGateways } from '../../rigs/fleet/shared-gateways.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('shared limits', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const open = async (names: readonly string[], callers: ConstructorParameters<typeof SharedGateways>[2]) => {
    const postgres = await connect(server, await newFleet(server))
    await addHosts(postgres, ...names)
    const fleet = new SharedGateways(postgres, names, callers)
    const stop = async () => {
      fleet.stop()
      await postgres.close()
    }
    return { postgres, fleet, [Symbol.asyncDispose]: stop }
  }

  const wide = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrencyMax: 65_536 }

  const steps = runsAll ? 1_500 : 750
  for (const seed of runsAll ? [1, 2, 3] : [2]) {
    // Goal: through kills, freezes, lost and late questions and outages no 60 seconds and no moment exceed a limit.
    test(`random loads and faults, seed ${seed}, ${steps} steps`, async () => {
      const draw = createDraw(seed)
      const callers = [
        callerOf({ ...wide, keyPrefix: 'one', requestsPerMinute: 1 }),
        callerOf({ ...wide, keyPrefix: 'few', requestsPerMinute: 7, concurrencyMax: 2 }),
        callerOf({ ...wide, keyPrefix: 'many', requestsPerMinute: 200, tokensPerMinute: 9_000, concurrencyMax: 12 }),
        callerOf({ ...wide, keyPrefix: 'slots', concurrencyMax: 5 }),
      ]
      const names = ['a', 'b', 'c', 'd', 'e'].slice(0, 2 + draw(4))
      await using opened = await open(names, callers)
      const { fleet } = opened
      const stepMs = 500
      const repairs: { atMs: number; run: () => void }[] = []
      for (let step = 0; step < steps; step += 1) {
        const nowMs = fleet.clock.monotonicMs()
        if (draw(30) === 0) faults(fleet, nowMs, draw, repairs)
        for (const due of repairs.filter(({ atMs }) => atMs <= nowMs)) {
          due.run()
          repairs.splice(repairs.indexOf(due), 1)
        }
        for (const host of fleet.hosts) {
          // Each host's load goes up and down by itself; some keys rest on it for minutes.
          const load = Math.floor((nowMs / 40_000) * 7 + host.name.charCodeAt(0)) % 4
          for (const caller of callers) {
            const times = draw(1 + load * (caller.keyPrefix === 'many' ? 4 : 1))
            for (let at = 0; at < times; at += 1) void host.enter(caller, draw(200), draw(3) * draw(4_000))
          }
        }
        await fleet.step(stepMs)
      }
      for (const caller of callers) {
        const [requests, tokens, atOnce] = fleet.mostOf(caller.keyPrefix)
        expect(requests).toBeLessThanOrEqual(caller.requestsPerMinute)
        expect(tokens).toBeLessThanOrEqual(caller.tokensPerMinute)
        expect(atOnce).toBeLessThanOrEqual(caller.concurrencyMax)
      }
      // Nothing was proved if nothing was reached.
      expect(fleet.mostOf('one')[0]).toBe(1)
      expect(fleet.mostOf('few')[0]).toBeGreaterThanOrEqual(5)
      expect(fleet.mostOf('slots')[2]).toBeGreaterThanOrEqual(4)
    }, 120_000)
  }

  type Draw = ReturnType<typeof createDraw>

  function faults(
    fleet: SharedGateways,
    nowMs: number,
    draw: Draw,
    repairs: { atMs: number; run: () => void }[],
  ): void {
    const host = fleet.hosts[draw(fleet.hosts.length)]
    if (host === undefined || host.link !== 'ok' || fleet.isAway) return
    const atMs = nowMs + 1_000 * (1 + draw(40))
    const kind = draw(10)
    if (kind < 2) {
      host.restart()
      return
    }
    if (kind === 2) {
      fleet.isAway = true
      repairs.push({ atMs: nowMs + 1_000 * (5 + draw(400)), run: () => fleet.returns() })
      return
    }
    const links: Link[] = ['away', 'loses-answers', 'late', 'frozen']
    host.link = links[draw(links.length)] ?? 'away'
    host.lateMs = 500 + draw(8_000)
    repairs.push({ atMs: draw(12) === 0 ? nowMs + 500_000 : atMs, run: () => host.thaw() })
  }

  /** Sends as much as it may, for so long; returns how many were admitted after the first minute. */
  async function hammer(fleet: SharedGateways, hosts: readonly SharedGateway[], caller: ReturnType<typeof callerOf>) {
    const beganMs = fleet.clock.monotonicMs()
    for (let step = 0; step < 600; step += 1) {
      for (const host of hosts) for (let at = 0; at < 8; at += 1) void host.enter(caller, 10)
      await fleet.step(500)
    }
    return fleet.taken.filter(({ atMs }) => atMs >= beganMs + 60_000).length
  }

  // Goal: one host alone has at least 90 % of a limit, two together 80 %, in even parts.
  test('the limit is used', async () => {
    const caller = callerOf({ ...wide, keyPrefix: 'k', requestsPerMinute: 120 })
    await using alone = await open(['a'], [caller])
    expect(await hammer(alone.fleet, alone.fleet.hosts, caller)).toBeGreaterThanOrEqual(0.9 * 120 * 4)
    await using two = await open(['a', 'b'], [caller])
    expect(await hammer(two.fleet, two.fleet.hosts, caller)).toBeGreaterThanOrEqual(0.8 * 120 * 4)
    const ofA = two.fleet.taken.filter(({ host }) => host === 'a').length
    expect(ofA / two.fleet.taken.length).toBeWithin(0.4, 0.6)
    expect([alone.fleet.mostOf('k')[0], two.fleet.mostOf('k')[0]].every(most => most <= 120)).toBe(true)
  }, 60_000)

  // Goal: a host that was stopped until others had its part admits nothing of it when it goes on, before it has asked.
  test('a host that stood still', async () => {
    const caller = callerOf({ ...wide, keyPrefix: 'k', requestsPerMinute: 100 })
    await using opened = await open(['a', 'b'], [caller])
    const { fleet } = opened
    const [a, b] = fleet.hosts as [SharedGateway, SharedGateway]
    const first = a.enter(caller, 1)
    await fleet.step(500)
    expect(await first).toBeNull()
    a.link = 'frozen'
    for (let step = 0; step < 400; step += 1) {
      void b.enter(caller, 1)
      await fleet.step(1_000)
    }
    for (let at = 0; at < 100; at += 1) void b.enter(caller, 1)
    await fleet.step(500)
    expect(fleet.mostOf('k')[0]).toBe(95)
    a.thaw()
    for (let at = 0; at < 100; at += 1) void a.enter(caller, 1)
    for (let step = 0; step < 20; step += 1) await fleet.step(500)
    expect(fleet.mostOf('k')[0]).toBeWithin(95, 101)
  }, 60_000)

  // Goal: a second host's first request is admitted while the first does not use the limit up, and it has its even part
  // within two renewals.
  test('a second host comes in', async () => {
    for (const requestsPerMinute of [4, 100]) {
      const caller = callerOf({ ...wide, keyPrefix: 'k', requestsPerMinute })
      await using opened = await open(['a', 'b'], [caller])
      const { fleet } = opened
      const [a, b] = fleet.hosts as [SharedGateway, SharedGateway]
      const first = a.enter(caller, 10)
      await fleet.step(500)
      expect(await first).toBeNull()
      await fleet.step(10_000)
      const second = b.enter(caller, 10)
      for (let at = 0; at < 12; at += 1) await fleet.step(250)
      expect(await second).toBeNull()
      for (let at = 0; at < 5; at += 1) await fleet.step(1_000)
      let admitted = 0
      for (let at = 0; at < requestsPerMinute; at += 1) if ((await b.enter(caller, 10)) === null) admitted += 1
      expect(admitted).toBeGreaterThanOrEqual(Math.floor(0.4 * requestsPerMinute) - 1)
    }
  }, 60_000)

  // Goal: a limit of one goes from host to host: whoever honours Retry-After gets its turn, though the other asks all
  // the time.
  test('a limit of one', async () => {
    const caller = callerOf({ ...wide, keyPrefix: 'k', requestsPerMinute: 1 })
    await using opened = await open(['a', 'b'], [caller])
    const { fleet } = opened
    const [a, b] = fleet.hosts as [SharedGateway, SharedGateway]
    let [politeAtMs, waits] = [0, 0]
    for (let step = 0; step < 1_200; step += 1) {
      void a.enter(caller, 1)
      const nowMs = fleet.clock.monotonicMs()
      if (step > 20 && nowMs >= politeAtMs) {
        politeAtMs = Number.POSITIVE_INFINITY
        void b.enter(caller, 1).then(retryAfterS => {
          politeAtMs = fleet.clock.monotonicMs() + (retryAfterS ?? 1) * 1_000
          waits += 1
        })
      }
      await fleet.step(500)
    }
    const by = (name: string) => fleet.taken.filter(({ host }) => host === name).length
    expect(fleet.mostOf('k')[0]).toBe(1)
    expect(by('a') + by('b')).toBeGreaterThanOrEqual(7)
    expect(Math.min(by('a'), by('b'))).toBeGreaterThanOrEqual(3)
    // It asked about as often as it had to.
    expect(waits).toBeLessThanOrEqual(30)
  }, 60_000)

  // Goal: a host with nothing in use asks nothing, and one under load asks about once in two seconds.
  test('what it costs the database', async () => {
    const callers = Array.from({ length: 20 }, (_, at) => callerOf({ ...wide, keyPrefix: `k${at}` }))
    await using opened = await open(['a', 'b'], callers)
    const { fleet } = opened
    await fleet.step(60_000)
    expect(fleet.statements).toBe(0)
    const [a] = fleet.hosts as [SharedGateway]
    for (let step = 0; step < 120; step += 1) {
      for (const caller of callers) void a.enter(caller, 10)
      await fleet.step(500)
    }
    expect(fleet.statements).toBeWithin(28, 36)
  })
})
