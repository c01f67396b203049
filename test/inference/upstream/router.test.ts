// The router: choice of a target, concurrency limits, queue, ejection and return.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { MODEL } from '../../../scripts/rigs/gateway/server.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { BusyFault } from '../../../src/inference/failure.ts'
import { type Lease, Router, type RouterDeps } from '../../../src/inference/upstream/router.ts'

type Target = { name: string; models: string[]; weight: number; concurrencyMax: number }
const target = (name: string, more: Partial<Target> = {}): Target => ({
  name,
  models: [MODEL],
  weight: 1,
  concurrencyMax: 2,
  ...more,
})

const acme = { organizationId: 'acme', keyPrefix: 'k1' }

function setUp(
  targets: Target[],
  more: Partial<Pick<RouterDeps<Target>, 'probe' | 'queueMax' | 'queueTimeoutMs' | 'mayServe'>> = {},
) {
  const clock = createManualClock()
  const limits = { queueMax: 2, queueTimeoutMs: 1_000, ejectFailures: 3, ejectMs: 500 }
  const router = new Router<Target>({
    targets,
    probe: async () => true,
    clock,
    log: silentLogger,
    ...limits,
    ...more,
  })
  const acquire = async (except: Target[] = [], signal = new AbortController().signal, model = MODEL, owner = acme) =>
    router.acquire(model, { except: new Set(except), signal, owner })
  return { clock, router, acquire }
}

async function failTimes(router: Router<Target>, count: number, except: Target[] = []): Promise<void> {
  for (let i = 0; i < count; i += 1) {
    const lease = await router.acquire(MODEL, {
      except: new Set(except),
      signal: new AbortController().signal,
      owner: acme,
    })
    lease.release('unhealthy')
  }
}

describe('choice', () => {
  // Goal: concurrent requests are spread by weight; targets of equal load take turns.
  test('weights', async () => {
    const { acquire } = setUp([target('a', { concurrencyMax: 99 }), target('b', { concurrencyMax: 99, weight: 3 })])
    const names: string[] = []
    for (let i = 0; i < 40; i += 1) names.push((await acquire()).target.name)
    expect(names.filter(name => name === 'b').length).toBe(30)
    const equals = setUp([target('a'), target('b')])
    const turns: string[] = []
    for (let i = 0; i < 4; i += 1) {
      const lease = await equals.acquire()
      turns.push(lease.target.name)
      lease.release('healthy')
    }
    expect(turns).toEqual(['a', 'b', 'a', 'b'])
  })

  // Goal: only targets that serve the model are chosen, and none that is excepted.
  test('models and exceptions', async () => {
    const [a, b] = [target('a'), target('b', { models: ['other'] })]
    const { acquire } = setUp([a, b])
    expect((await acquire()).target.name).toBe('a')
    expect(await failure(acquire([a]))).toMatchObject({ code: 'upstream_failed', reason: 'none_healthy' })
  })
})

describe('queue', () => {
  // Goal: beyond the cap requests wait in their order, the queue is bounded, and its wait ends.
  test('order, bound and time', async () => {
    const { clock, router, acquire } = setUp([target('a', { concurrencyMax: 1 })])
    const first = await acquire()
    const order: string[] = []
    const second = acquire().then(lease => {
      order.push('second')
      return lease
    })
    const third = acquire()
    expect(await failure(acquire())).toMatchObject({ code: 'rate_limited' })
    expect(router.view()).toEqual({ waiting: 2, targets: [{ name: 'a', active: 1, ejected: false }] })
    first.release('healthy')
    first.release('healthy')
    await second
    expect(order).toEqual(['second'])
    expect(router.view().waiting).toBe(1)
    const late = failure(third)
    await clock.elapse(1_000)
    expect(await late).toMatchObject({ code: 'rate_limited' })
    expect(router.view()).toMatchObject({ waiting: 0, targets: [{ active: 1 }] })
    expect(clock.pending()).toEqual([])
  })

  // Goal: with a free target, or with none at all, `acquire` returns or throws synchronously; only waiting is a
  // promise.
  test('at once', () => {
    const { router } = setUp([target('a', { concurrencyMax: 1 })])
    const options = { except: new Set<Target>(), signal: new AbortController().signal, owner: acme }
    expect(router.acquire(MODEL, options)).toMatchObject({ target: { name: 'a' } })
    expect(router.acquire(MODEL, options)).toBeInstanceOf(Promise)
    expect(() => router.acquire('other', options)).toThrow(expect.objectContaining({ reason: 'none_healthy' }))
    const gone = AbortSignal.abort(new Error('gone'))
    expect(() => router.acquire(MODEL, { ...options, signal: gone })).toThrow('gone')
  })

  // Goal: an aborted waiter leaves the queue and takes no lease.
  test('leaving', async () => {
    const { router, acquire } = setUp([target('a', { concurrencyMax: 1 })])
    const first = await acquire()
    const leave = new AbortController()
    const waiting = failure(acquire([], leave.signal))
    leave.abort(new Error('gone'))
    expect((await waiting).message).toBe('gone')
    first.release('unknown')
    expect(router.view()).toMatchObject({ waiting: 0, targets: [{ active: 0 }] })
  })
})

