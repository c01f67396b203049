// Places at upstreams, as organizations and their keys share them.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { MODEL } from '../../../scripts/rigs/gateway/server.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { type Lease, Router } from '../../../src/inference/upstream/router.ts'

type Target = { name: string; models: string[]; weight: number; concurrencyMax: number }
const target = (name: string, more: Partial<Target> = {}): Target => ({
  name,
  models: [MODEL],
  weight: 1,
  concurrencyMax: 2,
  ...more,
})

function setUp(
  targets: Target[],
  { queueMax, queueTimeoutMs = 3_600_000 }: { queueMax: number; queueTimeoutMs?: number },
) {
  const clock = createManualClock()
  const probe = async () => true
  const router = new Router<Target>({
    targets,
    probe,
    clock,
    log: silentLogger,
    ejectFailures: 3,
    ejectMs: 500,
    queueMax,
    queueTimeoutMs,
  })
  const signal = new AbortController().signal
  const acquire = async (organizationId: string, keyPrefix: string, model: string) =>
    router.acquire(model, { except: new Set(), signal, owner: { organizationId, keyPrefix } })
  return { clock, router, acquire }
}

describe('organizations', () => {
  type Acquire = ReturnType<typeof setUp>['acquire']
  const by =
    (acquire: Acquire, organization: string, key = 'k1', model = MODEL) =>
    (): Promise<Lease<Target>> =>
      acquire(organization, key, model)
  /** Serves what waits, one after the other, each for so long; names in the order in which they were served. */
  const drain = async (
    waiting: readonly { name: string; lease: Promise<Lease<Target>>; ms: number }[],
    { advance }: { advance: (ms: number) => void },
  ) => {
    const order: string[] = []
    await Promise.all(
      waiting.map(async ({ name, lease, ms }) => {
        const held = await lease
        order.push(name)
        advance(ms)
        held.release('healthy')
      }),
    )
    return order
  }

  // Goal: an organization that fills all places and the queue blocks no other: the next place, also in the queue, is
  // the other's.
  test('the one that has fewest goes first, and a full queue drops the newest of the one that has most', async () => {
    const { acquire, router } = setUp([target('a', { concurrencyMax: 2 })], { queueMax: 4 })
    const [hog, other] = [by(acquire, 'hog'), by(acquire, 'other')]
    const held = [await hog(), await hog()]
    const order: string[] = []
    const waiting = Array.from({ length: 4 }, (_, at) => hog().then(() => order.push(`hog ${at}`)))
    const dropped = failure(waiting[3] ?? Promise.resolve())
    const first = other().then(() => order.push('other'))
    expect(await dropped).toMatchObject({ code: 'rate_limited' })
    expect(await failure(hog())).toMatchObject({ code: 'rate_limited' })
    expect(router.view().waiting).toBe(4)
    held[0]?.release('healthy')
    await first
    expect(order).toEqual(['other'])
    held[1]?.release('healthy')
    await waiting[0]
    expect(order).toEqual(['other', 'hog 0'])
  })

  // Goal: while another asks, an eighth of the places stays free for it, immediately; a single one has all, again after
  // ten minutes.
  test('leave each other places', async () => {
    const { acquire, clock } = setUp([target('a', { concurrencyMax: 16 })], {
      queueMax: 100,
    })
    const [hog, other] = [by(acquire, 'hog'), by(acquire, 'other')]
    const alone = await Promise.all(Array.from({ length: 16 }, hog))
    const late = other()
    alone[0]?.release('healthy')
    const lease = await late
    lease.release('healthy')
    for (const held of alone) held.release('healthy')
    const leased: Lease<Target>[] = []
    for (let at = 0; at < 16; at += 1) void hog().then(lease => leased.push(lease))
    await Bun.sleep(0)
    expect(leased).toHaveLength(14)
    expect((await other()).target.name).toBe('a')
    clock.advance(600_001)
    const last = await hog()
    expect(last.target.name).toBe('a')
  })

  // Goal: where a single place is shared, turns go round, however many requests of one wait; keys of one organization
  // share its turns alone, so that a thousand keys get no more than one.
  test('take turns at a single place', async () => {
    const { acquire, clock } = setUp([target('a', { concurrencyMax: 1 })], {
      queueMax: 5_000,
    })
    const first = await by(acquire, 'hog')()
    const hogs = Array.from({ length: 1_000 }, (_, at) => ({
      name: 'hog',
      lease: by(acquire, 'hog', `k${at}`)(),
      ms: 10,
    }))
    const others = Array.from({ length: 20 }, () => ({ name: 'other', lease: by(acquire, 'other')(), ms: 10 }))
    clock.advance(10)
    first.release('healthy')
    const order = await drain([...hogs, ...others], clock)
    expect(order.slice(0, 40).filter(name => name === 'other')).toHaveLength(20)
    expect(order).toHaveLength(1_020)
  })

  // Goal: turns are of time, not of requests: whoever has long ones gets fewer of them.
  test('share the time of a place', async () => {
    const { acquire, clock } = setUp([target('a', { concurrencyMax: 1 })], { queueMax: 500 })
    const first = await by(acquire, 'third')()
    const long = Array.from({ length: 10 }, () => ({ name: 'long', lease: by(acquire, 'long')(), ms: 1_000 }))
    const short = Array.from({ length: 100 }, () => ({ name: 'short', lease: by(acquire, 'short')(), ms: 100 }))
    first.release('healthy')
    const order = await drain([...long, ...short], clock)
    const beforeFifth = order.slice(0, order.indexOf('long', order.indexOf('long', order.indexOf('long') + 1) + 1))
    expect(beforeFifth.filter(name => name === 'short').length).toBeGreaterThanOrEqual(15)
    expect(order.slice(0, 60).filter(name => name === 'long').length).toBeLessThanOrEqual(6)
  })

  // Goal: whoever had the place for an hour while nobody wanted it is not made to wait for an hour by a newcomer.
  test('have neither credit nor debt of when they were alone', async () => {
    const { acquire, clock } = setUp([target('a', { concurrencyMax: 1 })], {
      queueMax: 500,
      queueTimeoutMs: 36_000_000,
    })
    for (let at = 0; at < 36; at += 1) {
      const lease = await by(acquire, 'old')()
      clock.advance(100_000)
      lease.release('healthy')
    }
    const last = await by(acquire, 'old')()
    const old = Array.from({ length: 5 }, () => ({ name: 'old', lease: by(acquire, 'old')(), ms: 1_000 }))
    const fresh = Array.from({ length: 200 }, () => ({ name: 'new', lease: by(acquire, 'new')(), ms: 1_000 }))
    clock.advance(1_000)
    last.release('healthy')
    const order = await drain([...old, ...fresh], clock)
    expect(order.lastIndexOf('old')).toBeLessThan(12)
  })

  // Goal: a key with 64 long streams leaves another key of its organization a place at once, and the organization
  // leaves one to others all the same.
  test('leave places to each other’s keys', async () => {
    const { acquire } = setUp([target('a', { concurrencyMax: 16 })], { queueMax: 200 })
    const second = by(acquire, 'acme', 'k2')
    for (const ask of [second, by(acquire, 'other')]) (await ask()).release('healthy')
    const held: Lease<Target>[] = []
    for (let at = 0; at < 64; at += 1) void by(acquire, 'acme')().then(lease => held.push(lease))
    await Bun.sleep(0)
    expect(held).toHaveLength(13)
    const own = await second()
    void by(acquire, 'acme', 'k3')()
    await Bun.sleep(0)
    expect((await by(acquire, 'other')()).target.name).toBe('a')
    own.release('healthy')
  })

  // Goal: of a full queue the newest of the key with most gives way, not of another key of its organization.
  test('drop from the key that has most', async () => {
    const { acquire } = setUp([target('a', { concurrencyMax: 1 })], { queueMax: 4 })
    const lease = await by(acquire, 'acme')()
    const waiting = Array.from({ length: 4 }, () => by(acquire, 'acme')())
    const dropped = failure(waiting[3] ?? Promise.resolve())
    const other = by(acquire, 'acme', 'k2')()
    expect(await dropped).toMatchObject({ code: 'rate_limited' })
    lease.release('healthy')
    expect((await other).target.name).toBe('a')
  })

  // Goal: a queue of requests for one model holds up none for another model of the same upstream.
  test('share a target over its models', async () => {
    const models = [MODEL, 'second']
    const { acquire } = setUp([target('a', { concurrencyMax: 1, models })], { queueMax: 100 })
    const lease = await by(acquire, 'hog')()
    for (let at = 0; at < 64; at += 1) void by(acquire, 'hog')().then(held => held.release('healthy'))
    const other = by(acquire, 'other', 'k1', 'second')()
    lease.release('healthy')
    const order = await Promise.race([other.then(() => 'other'), Bun.sleep(0).then(() => 'late')])
    expect(order).toBe('other')
  })
})
