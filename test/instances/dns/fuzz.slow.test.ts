// Goal: a client that sends thousands of broken messages and frames over real sockets neither ends the server's
// thread nor blocks others.

import { expect, test } from 'bun:test'
import { decode } from 'dns-packet'
import { freeRates, withDns } from '../../../scripts/rigs/dns/server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { faultsOf, hostileMessages, numbersFrom } from '../../rigs/dns/fuzz.ts'
import { askOverTcp, HOST, query } from '../../rigs/dns/query.ts'

const seed = 20261122
test('goal: 4,000 hostile packets: what is answered is answered well, and a good query after each twenty too', async () => {
  await withDns({ rates: freeRates }, async ({ port, errors }) => {
    const sent = new Map<number, Buffer>()
    let [answered, goodAnswers] = [0, 0]
    const client = await Bun.udpSocket({
      connect: { hostname: '127.0.0.1', port },
      socket: {
        data: (_, data) => {
          const answer = Buffer.from(data)
          const id = answer.readUInt16BE(0)
          if (id === goodId) {
            goodAnswers += decode(answer).answers?.length ?? 0
            return
          }
          answered += 1
          const message = sent.get(id)
          expect([id, message && faultsOf(message, answer)]).toEqual([id, []])
        },
        error: () => {},
      },
    })
    let index = 0
    for (const hostile of hostileMessages(seed, 4_000)) {
      index += 1
      const message = Buffer.from(hostile)
      if (message.length >= 2) message.writeUInt16BE(index, 0)
      sent.set(index, message)
      client.send(message)
      // As many as the kernel's buffer holds of the longest.
      if (index % 20 !== 0) continue
      const known = goodAnswers
      for (let attempt = 0; attempt < 20 && goodAnswers === known; attempt += 1) {
        client.send(query({ name: HOST, id: goodId }))
        await until('an answer', 500, () => goodAnswers > known).catch(() => {})
      }
      expect([index, goodAnswers > known]).toEqual([index, true])
    }
    client.close()
    expect(answered).toBeGreaterThan(2_000)
    expect(errors).toEqual([])
  })
}, 60_000)

const goodId = 0xffff

test('goal: 300 hostile connections, with frames that lie, stop midway or are never read, leave a place for a good one', async () => {
  await withDns({ rates: freeRates }, async ({ port, errors }) => {
    const draw = numbersFrom(seed)
    const messages = hostileMessages(seed + 1, 3_000)
    for (let index = 1; index <= 300; index += 1) {
      const parts: Buffer[] = []
      for (let frames = draw(10); frames >= 0; frames -= 1) {
        const message = messages.next().value ?? Buffer.alloc(0)
        const size = Buffer.alloc(2)
        size.writeUInt16BE(draw(4) === 0 ? draw(0x10000) : message.length)
        parts.push(size, message)
      }
      const bytes = Buffer.concat(parts)
      const socket = { data: () => {}, error: () => {} }
      // Null if the network has its share of connections already.
      const client = await Bun.connect({ hostname: '127.0.0.1', port, socket }).catch(() => null)
      client?.write(bytes.subarray(0, draw(3) === 0 ? draw(bytes.length) : bytes.length))
      // Some stay: the server has to end them, or to give their place away.
      const isLeft = draw(4) === 0
      if (!isLeft) client?.terminate()
      if (index % 20 === 0) expect([index, await askOverTcp(port, HOST, '127.0.7.7')]).toEqual([index, 1])
    }
    expect(errors).toEqual([])
  })
}, 60_000)