describe('the wait that a refusal names', () => {
  type Bench = ReturnType<typeof setUp>
  /** Leases one after the other, until the average is what they last. */
  const train = async ({ acquire, clock }: Bench, lastMs: number, except: Target[] = []) => {
    for (let i = 0; i < 60; i += 1) {
      const lease = await acquire(except)
      clock.advance(lastMs)
      lease.release(i % 2 === 0 ? 'healthy' : 'unknown')
    }
  }
  const take = async ({ acquire }: Bench, count: number, except: Target[] = []) => {
    const leases: Lease<Target>[] = []
    for (let i = 0; i < count; i += 1) leases.push(await acquire(except))
    return leases
  }
  const refusedFor = async ({ acquire }: Bench, except: Target[] = []) => {
    const refusal = await failure(acquire(except))
    expect(refusal).toBeInstanceOf(BusyFault)
    expect(refusal).toMatchObject({
      code: 'rate_limited',
      message: expect.stringMatching(/^Too many requests wait for this model\. This one was at position [1-5]0?\.$/),
    })
    return refusal instanceof BusyFault ? refusal.retryAfterSeconds : null
  }

  // Goal: longer leases and longer queues mean a longer wait, more places a shorter one, within 1 and 60 seconds.
  test.each([
    { lastMs: 'unknown', places: 1, waiting: 0, seconds: 1 },
    { lastMs: 'unknown', places: 1, waiting: 4, seconds: 5 },
    { lastMs: 20, places: 1, waiting: 4, seconds: 1 },
    { lastMs: 0, places: 1, waiting: 4, seconds: 1 },
    { lastMs: 6_000, places: 1, waiting: 0, seconds: 6 },
    { lastMs: 6_000, places: 1, waiting: 2, seconds: 18 },
    { lastMs: 6_000, places: 4, waiting: 2, seconds: 5 },
    { lastMs: 6_000, places: 4, waiting: 40, seconds: 60 },
    { lastMs: 3_600_000, places: 2, waiting: 0, seconds: 60 },
  ])('leases of $lastMs ms, $places places, $waiting waiting', async ({ lastMs, places, waiting, seconds }) => {
    const bench = setUp([target('a', { concurrencyMax: places })], { queueMax: waiting })
    if (typeof lastMs === 'number') await train(bench, lastMs)
    await take(bench, places)
    for (let i = 0; i < waiting; i += 1) void failure(bench.acquire())
    expect(await refusedFor(bench)).toBe(seconds)
    bench.router.close()
  })

  // Goal: Retry-After is right for leases that end evenly spread: a target is free then, and none was a second earlier.
  test('is kept', async () => {
    const bench = setUp([target('a', { concurrencyMax: 4 })], { queueTimeoutMs: 60_000 })
    await train(bench, 8_000)
    const leases: Lease<Target>[] = []
    for (let i = 0; i < 4; i += 1) {
      leases.push(...(await take(bench, 1)))
      bench.clock.advance(i < 3 ? 2_000 : 0)
    }
    const waiters = [bench.acquire(), bench.acquire()]
    expect(await refusedFor(bench)).toBe(6)
    for (let second = 1; second <= 6; second += 1) {
      bench.clock.advance(1_000)
      if (second % 2 === 0) leases.shift()?.release('healthy')
      expect([second, bench.router.view().targets[0]?.active]).toEqual([second, second < 6 ? 4 : 3])
    }
    expect((await Promise.all(waiters)).map(lease => lease.target.name)).toEqual(['a', 'a'])
  })

  // Goal: the estimate counts only targets that could take the request, and all waiters for any of them, of any model.
  test('which targets and whose waiters', async () => {
    const [a, b, c] = [
      target('a', { concurrencyMax: 1, models: [MODEL, 'other'] }),
      target('b', { concurrencyMax: 1 }),
      target('c'),
    ]
    const bench = setUp([a, b, c], { queueMax: 1, probe: async () => false })
    await train(bench, 9_000, [b, c])
    await train(bench, 9_000, [a, c])
    await failTimes(bench.router, 3, [a, b])
    await bench.clock.elapse(0)
    expect(bench.router.view().targets.map(target => target.ejected)).toEqual([false, false, true])
    await take(bench, 2)
    void failure(bench.acquire())
    expect(await refusedFor(bench)).toBe(9)
    expect(await refusedFor(bench, [b])).toBe(18)
    void failure(bench.acquire([], undefined, 'other'))
    expect(await refusedFor(bench)).toBe(14)
    bench.router.close()
  })

  // Goal: when no lease has ended for long, the estimate grows, for a full queue and for a queue timeout alike.
  test('nothing ends', async () => {
    const bench = setUp([target('a', { concurrencyMax: 2 })], { queueMax: 1, queueTimeoutMs: 8_000 })
    await train(bench, 10)
    await take(bench, 2)
    const late = failure(bench.acquire())
    expect(await refusedFor(bench)).toBe(1)
    await bench.clock.elapse(7_000)
    expect(await refusedFor(bench)).toBe(14)
    await bench.clock.elapse(1_000)
    const refusal = await late
    expect(refusal).toBeInstanceOf(BusyFault)
    const message = 'No engine was free within 8000 ms. The request was at position 1.'
    expect(refusal).toMatchObject({ message, retryAfterSeconds: 8 })
  })
})

