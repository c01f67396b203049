// Goal: a gateway's VM reaches exactly the addresses of its upstreams' hosts, as they were last found.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { Addresses } from '../../src/enclave-host/addresses.ts'

function open(urls: readonly string[]) {
  const answers = new Map<string, readonly string[] | Error>()
  const lookedUp: string[] = []
  const warned: unknown[] = []
  const addresses = new Addresses({
    urls,
    own: '10.0.0.1',
    clock: createManualClock(),
    log: { ...silentLogger, warn: (_: string, data?: object) => void warned.push(Reflect.get(Object(data), 'host')) },
    resolve: async host => {
      lookedUp.push(host)
      const answer = answers.get(host) ?? []
      if (answer instanceof Error) throw answer
      return answer
    },
  })
  let changes = 0
  addresses.onChange(() => {
    changes += 1
  })
  return { addresses, answers, lookedUp, warned, changes: () => changes }
}

test('goal: each host with the port of its URL, each name is looked up once; an address in a URL needs no resolver', async () => {
  const urls = [
    'https://a.test/v1',
    'http://a.test:8080',
    'https://b.test:8443/',
    'http://192.0.2.9/v1',
    'http://b.test',
  ]
  const { addresses, answers, lookedUp, changes } = open(urls)
  answers.set('a.test', ['192.0.2.2', '192.0.2.1', '192.0.2.2'])
  answers.set('b.test', ['192.0.2.3'])
  expect([addresses.isKnown, addresses.reached()]).toEqual([false, [{ address: '192.0.2.9', port: 80 }]])
  await addresses.look()
  expect([lookedUp, addresses.isKnown, changes()]).toEqual([['a.test', 'b.test'], true, 1])
  expect(addresses.hosts()).toEqual({ 'a.test': ['192.0.2.1', '192.0.2.2'], 'b.test': ['192.0.2.3'] })
  expect(addresses.reached().map(({ address, port }) => `${address}:${port}`)).toEqual([
    ...['192.0.2.1:443', '192.0.2.2:443', '192.0.2.1:8080', '192.0.2.2:8080'],
    ...['192.0.2.3:8443', '192.0.2.9:80', '192.0.2.3:80'],
  ])
})

test('goal: two URLs of one place open it once', async () => {
  const { addresses, answers } = open(['https://a.test/v1', 'https://b.test/v1', 'https://192.0.2.1'])
  answers.set('a.test', ['192.0.2.1'])
  answers.set('b.test', ['192.0.2.1'])
  await addresses.look()
  expect(addresses.reached()).toEqual([{ address: '192.0.2.1', port: 443 }])
})

test('goal: a resolver opens nothing on this host, and no more than 8 addresses for a name', async () => {
  const { addresses, answers } = open(['https://a.test', 'http://b.test'])
  answers.set('a.test', ['10.0.0.1'])
  answers.set('b.test', ['10.0.0.1', ...Array.from({ length: 9 }, (_, n) => `192.0.2.${9 - n}`)])
  await addresses.look()
  expect(addresses.hosts()).toEqual({
    'a.test': [],
    'b.test': Array.from({ length: 8 }, (_, n) => `192.0.2.${n + 1}`),
  })
  expect(open(['http://10.0.0.1:8000']).addresses.reached()).toEqual([{ address: '10.0.0.1', port: 8000 }])
})

test('goal: a name that cannot be looked up keeps the addresses of before; only a change is passed on', async () => {
  const { addresses, answers, warned, changes } = open(['https://a.test', 'https://b.test'])
  answers.set('a.test', ['192.0.2.1'])
  answers.set('b.test', new Error('SERVFAIL'))
  await addresses.look()
  expect([addresses.hosts(), warned, changes()]).toEqual([{ 'a.test': ['192.0.2.1'], 'b.test': [] }, ['b.test'], 1])
  answers.set('a.test', new Error('SERVFAIL'))
  await addresses.look()
  expect([addresses.hosts(), changes()]).toEqual([{ 'a.test': ['192.0.2.1'], 'b.test': [] }, 1])
  answers.set('a.test', ['192.0.2.2'])
  await addresses.look()
  expect([addresses.hosts()['a.test'], changes()]).toEqual([['192.0.2.2'], 2])
})
