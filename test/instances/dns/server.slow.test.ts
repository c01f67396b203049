// Goal: over real sockets names come and go with the table, and floods of one network leave others alone.

import { expect, test } from 'bun:test'
import { type DecodedPacket, decode } from 'dns-packet'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { withDns } from '../../../scripts/rigs/dns/server.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { nameTableMemory } from '../../../src/instances/dns/name-table.ts'
import { startDns } from '../../../src/instances/dns/server.ts'
import { query } from '../../rigs/dns/query.ts'

/** The first whole answer. */
async function overUdp(port: number, message: Buffer, hostname = '127.0.0.1'): Promise<DecodedPacket> {
  const answers: DecodedPacket[] = []
  const socket = await Bun.udpSocket({
    hostname,
    socket: {
      data: (_, data) => {
        const answer = decode(Buffer.from(data))
        // The window's total was not used up.
        if (!answer.flag_tc) answers.push(answer)
      },
      error: () => {},
    },
  })
  // As a resolver does: a packet may be lost.
  for (let attempt = 0; attempt < 10 && answers.length === 0; attempt += 1) {
    socket.send(message, port, '127.0.0.1')
    await until('an answer', 500, () => answers.length > 0).catch(() => {})
  }
  socket.close()
  return present(answers[0], 'ten attempts get an answer')
}

test('goal: the thread sees a name the moment that it is written, and the absence the moment that it is removed', async () => {
  await withDns({}, async ({ port, names }) => {
    for (let i = 0; i < 50; i += 1) {
      names.set('abcd2345.acme', { v4: `10.88.0.${i}`, v6: null })
      expect((await overUdp(port, query({}))).answers).toMatchObject([{ data: `10.88.0.${i}` }])
      names.remove('abcd2345.acme')
      const gone = await overUdp(port, query({}))
      expect([gone.answers, Reflect.get(gone, 'rcode')]).toEqual([[], 'NXDOMAIN'])
    }
  })
})

test('goal: a network over its rate is told to use TCP, where it is answered; another network is answered as before', async () => {
  await withDns({}, async ({ port }) => {
    let [answered, truncated] = [0, 0]
    const socket = await Bun.udpSocket({
      hostname: '127.0.9.1',
      socket: {
        error: () => {},
        data: (_, data) => {
          if (decode(Buffer.from(data)).flag_tc) truncated += 1
          else answered += 1
        },
      },
    })
    // Packets are lost while the server's thread waits for a processor, so that time limits them, not a count.
    const endMs = performance.now() + 15_000
    const message = query({})
    const burst = Array.from({ length: 50 }, () => [message, port, '127.0.0.1']).flat()
    while (truncated === 0 && performance.now() < endMs) {
      socket.sendMany(burst)
      await Bun.sleep(1)
    }
    expect([answered > 0, truncated > 0]).toEqual([true, true])
    expect((await overUdp(port, query({}), '127.0.8.1')).answers).toMatchObject([{ data: '10.88.0.7' }])
    const received = Promise.withResolvers<Buffer>()
    const client = await Bun.connect({
      hostname: '127.0.0.1',
      port,
      socket: { data: (_, chunk) => received.resolve(Buffer.from(chunk)) },
    })
    client.write(Buffer.concat([Uint8Array.of(message.length >> 8, message.length & 0xff), message]))
    expect(decode((await received.promise).subarray(2)).answers).toMatchObject([{ data: '10.88.0.7' }])
    client.terminate()
    socket.close()
  })
})

test('goal: a port that is taken is a Fault, and a closed server gives its port back', async () => {
  let port = 0
  await withDns({}, async taken => {
    port = taken.port
    const second = startDns({
      address: '127.0.0.1',
      port,
      domain: 'agents.example',
      names: nameTableMemory(8),
      clock: systemClock,
      random: systemRandom,
      log: silentLogger,
    })
    expect(await failure(second)).toMatchObject({ code: 'host.unsupported' })
  })
  const again = await Bun.udpSocket({ hostname: '127.0.0.1', port })
  again.close()
})

test('goal: a thread that ends is followed by another one for its transport on the same port, however often that takes', async () => {
  const clock = createManualClock()
  const started: string[] = []
  let attempts = 0
  const ends = new Map<string, (reason: string) => void>()
  const server = await startDns(
    {
      address: '127.0.0.1',
      port: 0,
      domain: 'agents.example',
      names: nameTableMemory(8),
      clock,
      random: systemRandom,
      log: silentLogger,
    },
    async ({ transport, port }) => {
      started.push(`${transport} ${port}`)
      // TCP cannot have the port that UDP got at first; later one thread is not started at once.
      attempts += 1
      if ([2, 5].includes(attempts)) throw new Error('the port is taken')
      const closed = Promise.withResolvers<string>()
      ends.set(transport, closed.resolve)
      return {
        worker: { terminate: () => closed.resolve('') },
        port: port || 5300,
        showTexts: async () => {},
        closed: closed.promise,
      }
    },
  )
  expect(started.splice(0)).toEqual(['udp 0', 'tcp 5300', 'udp 0', 'tcp 5300'])
  for (const [transport, count] of [
    ['udp', 2],
    ['tcp', 1],
    ['tcp', 1],
    ['udp', 1],
  ] as const) {
    ends.get(transport)?.('out of memory')
    await until('another thread', 15_000, () => {
      clock.advance(1_000)
      return started.length === count
    })
    expect(started.splice(0)).toEqual(Array(count).fill(`${transport} 5300`))
  }
  await server.close()
})

test('goal: a UDP port whose TCP port is taken is given back with the failure', async () => {
  const taken = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data: () => {} } })
  await expect(withDns({ port: taken.port }, async () => {})).rejects.toMatchObject({ code: 'host.unsupported' })
  const again = await Bun.udpSocket({ hostname: '127.0.0.1', port: taken.port })
  again.close()
  taken.stop(true)
})
