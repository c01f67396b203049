// When a host reads news that the database announced. A clock that stands until it is moved, a copy that counts.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { AnnouncedVersions } from '../../../src/fleet/directory/announced-versions.ts'

const all = (version: number) => ({ version, hostIds: null })
const concerning = (version: number, ...hostIds: string[]) => ({ version, hostIds })

function bench() {
  const clock = createManualClock()
  const stopping = new AbortController()
  const state = { version: 1 }
  const readAtMs: number[] = []
  const copy = {
    mark: () => ({ fleetId: 'f', timeline: 1, version: state.version, change: '' }),
    catchUp: async () => {
      readAtMs.push(clock.monotonicMs())
    },
  }
  const news = new AnnouncedVersions({ hostId: 'here', copy, clock, signal: stopping.signal })
  const running = (async () => {
    while (!stopping.signal.aborted) {
      await news.wake.within(clock, 2_000, stopping.signal)
      if (!stopping.signal.aborted) await news.read()
    }
  })()
  return {
    clock,
    news,
    state,
    readAtMs,
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await running
    },
  }
}

// Goal: one change is read 25 ms after it was announced, and once.
test('one announcement', async () => {
  await using own = bench()
  await own.clock.elapse(10)
  own.news.announce(all(2))
  await own.clock.elapse(24)
  expect(own.readAtMs).toEqual([])
  await own.clock.elapse(1_900)
  expect(own.readAtMs).toEqual([35])
})

// Goal: changes that follow one another are read together, after the last of them; a stream of them holds nothing up.
test('announcements that follow one another', async () => {
  await using own = bench()
  for (const version of [2, 3, 4]) {
    own.news.announce(all(version))
    await own.clock.elapse(15)
  }
  await own.clock.elapse(500)
  expect(own.readAtMs).toEqual([75])
  own.readAtMs.length = 0
  const beganMs = own.clock.monotonicMs()
  for (let version = 5; version < 35; version += 1) {
    own.news.announce(all(version))
    await own.clock.elapse(20)
  }
  const waits = own.readAtMs.map((atMs, index) => atMs - (own.readAtMs[index - 1] ?? beganMs))
  expect(waits.length).toBeGreaterThanOrEqual(5)
  expect(Math.max(...waits)).toBeLessThanOrEqual(125)
})

// Goal: a version that this host has by then is not read again; without a word it asks every two seconds.
test('what is here already', async () => {
  await using own = bench()
  own.news.announce(all(2))
  await own.clock.elapse(10)
  own.state.version = 2
  await own.clock.elapse(1_000)
  expect(own.readAtMs).toEqual([])
  own.news.announce(null)
  await own.clock.elapse(1_000)
  expect(own.readAtMs).toEqual([1_035])
  await own.clock.elapse(2_500)
  expect(own.readAtMs).toHaveLength(2)
})

// Goal: versions that concern other hosts are read at most twice a second, the first of them at once and the last ones
// without a further announcement.
test('announcements for other hosts', async () => {
  await using own = bench()
  const beganMs = own.clock.monotonicMs()
  for (let version = 2; version < 82; version += 1) {
    own.news.announce(concerning(version, 'elsewhere'))
    await own.clock.elapse(25)
  }
  await own.clock.elapse(600)
  const waits = own.readAtMs.map((atMs, index) => atMs - (own.readAtMs[index - 1] ?? beganMs))
  expect(waits[0]).toBeLessThanOrEqual(125)
  expect(waits.length).toBeGreaterThanOrEqual(4)
  expect(waits.length).toBeLessThanOrEqual(5)
  expect(Math.min(...waits.slice(1))).toBeGreaterThanOrEqual(500)
  expect(Math.max(...waits)).toBeLessThanOrEqual(625)
})

// Goal: a version that concerns this host, or all, ends the rest after a read.
test('an announcement for this host among those for others', async () => {
  for (const urgent of [concerning(4, 'elsewhere', 'here'), all(4), null]) {
    await using own = bench()
    own.news.announce(concerning(2))
    await own.clock.elapse(50)
    expect(own.readAtMs).toEqual([25])
    own.news.announce(concerning(3, 'elsewhere'))
    await own.clock.elapse(50)
    expect(own.readAtMs).toEqual([25])
    own.news.announce(urgent)
    await own.clock.elapse(50)
    expect(own.readAtMs).toEqual([25, 125])
  }
})