describe('the place of a waiter', () => {
  // Goal: places go round among organizations and keys, so that a long queue of another key is not counted whole; an
  // earlier request of the same key goes first; the wait follows from how often a place is freed.
  test('own and other requests', async () => {
    const { clock, router, acquire } = setUp([target('a', { concurrencyMax: 1 })], { queueMax: 99 })
    const first = await acquire()
    clock.advance(4_000)
    first.release('healthy')
    await acquire()
    const waiting = (id: string, organizationId: string, keyPrefix: string) => {
      const options = { id, except: new Set<Target>(), signal: new AbortController().signal }
      const lease = router.acquire(MODEL, { ...options, owner: { organizationId, keyPrefix } })
      if (lease instanceof Promise) void failure(lease)
    }
    for (let at = 0; at < 20; at += 1) waiting(`hog-${at}`, 'hog', 'k1')
    waiting('second-key', 'hog', 'k2')
    waiting('first', 'acme', 'k1')
    waiting('second', 'acme', 'k1')
    expect(router.place('first')).toEqual({ position: 2, waitMs: 2 * 1_600 })
    expect(router.place('second')).toMatchObject({ position: 4 })
    expect(router.place('second-key')).toMatchObject({ position: 4 })
    expect(router.place('hog-0')).toMatchObject({ position: 4 })
    expect(router.place('hog-19')).toMatchObject({ position: 20 + 1 + 2 })
    expect(router.place('nobody')).toBeNull()
    router.close()
    expect(router.place('first')).toBeNull()
  })

  // Goal: where no place is freed, there is no wait to estimate: an infinite number is none in JSON.
  test('no target serves just now', async () => {
    let mayServe = true
    const { router, acquire } = setUp([target('a', { concurrencyMax: 1 })], { mayServe: () => mayServe })
    const lease = await acquire()
    const options = { id: 'last', except: new Set<Target>(), signal: new AbortController().signal, owner: acme }
    const waiting = router.acquire(MODEL, options)
    if (waiting instanceof Promise) void failure(waiting)
    expect(router.place('last')).toEqual({ position: 1, waitMs: 1_000 })
    mayServe = false
    lease.release('healthy')
    expect(router.place('last')).toEqual({ position: 1, waitMs: null })
    router.close()
  })
})

