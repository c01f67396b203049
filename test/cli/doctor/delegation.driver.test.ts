// Goal: the delegation is asked for as the world sees it, at the name servers above the domain; whatever answers or
// does not, it ends in time. A resolver and the name servers of a zone, all of them sockets of this machine's loopback
// addresses.

import { afterEach, expect, test } from 'bun:test'
import { createSocket } from 'node:dgram'
import { type Answer, decode, encode } from 'dns-packet'
import { collectDelegationFacts } from '../../../src/cli/doctor/delegation.driver.ts'

const [resolver, parent] = ['127.0.0.2', '127.0.0.3']
const domain = 'agents.acme-hosting.com'
const zone = 'acme-hosting.com'

type Said = { answers?: Answer[]; authorities?: Answer[]; additionals?: Answer[]; raw?: Buffer; idOffset?: number }
type Server = (asked: { name: string; type: string; recursion: boolean }) => Said | null

const closers: (() => void)[] = []
afterEach(() => {
  for (const close of closers.splice(0)) close()
})

/** Both servers at one port, as name servers have one; the questions that each was asked. */
async function servers(ofResolver: Server, ofParent: Server) {
  const asked: string[] = []
  const listen = (address: string, port: number, answer: Server) =>
    new Promise<number>((resolve, reject) => {
      const socket = createSocket('udp4')
      closers.push(() => socket.close())
      socket.on('error', reject)
      socket.on('message', (bytes, from) => {
        const { id, questions, flag_rd } = decode(bytes)
        const [question] = questions ?? []
        const name = question?.name ?? ''
        asked.push(`${address} ${question?.type} ${name}`)
        const said = answer({ name, type: question?.type ?? '', recursion: flag_rd })
        if (said === null) return
        const { raw, idOffset = 0, ...records } = said
        const reply =
          raw ?? encode({ type: 'response', id: (id ?? 0) + idOffset, questions: questions ?? [], ...records })
        socket.send(reply, from.port, from.address)
      })
      socket.bind(port, address, () => resolve(socket.address().port))
    })
  const port = await listen(resolver, 0, ofResolver)
  await listen(parent, port, ofParent)
  return {
    asked,
    look: (change: object = {}) =>
      collectDelegationFacts({ domain, resolvers: [resolver], port, timeoutMs: 10_000, ...change }),
  }
}

const ns = (name: string, data: string): Answer => ({ name, type: 'NS', ttl: 5, data })
const a = (name: string, data: string): Answer => ({ name, type: 'A', ttl: 5, data })
const usual: Server = ({ name, type }) => {
  if (type === 'NS' && name === zone) return { answers: [ns(zone, 'dns1.registrar.net')] }
  if (type === 'A' && name === 'dns1.registrar.net') return { answers: [a(name, parent)] }
  return type === 'A' && name === 'ns.elsewhere.net' ? { answers: [a(name, '198.51.100.9')] } : {}
}

test('goal: a delegation with its address, asked of the zone above and not of the resolver', async () => {
  const { look, asked } = await servers(usual, ({ recursion }) =>
    recursion
      ? {}
      : {
          authorities: [ns(domain.toUpperCase(), `ns.${domain}`)],
          additionals: [a(`ns.${domain}`, '192.0.2.7'), a('other.net', '192.0.2.8')],
        },
  )
  expect(await look()).toEqual({
    kind: 'asked',
    zone,
    by: 'dns1.registrar.net',
    nameServers: [`ns.${domain}`],
    addresses: ['192.0.2.7'],
  })
  expect(asked).toEqual([`${resolver} NS ${zone}`, `${resolver} A dns1.registrar.net`, `${parent} NS ${domain}`])
})

test('goal: a name server of another zone is looked up; a zone that knows nothing says so', async () => {
  const other = await servers(usual, () => ({ authorities: [ns(domain, 'ns.elsewhere.net')] }))
  expect(await other.look()).toMatchObject({ nameServers: ['ns.elsewhere.net'], addresses: ['198.51.100.9'] })
  for (const close of closers.splice(0)) close()
  const nothing = await servers(usual, () => ({ authorities: [ns(zone, 'dns1.registrar.net')] }))
  expect(await nothing.look()).toMatchObject({ kind: 'asked', nameServers: [], addresses: [] })
})

test('goal: a name server with an IPv6 address alone is found by that', async () => {
  const aaaa = (name: string, data: string): Answer => ({ name, type: 'AAAA', ttl: 5, data })
  const other: Server = asked =>
    asked.name === 'ns.elsewhere.net'
      ? asked.type === 'AAAA'
        ? { answers: [aaaa(asked.name, '2001:db8::9')] }
        : {}
      : usual(asked)
  const { look } = await servers(other, () => ({ authorities: [ns(domain, 'ns.elsewhere.net')] }))
  expect(await look()).toMatchObject({ addresses: ['2001:db8::9'] })
  for (const close of closers.splice(0)) close()
  const glue = await servers(usual, () => ({
    authorities: [ns(domain, `ns.${domain}`)],
    additionals: [aaaa(`ns.${domain}`, '2001:db8::7')],
  }))
  expect(await glue.look()).toMatchObject({ addresses: ['2001:db8::7'] })
})

test('goal: silence, nonsense, and answers to other questions end in time with a reason', async () => {
  for (const odd of [null, { raw: Buffer.from('nonsense') }, { idOffset: 1 }] as const) {
    const startedMs = performance.now()
    const { look } = await servers(usual, () => odd)
    const facts = await look({ timeoutMs: 300 })
    expect([facts.kind, performance.now() - startedMs < 8_000]).toEqual(['none', true])
    for (const close of closers.splice(0)) close()
  }
  const { look } = await servers(
    () => null,
    () => null,
  )
  expect(await look({ timeoutMs: 300 })).toMatchObject({
    kind: 'none',
    reason: expect.stringContaining('has not answered within 300 ms'),
  })
})

test('goal: whoever names a thousand servers does not get a thousand questions or lines', async () => {
  const many = Array.from({ length: 1_000 }, (_, n) => ns(domain, `n${n}.x`))
  const { look, asked } = await servers(usual, () => ({ authorities: many }))
  const facts = await look()
  expect(facts.kind === 'asked' && facts.nameServers.length).toBe(8)
  expect(asked.length).toBeLessThan(10)
})

test('goal: names that nobody delegates, and a host without a resolver, ask nobody', async () => {
  for (const name of ['agents.internal', 'localhost', 'a.home.arpa', 'agents']) {
    expect(await collectDelegationFacts({ domain: name, resolvers: ['192.0.2.1'] })).toMatchObject({ kind: 'none' })
  }
  expect(await collectDelegationFacts({ domain, resolvers: [] })).toMatchObject({
    reason: '/etc/resolv.conf names no resolver to ask',
  })
})
