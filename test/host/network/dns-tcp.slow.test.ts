// Goal: a client that reads slowly, or not at all, loses no response that it may have and keeps nothing that it may
// not.

import { expect, test } from 'bun:test'
import { connect } from 'node:net'
import { until } from '../../../scripts/rigs/until.ts'
import { listenTcp, type TcpLimits } from '../../../src/host/network/dns-tcp.ts'

const base: TcpLimits = {
  queryBytesMax: 4_096,
  connectionsMax: 4,
  connectionsPerNetworkMax: 2,
  networkOf: address => address,
  queriesPerConnectionMax: 10_000,
  idleTimeoutMs: 60_000,
}
const responseBytes = 60_000
const query = Buffer.concat([Uint8Array.of(0, 12), Buffer.alloc(12, 1)])

async function withListener(
  limits: Partial<TcpLimits>,
  work: (rig: { port: number; answered: () => number }) => Promise<void>,
): Promise<void> {
  let answered = 0
  const respond = () => {
    answered += 1
    return new Uint8Array(responseBytes)
  }
  const listener = listenTcp({ hostname: '127.0.0.1', port: 0, limits: { ...base, ...limits }, respond })
  try {
    await work({ port: listener.port, answered: () => answered })
  } finally {
    listener.stop(true)
  }
}

/** A client that sends queries and reads nothing until the test says so. */
function lazyClient(port: number, queries: number) {
  const state = { bytes: 0, isOver: false }
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
  socket.pause()
  socket.on('error', () => {})
  for (const event of ['end', 'close'] as const)
    socket.on(event, () => {
      state.isOver = true
    })
  for (let i = 0; i < queries; i += 100)
    socket.write(Buffer.concat(Array<Buffer>(Math.min(100, queries - i)).fill(query)))
  const read = () => {
    socket.on('data', chunk => {
      state.bytes += chunk.length
    })
    socket.resume()
  }
  return { state, read, socket }
}

/** How many responses are begun before a client that does not read is given no more. */
async function begunFor(port: number, answered: () => number): Promise<number> {
  const { socket } = lazyClient(port, 1_000)
  let [known, unchanged] = [0, 0]
  await until('the last response to be begun', 10_000, () => {
    unchanged = answered() === known ? unchanged + 1 : 0
    known = answered()
    return known > 0 && unchanged > 20
  })
  socket.destroy()
  return known
}

test('goal: a client that does not read is given no more, and one that reads slowly gets its last response whole', async () => {
  let begun = 0
  await withListener({}, async ({ port, answered }) => {
    begun = await begunFor(port, answered)
    // The kernel's buffers of both sides, and one more.
    expect(begun).toBeLessThan(500)
  })
  // At one of these limits a response has gone out in part: the rest of it was lost once.
  for (let queriesPerConnectionMax = begun - 3; queriesPerConnectionMax <= begun + 3; queriesPerConnectionMax += 1) {
    await withListener({ queriesPerConnectionMax }, async ({ port, answered }) => {
      const client = lazyClient(port, queriesPerConnectionMax)
      await until('responses', 10_000, () => answered() >= Math.min(begun - 3, queriesPerConnectionMax))
      client.read()
      await until('the end', 10_000, () => client.state.isOver)
      expect(client.state.bytes).toBe(queriesPerConnectionMax * (responseBytes + 2))
      client.socket.destroy()
    })
  }
}, 20_000)

test('goal: a client that does not read loses its place when its time is over', async () => {
  await withListener({ idleTimeoutMs: 200, connectionsPerNetworkMax: 1 }, async ({ port, answered }) => {
    let { socket, state } = lazyClient(port, 1_000)
    // On a busy machine its time may be over before it is served.
    await until('responses', 15_000, () => {
      if (state.isOver && answered() <= 10) ({ socket, state } = lazyClient(port, 1_000))
      return answered() > 10
    })
    // The one place of its network is free again.
    let another = lazyClient(port, 1)
    another.read()
    await until('a place', 10_000, () => {
      if (another.state.bytes > 0) return true
      if (another.state.isOver) {
        another = lazyClient(port, 1)
        another.read()
      }
      return false
    })
    expect(another.state.bytes).toBeGreaterThan(0)
    socket.destroy()
    another.socket.destroy()
  })
})

test('goal: a client that says at once that it sends no more gets its response', async () => {
  await withListener({}, async ({ port }) => {
    const client = lazyClient(port, 1)
    client.socket.end()
    client.read()
    await until('the end', 15_000, () => client.state.isOver)
    expect(client.state.bytes).toBe(responseBytes + 2)
  })
})