describe('a long queue', () => {
  // Goal: an engine that is stuck costs no more for each request when the queue is long: places, refusals and waiters
  // that all time out at the same time. A look at each waiter for each of them would take minutes.
  test.each([
    ['one key', () => acme],
    ['a key each', (at: number) => ({ organizationId: `o${at % 1_000}`, keyPrefix: `k${at}` })],
  ])(
    'of %s',
    async (_, ownerOf) => {
      const queueMax = 40_000
      const late: (() => void)[] = []
      const clock = { ...createManualClock(), sleep: () => new Promise<void>(resolve => void late.push(resolve)) }
      const limits = { queueMax, queueTimeoutMs: 1_000, ejectFailures: 3, ejectMs: 500 }
      const targets = [target('a', { concurrencyMax: 1 })]
      const router = new Router<Target>({ targets, probe: async () => true, clock, log: silentLogger, ...limits })
      const refusals = new Map<string, number>()
      const ask = async (at: number) => {
        const options = { id: `r${at}`, except: new Set<Target>(), signal: new AbortController().signal }
        const error = await failure((async () => router.acquire(MODEL, { ...options, owner: ownerOf(at) }))())
        const words = String(error).split('.')[0] ?? ''
        refusals.set(words, (refusals.get(words) ?? 0) + 1)
      }
      router.acquire(MODEL, { except: new Set(), signal: new AbortController().signal, owner: acme })
      const asked = Array.from({ length: queueMax + 2_000 }, (_, at) => ask(at))
      for (let at = 0; at < 20_000; at += 1) router.place(`r${at}`)
      expect(router.view().waiting).toBe(queueMax)
      for (const time of late) time()
      await Promise.all(asked)
      expect([router.view().waiting, [...refusals.values()].toSorted((a, b) => a - b)]).toEqual([0, [2_000, queueMax]])
    },
    60_000,
  )
})

describe('health', () => {
  // Goal: three failures in a row and a failed probe eject, a success in between does not; the probe decides on the
  // return.
  test('ejection and return', async () => {
    const answers = [false, false, true]
    const { clock, router, acquire } = setUp([target('a')], { probe: async () => answers.shift() ?? true })
    await failTimes(router, 2)
    ;(await acquire()).release('healthy')
    await failTimes(router, 2)
    expect(router.view().targets[0]?.ejected).toBe(false)
    await failTimes(router, 1)
    await clock.elapse(0)
    expect(await failure(acquire())).toMatchObject({ reason: 'none_healthy' })
    await clock.elapse(500)
    expect(router.view().targets[0]?.ejected).toBe(true)
    await clock.elapse(500)
    expect(router.view().targets[0]?.ejected).toBe(false)
    expect(answers).toEqual([])
    expect((await acquire()).target.name).toBe('a')
  })

  // Goal: an upstream that passes its probe is not ejected after any number of failures: the requests may be at fault.
  test('failures with a good probe', async () => {
    let probes = 0
    const probe = async () => {
      probes += 1
      return true
    }
    const { clock, router, acquire } = setUp([target('a')], { probe })
    for (let round = 1; round <= 3; round += 1) {
      await failTimes(router, 3)
      await clock.elapse(0)
      expect([probes, router.view().targets[0]?.ejected]).toEqual([round, false])
    }
    expect((await acquire()).target.name).toBe('a')
  })

  // Goal: `probeNow` probes at once; the probe still decides, and a target that is not ejected is not probed.
  test('probeNow', async () => {
    const answers = [false, false, false, true]
    const { clock, router } = setUp([target('a'), target('b')], { probe: async () => answers.shift() ?? true })
    const isEjected = () => router.view().targets.map(target => target.ejected)
    router.probeNow('a')
    await failTimes(router, 6)
    await clock.elapse(0)
    expect(isEjected()).toEqual([true, true])
    router.probeNow('a')
    await clock.elapse(0)
    expect([answers.length, isEjected()]).toEqual([1, [true, true]])
    router.probeNow('a')
    await clock.elapse(0)
    expect([answers.length, isEjected()]).toEqual([0, [false, true]])
  })

  // Goal: waiters without a target left are rejected at once; closing ends every wait and every probe.
  test('waiters of the ejected, and close', async () => {
    const verdict = Promise.withResolvers<boolean>()
    const { clock, router, acquire } = setUp([target('a', { concurrencyMax: 1 })], { probe: () => verdict.promise })
    await failTimes(router, 3)
    // Until the probe has judged, it serves.
    const lease = await acquire()
    const waiting = failure(acquire())
    verdict.resolve(false)
    expect(await waiting).toMatchObject({ reason: 'none_healthy' })
    expect(router.view()).toEqual({ waiting: 0, targets: [{ name: 'a', active: 1, ejected: true }] })
    lease.release('unknown')
    router.close()
    await clock.elapse(10_000)
    expect(clock.pending()).toEqual([])
  })
})
