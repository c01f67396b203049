// The fetch proxy of build VMs: its users, times, destinations and limits. Real sockets on loopback; the test
// resolves names.

import { afterEach, describe, expect, test } from 'bun:test'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { until } from '../../../scripts/rigs/until.ts'
import { createLogger } from '../../../src/base/log.ts'
import { FetchProxy, type FetchProxyDeps } from '../../../src/builds/fetch/proxy.ts'
import { isPublicAddress } from '../../../src/linux/net/public-address.plan.ts'

const undo: (() => void)[] = []
afterEach(() => {
  for (const act of undo.splice(0)) act()
})

/** Answers each connection with what it gets, after a greeting. */
async function echoServer(): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = []
  const server: Server = createServer(socket => {
    sockets.push(socket)
    socket.on('error', () => {})
    socket.write('hello ')
    socket.pipe(socket)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  undo.push(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const address = server.address()
  return { port: typeof address === 'object' && address !== null ? address.port : 0, sockets }
}

async function startProxy(changes: Partial<FetchProxyDeps> = {}) {
  const logged: string[] = []
  const log = createLogger({ level: 'debug', sink: text => logged.push(text), nowMs: () => 0 })
  const deps = { hostname: '127.0.0.1', port: 0, hosts: [], ownNetworks: ['10.88.0.0/24'], log, ...changes }
  const proxy = new FetchProxy(deps)
  undo.push(() => proxy.stop())
  return { proxy, logged }
}

const visitor = { buildId: 'b1', address: '127.0.0.1', bytesMax: 1_000_000 }

async function portOf(proxy: FetchProxy): Promise<number> {
  await until('the proxy listens', 20_000, () => (proxy.listening?.port ?? 0) > 0)
  return proxy.listening?.port ?? 0
}

/** All that comes back until the other side ends or closes. */
function exchange(port: number, parts: readonly string[], from = '127.0.0.1'): Promise<string> {
  return new Promise(resolve => {
    let text = ''
    const socket = connect({ port, host: '127.0.0.1', localAddress: from })
    socket.on('data', chunk => {
      text += chunk.toString()
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(text))
    socket.on('connect', () => {
      for (const part of parts) socket.write(part)
      socket.end()
    })
  })
}

const status = (answer: string) => answer.split(' ')[1] ?? 'closed'

describe('whereto', () => {
  test('goal: a host of the list is reached, with what was sent at once and what comes later; the end of one side is passed on', async () => {
    const { port } = await echoServer()
    const { proxy, logged } = await startProxy({ hosts: [{ host: 'git.example', port, address: '127.0.0.1' }] })
    proxy.open(visitor)
    const answer = await exchange(await portOf(proxy), [
      `CONNECT git.example:${port} HTTP/1.1\r\nHost: x\r\n\r\nearly`,
      ' late',
    ])
    expect(answer).toBe('HTTP/1.1 200 Connection established\r\n\r\nhello early late')
    const upper = await exchange(await portOf(proxy), [`CONNECT GIT.Example.:${port} HTTP/1.1\r\n\r\n`])
    expect(status(upper)).toBe('200')
    expect(logged.some(text => text.includes('git.example') && text.includes('b1'))).toBe(true)
    expect(logged.join()).not.toContain('early')
  })

  test('goal: everything that is not exactly a host and port of the list is refused, and nothing is looked up for it', async () => {
    const { port } = await echoServer()
    const asked: string[] = []
    const { proxy } = await startProxy({
      hosts: [{ host: 'git.example', port, address: '127.0.0.1' }],
      resolve: async host => {
        asked.push(host)
        return ['8.8.8.8']
      },
    })
    proxy.open(visitor)
    const at = await portOf(proxy)
    const table: [string, string][] = [
      [`CONNECT other.example:${port} HTTP/1.1`, '403'],
      [`CONNECT git.example:${port + 1} HTTP/1.1`, '403'],
      [`CONNECT xgit.example:${port} HTTP/1.1`, '403'],
      [`CONNECT git.example.evil.example:${port} HTTP/1.1`, '403'],
      [`CONNECT 127.0.0.1:${port} HTTP/1.1`, '403'],
      [`CONNECT [::1]:${port} HTTP/1.1`, '400'],
      [`CONNECT git.example HTTP/1.1`, '400'],
      [`CONNECT git.example:${port}@evil.example:80 HTTP/1.1`, '400'],
      [`CONNECT git.example:${port} HTTP/2`, '400'],
      [`GET http://git.example/ HTTP/1.1`, '405'],
      ['hello', '405'],
    ]
    for (const [line, expected] of table) {
      expect([line, status(await exchange(at, [`${line}\r\nHost: git.example\r\n\r\n`]))]).toEqual([line, expected])
    }
    expect(asked).toEqual([])
  })

  test('goal: a name that leads to a private address is refused, in whatever company, unless the list names the address', async () => {
    const { port } = await echoServer()
    const { proxy } = await startProxy({
      hosts: [
        { host: 'git.example', port, address: null },
        { host: 'named.example', port, address: '127.0.0.1' },
      ],
      resolve: async () => answers,
    })
    let answers: readonly string[] = []
    proxy.open(visitor)
    const at = await portOf(proxy)
    const tried = async (addresses: readonly string[]) => {
      answers = addresses
      return status(await exchange(at, [`CONNECT git.example:${port} HTTP/1.1\r\n\r\n`]))
    }
    for (const address of [
      '127.0.0.1',
      '10.1.1.1',
      '169.254.169.254',
      '100.64.0.1',
      '192.168.1.1',
      '::1',
      'fd00::1',
      '::ffff:127.0.0.1',
      '0.0.0.0',
    ]) {
      expect([address, await tried([address])]).toEqual([address, '403'])
      expect([address, await tried(['8.8.8.8', address])]).toEqual([address, '403'])
    }
    expect(await tried([])).toBe('403')
    expect(status(await exchange(at, [`CONNECT named.example:${port} HTTP/1.1\r\n\r\n`]))).toBe('200')
  })

  test('goal: names that are not known and hosts that are not up are said to be so', async () => {
    const { proxy } = await startProxy({
      hosts: [
        { host: 'gone.example', port: 443, address: null },
        { host: 'down.example', port: 1, address: '127.0.0.1' },
      ],
      resolve: () => Promise.reject(new Error('ENOTFOUND')),
    })
    proxy.open(visitor)
    const at = await portOf(proxy)
    expect(status(await exchange(at, ['CONNECT gone.example:443 HTTP/1.1\r\n\r\n']))).toBe('502')
    expect(status(await exchange(at, ['CONNECT down.example:1 HTTP/1.1\r\n\r\n']))).toBe('502')
  })

  test('goal: each network that is not globally reachable counts as private, and so do the addresses of this host', () => {
    const own = ['10.88.0.0/24', '8.8.4.4', '2606:4700::1']
    const table: [string, boolean][] = [
      ...['8.8.8.8', '1.1.1.1', '172.32.0.1', '100.128.0.1', '2606:4700::2', '2a00::1'].map((a): [string, boolean] => [
        a,
        true,
      ]),
      ...[
        ...[
          '0.1.2.3',
          '10.0.0.1',
          '100.64.0.1',
          '100.127.255.255',
          '127.9.9.9',
          '169.254.1.1',
          '172.16.0.1',
          '172.31.255.255',
        ],
        ...[
          '192.0.0.1',
          '192.0.2.1',
          '192.168.0.1',
          '198.18.0.1',
          '198.19.255.255',
          '198.51.100.1',
          '203.0.113.1',
          '224.0.0.1',
        ],
        ...[
          '255.255.255.255',
          '10.88.0.7',
          '8.8.4.4',
          '::',
          '::1',
          'fe80::1',
          'fe80::1%eth0',
          'fc00::1',
          'fd12::1',
          'ff02::1',
        ],
        ...['::ffff:8.8.8.8', '64:ff9b::808:808', '2001:db8::1', '2001::1', '2002:808:808::1', '2606:4700::1', 'x', ''],
      ].map((a): [string, boolean] => [a, false]),
    ]
    for (const [address, expected] of table)
      expect([address, isPublicAddress(address, own)]).toEqual([address, expected])
  })
})

describe('who and when', () => {
  test('goal: only the address of a build that may fetch now is served', async () => {
    const { port } = await echoServer()
    const { proxy } = await startProxy({ hosts: [{ host: 'git.example', port, address: '127.0.0.1' }] })
    expect(proxy.listening).toBeNull()
    proxy.open({ ...visitor, address: '127.0.0.2' })
    const at = await portOf(proxy)
    const request = [`CONNECT git.example:${port} HTTP/1.1\r\n\r\n`]
    expect(await exchange(at, request)).toBe('')
    expect(status(await exchange(at, request, '127.0.0.2'))).toBe('200')
    proxy.close('b1')
    expect(proxy.listening).toBeNull()
    expect(await exchange(at, request, '127.0.0.2')).toBe('')
  })

  test('goal: the end of fetching ends the connections that are open, and those of another build stay', async () => {
    const { port, sockets } = await echoServer()
    const { proxy } = await startProxy({ hosts: [{ host: 'git.example', port, address: '127.0.0.1' }] })
    proxy.open(visitor)
    proxy.open({ ...visitor, buildId: 'b2', address: '127.0.0.2' })
    const at = await portOf(proxy)
    const opened = (from: string) =>
      new Promise<Socket>(resolve => {
        const socket = connect({ port: at, host: '127.0.0.1', localAddress: from })
        socket.on('error', () => {})
        socket.on('connect', () => socket.write(`CONNECT git.example:${port} HTTP/1.1\r\n\r\n`))
        socket.on('data', chunk => {
          if (chunk.toString().includes('hello')) resolve(socket)
        })
        undo.push(() => socket.destroy())
      })
    const [first, second] = await Promise.all([opened('127.0.0.1'), opened('127.0.0.2')])
    proxy.close('b1')
    await until('the first is closed', 20_000, () => first.destroyed)
    expect(second.destroyed).toBe(false)
    await until('its other end is closed, too', 20_000, () => sockets.filter(socket => socket.destroyed).length === 1)
  })
})

describe('how much', () => {
  test('goal: what a build may fetch is counted both ways, over all its connections, and then it is over', async () => {
    const { port } = await echoServer()
    const { proxy } = await startProxy({ hosts: [{ host: 'git.example', port, address: '127.0.0.1' }] })
    proxy.open({ ...visitor, bytesMax: 100_000 })
    const at = await portOf(proxy)
    const request = `CONNECT git.example:${port} HTTP/1.1\r\n\r\n`
    const small = await exchange(at, [request, 'x'.repeat(20_000)])
    expect(small.length).toBeGreaterThan(20_000)
    const large = await exchange(at, [request, 'x'.repeat(200_000)])
    expect(large.length).toBeLessThan(100_000)
    expect(await exchange(at, [request])).toBe('')
  })

  test('goal: a request without an end is given up, by its length', async () => {
    const { proxy } = await startProxy({ hosts: [] })
    proxy.open(visitor)
    expect(await exchange(await portOf(proxy), ['CONNECT x:1 HTTP/1.1\r\n', 'a'.repeat(20_000)])).toBe('')
  })

  test('goal: only so many connections of one build are open at a time', async () => {
    const { port } = await echoServer()
    const { proxy } = await startProxy({ hosts: [{ host: 'git.example', port, address: '127.0.0.1' }] })
    proxy.open(visitor)
    const at = await portOf(proxy)
    const idle = Array.from({ length: 70 }, () => connect({ port: at, host: '127.0.0.1' }).on('error', () => {}))
    undo.push(() => {
      for (const socket of idle) socket.destroy()
    })
    await until(
      'six are refused',
      20_000,
      () => idle.filter(socket => socket.destroyed || socket.readableEnded).length >= 6,
    )
    expect(idle.filter(socket => !socket.destroyed && !socket.readableEnded).length).toBeLessThanOrEqual(64)
  })
})
