// Goal: responses come from the address that was asked, whatever addresses the host has or gets, and no flood of
// packets keeps the thread to itself.

import { expect, test } from 'bun:test'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { UdpListener, type UdpOptions } from '../../../src/host/network/dns-udp.ts'

const limits = {
  queryBytesMax: 100,
  turnMsMax: 5,
  turnPacketsMax: 100,
  addressesMax: 3,
  addressesIntervalMs: 20,
}

async function listen(options: Partial<UdpOptions>): Promise<UdpListener> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await UdpListener.open({ hostname: '127.0.0.1', port: 0, limits, respond: query => query, ...options })
    } catch (error) {
      // The port was free on the first address only.
      if (attempt === 10) throw error
    }
  }
}

/** Whether nobody listens there: the kernel then answers with an ICMP error. */
async function isRefused(port: number, asked: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  const client = await Bun.udpSocket({
    hostname: asked.includes(':') ? '::1' : '127.0.0.1',
    connect: { hostname: asked, port },
    socket: {
      data: () => resolve(false),
      error: (...given) => resolve(Object(given.at(-1)).code === 'ECONNREFUSED'),
    },
  })
  client.send(Buffer.alloc(20, 1))
  const timer = setTimeout(() => resolve(false), 10_000)
  const isRefused = await promise
  clearTimeout(timer)
  client.close()
  return isRefused
}

/** Where the response comes from; null if there is none. */
async function responder(port: number, asked: string): Promise<string | null> {
  const senders: string[] = []
  const hostname = asked.includes(':') ? '::1' : '127.0.0.1'
  const client = await Bun.udpSocket({
    hostname,
    socket: { data: (_, __, ___, from) => void senders.push(from), error: () => {} },
  })
  for (let attempt = 0; attempt < 5 && senders.length === 0; attempt += 1) {
    client.send(Buffer.alloc(20, 1), port, asked)
    await until('a response', 1_000, () => senders.length > 0).catch(() => {})
  }
  client.close()
  return senders[0] ?? null
}

test('goal: where all addresses are listened on, each responds itself', async () => {
  const hosts = ['127.0.0.2', '::1', '127.0.0.3', '127.0.0.3']
  const both = await listen({ hostname: '::', hostAddresses: () => hosts })
  for (const asked of ['127.0.0.2', '127.0.0.3', '::1']) expect(await responder(both.port, asked)).toBe(asked)
  expect(await isRefused(both.port, '127.0.0.4')).toBe(true)
  both.close()
  const v4 = await listen({ hostname: '0.0.0.0', hostAddresses: () => hosts })
  expect([await responder(v4.port, '127.0.0.3'), await isRefused(v4.port, '::1')]).toEqual(['127.0.0.3', true])
  v4.close()
  const own = await listen({ hostname: '0.0.0.0' })
  expect(await responder(own.port, '127.0.0.1')).toBe('127.0.0.1')
  own.close()
})

test('goal: an address that somebody else has is left to them, and a response may come later, even too late', async () => {
  const laters: ((response: Uint8Array) => void)[] = []
  const listener = await listen({
    hostname: '0.0.0.0',
    hostAddresses: () => ['127.0.0.2', '127.0.0.3'],
    except: ['127.0.0.3'],
    respond: (query, _, later) => {
      laters.push(later)
      setTimeout(() => later(query), 5)
      return null
    },
  })
  expect(await responder(listener.port, '127.0.0.2')).toBe('127.0.0.2')
  expect(await isRefused(listener.port, '127.0.0.3')).toBe(true)
  listener.close()
  expect(laters.length).toBeGreaterThan(0)
  for (const later of laters) expect(() => later(Buffer.alloc(20))).not.toThrow()
})

test('goal: an address that comes gets a socket, one that goes loses it, and one that cannot be had is no reason to fail', async () => {
  let hosts = ['203.0.113.9', '127.0.0.2']
  const listener = await listen({ hostname: '0.0.0.0', hostAddresses: () => hosts })
  expect(await responder(listener.port, '127.0.0.2')).toBe('127.0.0.2')
  hosts = ['127.0.0.3']
  await until('the old address is given up', 15_000, () => isRefused(listener.port, '127.0.0.2'))
  expect(await responder(listener.port, '127.0.0.3')).toBe('127.0.0.3')
  // Addresses without end get no sockets without end.
  hosts = ['127.0.0.3', '127.0.0.4', '127.0.0.5', '127.0.0.6']
  await until('a socket', 15_000, async () => !(await isRefused(listener.port, '127.0.0.5')))
  expect(await responder(listener.port, '127.0.0.5')).toBe('127.0.0.5')
  expect(await isRefused(listener.port, '127.0.0.6')).toBe(true)
  listener.close()
  expect(await isRefused(listener.port, '127.0.0.3')).toBe(true)
})

test('goal: a port that one of the addresses cannot have is a failure, and the others give it back', async () => {
  const taken = await Bun.udpSocket({ hostname: '127.0.0.3', port: 0 })
  const options = { limits, port: taken.port, respond: () => null, hostAddresses: () => ['127.0.0.2', '127.0.0.3'] }
  expect(await failure(UdpListener.open({ ...options, hostname: '0.0.0.0' }))).toMatchObject({ code: 'EADDRINUSE' })
  const again = await Bun.udpSocket({ hostname: '127.0.0.2', port: taken.port })
  again.close()
  taken.close()
})

// The runtime reads a socket until it is empty: a flood held the thread for as long as it lasted, 4.4 s of 4.4 s.
test('goal: packets that come faster than they are handled let others have their turn, and those after them are answered', async () => {
  let handled = 0
  const listener = await listen({
    respond: query => {
      handled += 1
      const startedMs = performance.now()
      while (performance.now() - startedMs < 0.2);
      return query
    },
  })
  const client = await Bun.udpSocket({
    connect: { hostname: '127.0.0.1', port: listener.port },
    socket: { error: () => {} },
  })
  for (let sent = 0; sent < 200; sent += 1) client.send(Buffer.alloc(20, 1))
  let most = 0
  const startedMs = performance.now()
  const isWaited = () => most < limits.turnPacketsMax && performance.now() - startedMs < 10_000
  // On a busy machine the kernel delivers them some turns later.
  for (let turn = 0; turn < 200 || isWaited(); turn += 1) {
    const before = handled
    await new Promise<void>(resolve => setImmediate(resolve))
    most = Math.max(most, handled - before)
  }
  expect(most).toBe(limits.turnPacketsMax)
  expect(await responder(listener.port, '127.0.0.1')).toBe('127.0.0.1')
  client.close()
  listener.close()
})

test('goal: clients that go away disturb nobody', async () => {
  const listener = await listen({})
  for (let i = 0; i < 20; i += 1) {
    const client = await Bun.udpSocket({})
    client.send(Buffer.alloc(20, 1), listener.port, '127.0.0.1')
    client.close()
  }
  expect(await responder(listener.port, '127.0.0.1')).toBe('127.0.0.1')
  listener.close()
})
