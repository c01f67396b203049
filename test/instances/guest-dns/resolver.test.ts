// Limits and parsing of the forwarder; test/vm/network/names.root.test.ts has a real firewall and network.

import { expect, test } from 'bun:test'
import { decode } from 'dns-packet'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import type { DnsAnswer } from '../../../src/base/dns/answer.codec.ts'
import { type Logger, silentLogger } from '../../../src/base/log.ts'
import { NameList } from '../../../src/config/allow-names.ts'
import { GuestResolver, type GuestResolverDeps } from '../../../src/instances/guest-dns/resolver.ts'
import { hostileMessages } from '../../rigs/dns/fuzz.ts'
import { query } from '../../rigs/dns/query.ts'

const found = (name: string, data = '198.51.100.7', ttl = 60): DnsAnswer => ({
  code: 'NOERROR',
  isTruncated: false,
  authorities: [],
  additionals: [],
  answers: [{ type: 'A', name, data, ttl }],
})
const guest = '10.88.0.1'

function bench(change: Partial<GuestResolverDeps> = {}) {
  const clock = createManualClock()
  const asked: string[] = []
  const opened: string[] = []
  const said: string[] = []
  const log: Logger = { ...silentLogger, warn: message => void said.push(message) }
  const resolver = new GuestResolver({
    list: new NameList(['a.example', '*.wide.example', '*.agents.example']),
    types: ['A'],
    isInstance: address => address.startsWith('10.88.'),
    kindOf: address => (address.startsWith('10.') ? 'denied' : 'world'),
    resolvers: ['192.0.2.53', '192.0.2.54'],
    ask: async ({ server, name }) => {
      asked.push(`${server} ${name}`)
      return found(name)
    },
    open: async addresses => {
      opened.push(...addresses.map(({ address, timeoutMs }) => `${address} ${timeoutMs}`))
      return true
    },
    clock,
    log,
    ...change,
  })
  const ask = async (name: string, { from = guest, type = 'A' } = {}) => {
    const later = Promise.withResolvers<Uint8Array>()
    const now = resolver.respond(query({ name, type, edns: {} }), from, later.resolve)
    const { rcode, answers, flag_ra } = decode(Buffer.from(now ?? (await later.promise))) as ReturnType<
      typeof decode
    > & { rcode: string }
    return { rcode, ttl: (answers?.[0] as { ttl?: number } | undefined)?.ttl ?? null, flag_ra }
  }
  return { resolver, clock, asked, opened, said, ask }
}

test('goal: an answer is kept for as long as it is valid, and its time runs; the address stays open a little longer', async () => {
  const { clock, asked, opened, ask } = bench()
  expect(await ask('a.example')).toEqual({ rcode: 'NOERROR', ttl: 60, flag_ra: true })
  clock.advance(20_000)
  expect(await ask('A.EXAMPLE')).toMatchObject({ ttl: 40 })
  expect([asked, opened]).toEqual([['192.0.2.53 a.example'], ['198.51.100.7 120000']])
  clock.advance(40_000)
  expect(await ask('a.example')).toMatchObject({ ttl: 60 })
  expect(asked).toHaveLength(2)
})

test('goal: an answer without time, and one for ever, are bounded', async () => {
  for (const [ttl, told] of [
    [0, 30],
    [2 ** 31 - 1, 3_600],
  ] as const)
    expect(await bench({ ask: async ({ name }) => found(name, '198.51.100.7', ttl) }).ask('a.example')).toMatchObject({
      ttl: told,
    })
})

test('goal: nobody is answered before the address is open, and not at all where it cannot be', async () => {
  const gate = Promise.withResolvers<boolean>()
  const { resolver } = bench({ open: () => gate.promise })
  let answered = false
  resolver.respond(query({ name: 'a.example' }), guest, () => {
    answered = true
  })
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve()
  expect(answered).toBe(false)
  gate.resolve(false)
  const full = bench({ open: async () => false })
  const broken = bench({ open: () => Promise.reject(new Error('nft')) })
  for (const { ask, resolver: item } of [full, broken]) {
    expect(await ask('a.example')).toMatchObject({ rcode: 'SERVFAIL' })
    expect(item.counts()).toEqual({ answered: 0, blocked: 0, failed: 1 })
  }
})

test('goal: the second resolver is asked where the first has no answer that can be used', async () => {
  const bad: (() => Promise<DnsAnswer>)[] = [
    () => Promise.reject(new Error('no answer')),
    async () => ({ ...found('a.example'), code: 'SERVFAIL', answers: [] }),
    async () => ({ ...found('a.example'), isTruncated: true }),
  ]
  for (const first of bad) {
    const { ask } = bench({
      ask: ({ server, name }) => (server === '192.0.2.53' ? first() : Promise.resolve(found(name))),
    })
    expect(await ask('a.example')).toMatchObject({ rcode: 'NOERROR', ttl: 60 })
  }
})

test('goal: one instance, and all together, wait for a bounded number of questions; the same question is asked once', async () => {
  const never = new Promise<DnsAnswer>(() => {})
  const asked: string[] = []
  const limits = { waitingOfOneMax: 3, waitingMax: 5, forwardsMax: 4 }
  const { resolver } = bench({
    limits,
    ask: ({ name }) => {
      asked.push(name)
      return never
    },
  })
  const refused = (n: number, from: string) =>
    resolver.respond(query({ name: `n${n}.wide.example` }), from, () => {}) !== null
  expect([1, 1, 2, 3].map(n => refused(n, guest))).toEqual([false, false, false, true])
  expect([4, 5, 6].map(n => refused(n, '10.88.0.2'))).toEqual([false, false, true])
  expect(asked).toEqual(['n1.wide.example', 'n2.wide.example', 'n4.wide.example', 'n5.wide.example'])
})

test('goal: names below a star do not grow the memory without end', async () => {
  const { ask, asked } = bench({ limits: { cachedMax: 8 } })
  for (let n = 0; n < 40; n += 1) await ask(`n${n}.wide.example`)
  await ask('n39.wide.example')
  await ask('n0.wide.example')
  expect(asked).toHaveLength(41)
})

test('goal: what is blocked is said once in a while, however often it is asked for', async () => {
  const { ask, said, clock, resolver } = bench()
  for (let n = 0; n < 100; n += 1) expect(await ask(`n${n}.evil.example`)).toMatchObject({ rcode: 'NXDOMAIN' })
  expect(said).toHaveLength(1)
  clock.advance(60_000)
  await ask('evil.example')
  expect(said).toHaveLength(2)
  expect(resolver.counts().blocked).toBe(101)
})

test('goal: whoever is no instance gets nothing, and no message makes it throw or ask for a name that is not on the list', async () => {
  const { resolver, asked } = bench()
  expect(resolver.respond(query({ name: 'a.example' }), '192.0.2.9', () => {})).toBeNull()
  for (const message of hostileMessages(7, 2_000)) resolver.respond(message, guest, () => {})
  expect(asked.every(item => / [^ ]+\.agents\.example$/.test(item))).toBe(true)
  expect(asked.length).toBeGreaterThan(0)
})
