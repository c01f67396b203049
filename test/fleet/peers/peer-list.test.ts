// Goal: a host that was removed is refused a second later, a new one is found at once, and a database that is away or
// slow holds up no call between hosts that know each other.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { PeerList } from '../../../src/fleet/peers/peer-list.ts'
import type { PeerRow } from '../../../src/fleet/peers/peers.query.ts'

const peer = (hostId: string, certificate: string | null = 'PEM'): PeerRow => ({
  ...{ hostId, name: hostId, address: null, certificate, hasLease: true, services: null },
})

function open() {
  const clock = createManualClock()
  const database = { rows: [peer('a')], reads: 0, answer: async (): Promise<unknown> => null }
  const query = async () => {
    database.reads += 1
    await database.answer()
    return database.rows
  }
  const list = new PeerList({ postgres: { query } as never, clock })
  const name = async (hostId: string) => (await list.find(hostId))?.name ?? null
  return { clock, database, list, name }
}

test('goal: known hosts are read once a second, however many call', async () => {
  const { clock, database, list, name } = open()
  expect(await Promise.all(['a', 'a', 'a'].map(name))).toEqual(['a', 'a', 'a'])
  expect(database.reads).toBe(1)
  database.rows = []
  clock.advance(999)
  expect([await name('a'), database.reads]).toEqual(['a', 1])
  clock.advance(1)
  expect([await name('a'), database.reads, await list.all()]).toEqual([null, 2, []])
})

test('goal: for a host that is not known, or without a certificate, the database is read again after 200 ms', async () => {
  const { clock, database, name, list } = open()
  expect([await name('new'), database.reads]).toEqual([null, 1])
  database.rows = [peer('a'), peer('new', null)]
  clock.advance(199)
  expect([await name('new'), database.reads]).toEqual([null, 1])
  clock.advance(1)
  expect([await name('new'), database.reads]).toEqual(['new', 2])
  database.rows = [peer('a'), peer('new')]
  clock.advance(200)
  expect([(await list.find('new'))?.certificate, database.reads]).toEqual(['PEM', 3])
  clock.advance(200)
  expect([(await list.find('new'))?.certificate, database.reads]).toEqual(['PEM', 3])
})

test('goal: with the database away the hosts stay as they were, and it is read no more often', async () => {
  const { clock, database, name } = open()
  expect(await name('a')).toBe('a')
  database.answer = () => Promise.reject(new Error('away'))
  clock.advance(1_000)
  expect([await name('a'), database.reads]).toEqual(['a', 2])
  clock.advance(999)
  expect([await name('a'), database.reads]).toEqual(['a', 2])
})

test('goal: a database that does not answer is waited for half a second, and at the first time until it does', async () => {
  const { clock, database, name } = open()
  const first = Promise.withResolvers<void>()
  database.answer = () => first.promise
  let isFound = false
  const finding = name('a').then(found => {
    isFound = true
    return found
  })
  await clock.elapse(60_000)
  expect(isFound).toBe(false)
  first.resolve()
  expect(await finding).toBe('a')
  const never = Promise.withResolvers<void>()
  database.answer = () => never.promise
  clock.advance(1_000)
  const second = name('a')
  await clock.sleepers(1)
  expect(clock.pending()).toEqual([500])
  clock.advance(500)
  expect(await second).toBe('a')
  // One statement at a time.
  const third = name('a')
  await clock.elapse(500)
  expect([await third, database.reads]).toEqual(['a', 2])
  never.resolve()
})
