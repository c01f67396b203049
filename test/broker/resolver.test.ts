// Goal: the resolver answers listed names alone and forwards nothing, whatever bytes programs send.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { createSocket, type Socket } from 'node:dgram'
import { decode, encode, type Packet } from 'dns-packet'
import { silentLogger } from '../../src/base/log.ts'
import { readQuery, writeReply } from '../../src/broker/question.codec.ts'
import { serveResolver } from '../../src/broker/resolver.ts'
import type { LogEntry } from '../../src/broker/types.ts'

const logged: Omit<LogEntry, 'atMs'>[] = []
const forwarded: string[] = []
let server: Socket
beforeAll(async () => {
  server = await serveResolver(
    { address: '127.0.0.1', port: 0 },
    {
      addressOf: name => (name === 'github.com' ? '198.18.1.7' : null),
      gateway: () => 'gateway.example.net',
      trueAddresses: async (name, type) => {
        forwarded.push(`${name} ${type}`)
        return type === 'A' ? ['10.9.9.9', '10.9.9.10'] : ['2001:db8::1']
      },
      egressLog: { add: entry => void logged.push(entry) },
      log: silentLogger,
    },
  )
})
afterAll(() => server.close())

async function ask(name: string, type: string, edns = true): Promise<Packet & { rcode?: string }> {
  const additionals = edns
    ? [
        {
          type: 'OPT' as const,
          name: '.',
          udpPayloadSize: 4096,
          flags: 0,
          ednsVersion: 0,
          extendedRcode: 0,
          flag_do: false,
          options: [],
        },
      ]
    : []
  const bytes = encode({
    type: 'query',
    id: 77,
    flags: 0x0100,
    questions: [{ name, type: type as 'A' }],
    additionals,
  } as never)
  const socket = createSocket('udp4')
  try {
    return await new Promise(resolve => {
      socket.on('message', answer => resolve(decode(Buffer.from(answer))))
      socket.send(bytes, server.address().port, '127.0.0.1')
    })
  } finally {
    socket.close()
  }
}

const dataOf = ({ answers = [] }: Packet) => answers.map(answer => ('data' in answer ? answer.data : null))

test('goal: a listed name has its synthetic address, no IPv6 address, and no other record', async () => {
  const found = await ask('GitHub.com', 'A')
  expect([found.id, found.rcode, dataOf(found)]).toEqual([77, 'NOERROR', ['198.18.1.7']])
  for (const type of ['AAAA', 'TXT', 'HTTPS', 'ANY']) {
    const none = await ask('github.com', type)
    expect([none.rcode, dataOf(none)]).toEqual(['NOERROR', []])
  }
})

test('goal: any other name does not exist, with the reason for clients that read it, and is logged', async () => {
  const found = await ask('c2VjcmV0.evil.example', 'TXT')
  expect([found.rcode, dataOf(found)]).toEqual(['NXDOMAIN', []])
  // RFC 8914: option 15, of 2 bytes: 15, blocked.
  const [opt] = found.additionals ?? []
  expect(opt !== undefined && 'options' in opt ? opt.options : []).toMatchObject([{ code: 15, data: Buffer.of(0, 15) }])
  expect((await ask('evil.example', 'A', false)).additionals).toEqual([])
  expect(logged).toContainEqual({
    verdict: 'refused',
    host: 'c2vjcmv0.evil.example',
    port: 0,
    reason: 'the policy does not list this name',
  })
  expect(forwarded).toEqual([])
})

test("goal: the gateway's name alone is resolved truly", async () => {
  expect(dataOf(await ask('gateway.example.net', 'A'))).toEqual(['10.9.9.9', '10.9.9.10'])
  expect(dataOf(await ask('gateway.example.net', 'AAAA'))).toEqual(['2001:db8::1'])
  expect(dataOf(await ask('gateway.example.net', 'TXT'))).toEqual([])
  expect((await ask('x.gateway.example.net', 'A')).rcode).toBe('NXDOMAIN')
  expect(forwarded).toEqual(['gateway.example.net A', 'gateway.example.net AAAA'])
})

test('goal: bytes that are no query get no answer, and an answer fits 512 bytes', () => {
  const query = encode({ type: 'query', id: 1, questions: [{ name: 'a.example', type: 'A' }] })
  for (let length = 0; length < query.length; length += 1)
    expect(readQuery(Buffer.from(query.subarray(0, length)))).toBeNull()
  const response = Buffer.from(query)
  response.writeUInt16BE(0x8000, 2)
  expect(readQuery(response)).toBeNull()
  const pointer = Buffer.from(query)
  pointer[12] = 0xc0
  expect(readQuery(pointer)).toBeNull()
  const longest = `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.${'d'.repeat(61)}`
  const read = readQuery(
    Buffer.from(
      encode({
        type: 'query',
        id: 1,
        questions: [{ name: longest, type: 'AAAA' }],
        additionals: [{ type: 'OPT', name: '.' } as never],
      }),
    ),
  )
  if (read === null) throw new Error('it is a query')
  const addresses = Array.from({ length: 8 }, () => new Uint8Array(16))
  expect(writeReply(read, { rcode: 0, addresses, extendedError: 15 }).length).toBeLessThanOrEqual(512)
})
