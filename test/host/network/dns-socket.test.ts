import { expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from 'node:net'
import { join } from 'node:path'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { type DnsLimits, type DnsTransport, listenDns } from '../../../src/host/network/dns-socket.ts'

setDefaultTimeout(20_000)
const address = '127.0.0.1'

/** Echoes queries, the transport first; [0xff, …] gets no response, [0xfe, …] throws, [0xfd, …] gets 60,000 bytes. */
async function withServer(
  transport: DnsTransport,
  use: (port: number, seen: DnsTransport[]) => Promise<void>,
  limits: Partial<DnsLimits> = {},
) {
  const seen: DnsTransport[] = []
  const server = await listenDns({
    transport,
    address,
    port: 0,
    log: silentLogger,
    limits,
    handler: (query, { transport }) => {
      seen.push(transport)
      if (query[0] === 0xff) return null
      if (query[0] === 0xfe) throw new Error('broken')
      if (query[0] === 0xfd) return new Uint8Array(60_000)
      return query
    },
  })
  try {
    await use(server.port, seen)
  } finally {
    server.close()
  }
}

const query = (first: number, sizeBytes = 20) => new Uint8Array(sizeBytes).fill(first)
const framed = (...queries: Uint8Array[]) =>
  Buffer.concat(queries.flatMap(bytes => [Uint8Array.of(bytes.length >> 8, bytes.length & 0xff), bytes]))

async function tcp(port: number) {
  const state = { received: Buffer.alloc(0), closed: false }
  const socket = await Bun.connect({
    hostname: address,
    port,
    socket: {
      data: (_, chunk) => {
        state.received = Buffer.concat([state.received, chunk])
      },
      close: () => {
        state.closed = true
      },
    },
  })
  return { socket, state }
}

test('goal: UDP queries get responses; queries that are too short, too long, unwanted or broken get none', async () => {
  await withServer(
    'udp',
    async (port, seen) => {
      const responses: number[][] = []
      const client = await Bun.udpSocket({
        connect: { hostname: address, port },
        socket: { data: (_, bytes) => void responses.push([bytes[0] ?? 0, bytes.length]) },
      })
      for (const bytes of [query(1, 11), query(2, 101), query(0xff), query(0xfe), query(3, 12), query(4, 100)])
        client.send(bytes)
      await until('two responses', 15_000, () => responses.length >= 2)
      expect(responses).toEqual([
        [3, 12],
        [4, 100],
      ])
      expect(seen).toEqual(['udp', 'udp', 'udp', 'udp'])
      client.close()
    },
    { queryBytesMax: 100 },
  )
})

test('goal: TCP responses to whole, split and pipelined queries come in order', async () => {
  await withServer('tcp', async port => {
    const { socket, state } = await tcp(port)
    const bytes = framed(query(1), query(2, 300), query(3))
    for (const byte of bytes.subarray(0, 30)) {
      socket.write(Uint8Array.of(byte))
      await Bun.sleep(0)
    }
    socket.write(bytes.subarray(30))
    await until('all responses', 15_000, () => state.received.length === bytes.length)
    expect(state.received.equals(bytes)).toBe(true)
    socket.terminate()
  })
})

test('goal: a large response arrives whole', async () => {
  await withServer('tcp', async port => {
    const { socket, state } = await tcp(port)
    socket.write(framed(query(0xfd), query(1)))
    await until('both responses', 15_000, () => state.received.length === 60_002 + 22)
    socket.terminate()
  })
})

test('goal: frames that are too short or too long, and queries without a response, close the connection', async () => {
  await withServer(
    'tcp',
    async port => {
      for (const bytes of [framed(query(1, 11)), framed(query(1, 101)), framed(query(0xff)), framed(query(0xfe))]) {
        const { socket, state } = await tcp(port)
        socket.write(bytes)
        await until('closed', 15_000, () => state.closed)
        expect(state.received.length).toBe(0)
      }
    },
    { queryBytesMax: 100 },
  )
})

test('goal: connections, queries on each and held bytes are bounded, and a closed connection makes room for another', async () => {
  const limits = { connectionsPerNetworkMax: 2, queriesPerConnectionMax: 3, idleTimeoutMs: 60_000, queryBytesMax: 100 }
  await withServer(
    'tcp',
    async port => {
      const busy = await tcp(port)
      busy.socket.write(framed(query(1), query(2), query(3), query(4)))
      await until('closed after the third', 15_000, () => busy.state.closed)
      expect(busy.state.received.length).toBe(3 * 22)

      const [first, second] = [await tcp(port), await tcp(port)]
      const third = await tcp(port)
      await until('one too many is closed', 15_000, () => third.state.closed)
      expect([first.state.closed, second.state.closed]).toEqual([false, false])
      first.socket.end()
      await until('it is closed', 15_000, () => first.state.closed)

      let again = await tcp(port)
      // The server learns of the end a moment later.
      await until('a place came back', 15_000, async () => {
        if (again.state.closed) again = await tcp(port)
        again.socket.write(framed(query(9)))
        const { state } = again
        await until('a response, or the end', 15_000, () => state.closed || state.received.length >= 22)
        return state.received.length === 22
      })
      again.socket.write(new Uint8Array(5_000))
      await until('held too much', 15_000, () => again.state.closed)
      expect(second.state.closed).toBe(false)
      second.socket.terminate()
    },
    limits,
  )
})

test('goal: idle connections are closed and give their places back; a slow frame does not extend the time', async () => {
  await withServer(
    'tcp',
    async port => {
      const [first, second] = [await tcp(port), await tcp(port)]
      first.socket.write(Uint8Array.of(0))
      await until('idle ones are closed', 15_000, () => first.state.closed && second.state.closed)
      expect([first, second].map(({ state }) => state.received.length)).toEqual([0, 0])
      // On a busy machine it may be closed before it has asked.
      await until('a place came back', 15_000, async () => {
        const { socket, state } = await tcp(port)
        socket.write(framed(query(9)))
        await until('a response, or the end', 15_000, () => state.closed || state.received.length === 22)
        socket.terminate()
        return state.received.length === 22
      })
    },
    { connectionsPerNetworkMax: 2, idleTimeoutMs: 150 },
  )
})

test('goal: a taken port is a Fault', async () => {
  for (const transport of ['udp', 'tcp'] as const)
    await withServer(transport, async port => {
      const taken = listenDns({ transport, address, port, log: silentLogger, handler: () => null })
      expect(await failure(taken)).toMatchObject({ code: 'host.unsupported' })
    })
})

// Goal: a client that closes its port early causes an error on our socket, which once ended the process.
test('goal: clients that go away before their response disturb nobody', async () => {
  const program = `
    import { listenDns } from ${JSON.stringify(join(import.meta.dir, '../../../src/host/network/dns-socket.ts'))}
    const log = { error: () => {} }
    const server = await listenDns({ transport: 'udp', address: '127.0.0.1', port: 0, log, handler: query => query })
    for (let i = 0; i < 100; i += 1) {
      const client = await Bun.udpSocket({})
      for (let sent = 0; sent < 3; sent += 1) client.send(Buffer.alloc(20, 1), server.port, '127.0.0.1')
      client.close()
      await Bun.sleep(1)
    }
    const got = Promise.withResolvers()
    const client = await Bun.udpSocket({ socket: { data: () => got.resolve('answered') } })
    for (let i = 0; i < 10; i += 1) client.send(Buffer.alloc(20, 1), server.port, '127.0.0.1')
    process.stdout.write(await got.promise)
    process.exit(0)`
  const child = Bun.spawn([process.execPath, '-e', program], { stdout: 'pipe', stderr: 'pipe', timeout: 15_000 })
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  expect([exitCode, stdout, stderr]).toEqual([0, 'answered', ''])
})

test('goal: one network cannot hold all TCP places, and when many hold them the longest idle one makes room', async () => {
  const limits = {
    connectionsMax: 4,
    connectionsPerNetworkMax: 2,
    networkOf: (from: string) => from,
    idleTimeoutMs: 60_000,
  }
  await withServer(
    'tcp',
    async port => {
      const from = (localAddress: string) => {
        const state = { received: 0, closed: false }
        const socket = connect({ host: address, port, localAddress })
        socket.on('data', chunk => {
          state.received += chunk.length
        })
        socket.on('error', () => {})
        socket.on('close', () => {
          state.closed = true
        })
        const ask = async () => {
          const before = state.received
          socket.write(framed(query(1)))
          await until('a response', 15_000, () => state.received > before)
        }
        return { state, ask, end: () => socket.destroy() }
      }
      const greedy = [from('127.0.0.2'), from('127.0.0.2')]
      for (const client of greedy) await client.ask()
      const third = from('127.0.0.2')
      await until('the third of one network is closed', 15_000, () => third.state.closed)
      const others = [from('127.0.0.3'), from('127.0.0.4')]
      for (const client of others) await client.ask()
      // All four places are taken; the first has just asked again.
      await greedy[0]?.ask()
      const late = from('127.0.0.5')
      await late.ask()
      await until('the longest idle one is closed', 15_000, () => greedy[1]?.state.closed)
      expect([greedy[0], ...others, late].map(client => client?.state.closed)).toEqual([false, false, false, false])
      for (const client of [...greedy, ...others, late]) client.end()
    },
    limits,
  )
})
