// Goal: no network, and no number of networks that ask repeatedly, keeps a light user from its turn; memory and rate
// are bounded.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { networksOf } from '../../../src/http/client-network.ts'
import { NetworkTurns, type TurnsDeps } from '../../../src/inference/attestation/turns.ts'

const never = new AbortController().signal

function turnsWith(deps: Partial<TurnsDeps> = {}) {
  const clock = createManualClock()
  const turns = new NetworkTurns({ clock, callersMax: 4, gapMs: 0, ...deps })
  const order: string[] = []
  const held = Promise.withResolvers<void>()
  const ask = (address: string) =>
    turns.run(address, never, async () => {
      order.push(address)
      if (order.length === 1) await held.promise
      return address
    })
  return { clock, turns, order, ask, release: () => held.resolve() }
}

test('goal: addresses stand in the networks that one client can have', () => {
  const names = (address: string) => networksOf(address).map(network => network.name)
  expect(names('192.0.2.7')).toEqual(['192.0.2.0/24', '192.0.0.0/16'])
  expect(names('::ffff:192.0.2.7')).toEqual(['192.0.2.0/24', '192.0.0.0/16'])
  const v6 = ['2001:db8:1:200::/56', '2001:db8:1::/48', '2001:db8::/32']
  expect(names('2001:db8:1:2ff:1:2:3:4')).toEqual(v6)
  expect(names('2001:db8:1:2ff:1:2:3:4%eth0')).toEqual(v6)
  expect(names('::1')).toEqual(['0:0:0:0::/56', '0:0:0::/48', '0:0::/32'])
  for (const text of ['', 'nonsense', '1.2.3']) expect(names(text)).toEqual(['unknown', 'unknown'])
})

test('goal: who asked for less goes first; in a full queue who asked for most gives way, and among equals the last to come', async () => {
  const { order, ask, release, turns } = turnsWith()
  const first = [ask('192.0.2.1'), ask('192.0.2.2'), ask('192.0.2.3'), ask('198.51.100.1')]
  expect(turns.size).toBe(4)
  // From the same network as the queue, so with no priority over it.
  expect(await ask('192.0.2.4')).toBeNull()
  const late = ask('203.0.113.1')
  expect(await first[2]).toBeNull()
  release()
  expect(await Promise.all([first[0], first[1], first[3], late])).toEqual([
    '192.0.2.1',
    '192.0.2.2',
    '198.51.100.1',
    '203.0.113.1',
  ])
  expect(order).toEqual(['192.0.2.1', '198.51.100.1', '203.0.113.1', '192.0.2.2'])
})

test('goal: other addresses of a wide network count for it; after minutes what was asked for is forgotten', async () => {
  for (const own of [(at: number) => `2001:db8:${at.toString(16)}::1`, (at: number) => `192.0.${at}.1`]) {
    const { order, ask, release, clock } = turnsWith({ callersMax: 64 })
    const many = Array.from({ length: 20 }, (_, at) => ask(own(at)))
    const other = [ask('198.51.100.1'), ask('198.51.100.2')]
    release()
    await Promise.all([...many, ...other])
    expect(order.indexOf('198.51.100.1')).toBe(1)
    expect(order.indexOf('198.51.100.2')).toBeLessThan(20)
    clock.advance(60 * 60_000)
    await Promise.all([ask(own(1)), ask('203.0.113.9')])
    expect(order.slice(-2)).toEqual([own(1), '203.0.113.9'])
  }
})

test('goal: who leaves has no turn; one that fails does not end those behind it', async () => {
  const { ask, release, turns } = turnsWith()
  const first = ask('192.0.2.1')
  const leaving = new AbortController()
  let begun = false
  const left = turns.run('198.51.100.1', leaving.signal, async () => {
    begun = true
  })
  const failing = turns.run('198.51.100.2', never, async () => {
    throw new Error('no evidence')
  })
  const last = ask('198.51.100.3')
  leaving.abort(new Error('gone'))
  expect(left).rejects.toThrow('gone')
  release()
  expect(failing).rejects.toThrow('no evidence')
  expect([await first, await last, begun, turns.size]).toEqual(['192.0.2.1', '198.51.100.3', false, 0])
  expect(turns.run('192.0.2.1', AbortSignal.abort(new Error('before')), async () => 1)).rejects.toThrow('before')
})

test('goal: turns keep their distance, and the memory of networks has an end', async () => {
  const { clock, order, ask, release, turns } = turnsWith({ callersMax: 1_000, gapMs: 100, networksMax: 16 })
  release()
  const all = Array.from({ length: 200 }, (_, at) => ask(`${at + 1}.0.0.1`))
  for (let turn = 1; turn < 10; turn += 1) {
    await clock.elapse(100)
    expect(order).toHaveLength(turn + 1)
  }
  await clock.elapse(20_000)
  await Promise.all(all)
  expect(order).toHaveLength(200)
  expect(turns.networks).toBeLessThanOrEqual(3 * 16)
})
