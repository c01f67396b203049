// Goal: answers are right and bounded for every kind of question, and no bytes whatever make the server throw, amplify or loop.

import { expect, test } from 'bun:test'
import { type Answer, type DecodedPacket, decode, encode, type RecordType } from 'dns-packet'
import fc from 'fast-check'
import { present } from '../../../src/base/assert.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { NameTableWriter, nameTableMemory } from '../../../src/instances/dns/name-table.ts'
import { startDns } from '../../../src/instances/dns/server.ts'
import {
  type DnsContext,
  type DnsTransport,
  dnsResponse,
  truncatedResponse,
  type Zone,
} from '../../../src/instances/dns/zone.codec.ts'
import { createManualClock } from '../../rigs/clock.ts'
import { skipUnless } from '../../rigs/skip.ts'
import { failure, until } from '../../rigs/until.ts'

const zone: Zone = {
  domain: 'agents.example',
  hosts: new Set(['ns', 'instances', 'inference']),
  serial: 1_800_000_000,
}
const ADDRESSES = new Map([
  ['abcd2345.acme', '10.88.0.7'],
  ['ns', '192.0.2.1'],
  ['inference', '192.0.2.2'],
])
const resolve = (name: string) => ADDRESSES.get(name) ?? null
const HOST = 'abcd2345.acme.agents.example'

type Asked = {
  name?: string
  type?: string
  id?: number
  flags?: number
  class?: string
  edns?: { size?: number; version?: number; flags?: number; count?: number }
}

function query({ name = HOST, type = 'A', id = 7, flags = 0x0100, edns, ...rest }: Asked): Buffer {
  const option = edns && {
    type: 'OPT' as const,
    name: '.',
    udpPayloadSize: edns.size ?? 1232,
    extendedRcode: 0,
    ednsVersion: edns.version ?? 0,
    flags: edns.flags ?? 0,
    flag_do: false,
    options: [],
  }
  const additionals: Answer[] = option === undefined ? [] : Array.from({ length: edns?.count ?? 1 }, () => option)
  const packet = encode({
    type: 'query',
    id,
    flags,
    questions: [{ name, type: type as RecordType, class: (rest.class ?? 'IN') as 'IN' }],
    additionals,
  })
  return packet
}

function ask(message: Uint8Array, transport: DnsTransport = 'udp', change: Partial<DnsContext> = {}): Buffer | null {
  const answer = dnsResponse(message, { zone, transport, resolve, ...change })
  return answer === null ? null : Buffer.from(answer)
}

type Seen = { rcode: string; aa: boolean; answers: string[]; authorities: string[] }

function seen(answer: Buffer | null): Seen {
  if (answer === null) throw new Error('no answer')
  const packet = decode(answer)
  const text = (record: Answer) => {
    const data = 'data' in record ? record.data : ''
    return `${record.name} ${record.type} ${typeof data === 'string' ? data : ''}`.trim()
  }
  return {
    rcode: String(Reflect.get(packet, 'rcode')),
    aa: packet.flag_aa,
    answers: (packet.answers ?? []).map(text),
    authorities: (packet.authorities ?? []).map(text),
  }
}

const found = (...answers: string[]): Seen => ({ rcode: 'NOERROR', aa: true, answers, authorities: [] })
const absent = (rcode: string): Seen => ({ rcode, aa: true, answers: [], authorities: ['agents.example SOA'] })
const REFUSED: Seen = { rcode: 'REFUSED', aa: false, answers: [], authorities: [] }

const TABLE: [string, string, Seen][] = [
  [HOST, 'A', found(`${HOST} A 10.88.0.7`)],
  ['AbCd2345.aCmE.AGENTS.example', 'A', found('AbCd2345.aCmE.AGENTS.example A 10.88.0.7')],
  [HOST, 'ANY', found(`${HOST} A 10.88.0.7`)],
  [HOST, 'AAAA', absent('NOERROR')],
  [HOST, 'MX', absent('NOERROR')],
  [HOST, 'UNKNOWN_65', absent('NOERROR')],
  [HOST, 'AXFR', REFUSED],
  [HOST, 'IXFR', REFUSED],
  ['zzzz9999.acme.agents.example', 'A', absent('NXDOMAIN')],
  ['abcd2345.other.agents.example', 'A', absent('NXDOMAIN')],
  [`deeper.${HOST}`, 'A', absent('NXDOMAIN')],
  ['acme.agents.example', 'A', absent('NOERROR')],
  ['acme.agents.example', 'NS', absent('NOERROR')],
  ['nobody.agents.example', 'A', absent('NOERROR')],
  ['ns.agents.example', 'A', found('ns.agents.example A 192.0.2.1')],
  ['instances.agents.example', 'A', absent('NOERROR')],
  ['InferencE.agents.example', 'A', found('InferencE.agents.example A 192.0.2.2')],
  ['ns.agents.example', 'AAAA', absent('NOERROR')],
  ['abcd2345.ns.agents.example', 'A', absent('NXDOMAIN')],
  ['agents.example', 'SOA', found('agents.example SOA')],
  ['agents.example', 'NS', found('agents.example NS ns.agents.example')],
  ['agents.example', 'ANY', found('agents.example SOA')],
  ['agents.example', 'A', absent('NOERROR')],
  ['agents.example', 'AXFR', REFUSED],
  ['example', 'A', REFUSED],
  ['.', 'NS', REFUSED],
  ['evil.com', 'A', REFUSED],
  ['xagents.example', 'A', REFUSED],
  ['agents.example.com', 'A', REFUSED],
]

for (const [name, type, expected] of TABLE) {
  test(`goal: ${name} ${type}: ${expected.rcode} with ${expected.answers.length} answers`, () => {
    for (const transport of ['udp', 'tcp'] as const)
      expect(seen(ask(query({ name, type }), transport))).toEqual(expected)
  })
}

test('goal: who asks for the name server gets its address too, unless there is none', () => {
  const message = query({ name: 'agents.example', type: 'NS', edns: {} })
  const glue = (answer: Buffer | null) =>
    (decode(answer ?? Buffer.alloc(0)).additionals ?? []).map(record => [
      record.type,
      record.name,
      Reflect.get(record, 'data'),
    ])
  expect(glue(ask(message))).toEqual([
    ['A', 'ns.agents.example', '192.0.2.1'],
    ['OPT', '.', undefined],
  ])
  expect(glue(ask(message, 'udp', { resolve: () => null })).map(([type]) => type)).toEqual(['OPT'])
})

test('goal: a truncated response asks for TCP, is never longer than the query, and no bytes make it throw', () => {
  const message = query({ name: 'aBcD2345.ACME.agents.EXAMPLE', id: 0xbeef, edns: {} })
  const cut: Buffer = Buffer.from(truncatedResponse(message) ?? [])
  const packet = decode(cut)
  expect([packet.id, packet.flag_tc, packet.flag_qr, packet.questions?.length, packet.answers]).toEqual([
    0xbeef,
    true,
    true,
    1,
    [],
  ])
  expect(cut.subarray(12)).toEqual(message.subarray(12, cut.length))
  expect(truncatedResponse(asResponse(message))).toBeNull()
  const isShort = (bytes: Uint8Array) => (truncatedResponse(bytes)?.length ?? 0) <= bytes.length
  fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), isShort), { seed: 20261121, numRuns: 3_000 })
  fc.assert(
    fc.property(fc.nat(message.length - 1), fc.nat(255), (at, value) => {
      const changed = Buffer.from(message)
      changed[at] = value
      return isShort(changed)
    }),
    { seed: 20261121, numRuns: 3_000 },
  )
})

test('goal: id, RD and the question go back as they came; RA is never set', () => {
  const message = query({ name: 'aBcD2345.ACME.agents.EXAMPLE', id: 0xbeef, flags: 0x0100 })
  const answer = ask(message)
  expect(answer?.subarray(12, message.length)).toEqual(message.subarray(12))
  const packet = decode(answer ?? Buffer.alloc(0))
  expect([packet.id, packet.flag_rd, packet.flag_ra, packet.flag_ad, packet.flag_z]).toEqual([
    0xbeef,
    true,
    false,
    false,
    false,
  ])
  expect(decode(ask(query({ flags: 0 })) ?? Buffer.alloc(0)).flag_rd).toBe(false)
})

test('goal: ttl is small, and so is how long an absence is believed', () => {
  const positive = decode(ask(query({})) ?? Buffer.alloc(0)).answers?.[0]
  expect(positive && 'ttl' in positive && positive.ttl).toBe(5)
  const negative = decode(ask(query({ type: 'AAAA' })) ?? Buffer.alloc(0)).authorities?.[0]
  expect(negative).toMatchObject({
    ttl: 5,
    data: { mname: 'ns.agents.example', rname: 'hostmaster.agents.example', serial: 1_800_000_000, minimum: 5 },
  })
})

test('goal: classes other than IN are refused', () => {
  for (const name of ['CH', 'HS', 'ANY']) expect(seen(ask(query({ class: name })))).toEqual(REFUSED)
  const version = query({ name: 'version.bind', type: 'TXT', class: 'CH' })
  expect(seen(ask(version))).toEqual(REFUSED)
})

test('goal: every opcode but QUERY is not implemented', () => {
  for (let opcode = 1; opcode < 16; opcode += 1) {
    const answer = ask(query({ flags: opcode << 11 }))
    expect([answer?.length, (answer?.readUInt16BE(2) ?? 0) & 0x780f]).toEqual([12, (opcode << 11) | 4])
  }
})

test('goal: answers are never answered, so two servers cannot be set on each other', () => {
  expect(ask(asResponse(query({})))).toBeNull()
  const answer = ask(query({}))
  expect(answer === null ? 'none' : ask(answer)).toBeNull()
  expect(ask(asResponse(query({ flags: 5 << 11 })))).toBeNull()
  expect(ask(asResponse(query({}).subarray(0, 13)))).toBeNull()
})

test('goal: a message without a whole header gets no answer, garbage behind one gets FORMERR with its id', () => {
  for (let length = 0; length < 12; length += 1) expect(ask(Buffer.alloc(length, 1))).toBeNull()
  const good = query({ id: 0x1234 })
  const broken = [
    good.subarray(0, 12),
    good.subarray(0, good.length - 1),
    withCounts(good, 0),
    withCounts(good, 2),
    // A compression pointer to itself, and a reserved label type.
    Buffer.concat([good.subarray(0, 12), Buffer.from([0xc0, 0x0c, 0, 1, 0, 1])]),
    Buffer.concat([good.subarray(0, 12), Buffer.from([0x41, 0, 0, 1, 0, 1])]),
    // A name of more than 255 bytes.
    Buffer.concat([
      good.subarray(0, 12),
      Buffer.alloc(64 * 5, Buffer.concat([Buffer.from([63]), Buffer.alloc(63, 97)])),
    ]),
    query({ edns: { count: 2 } }),
  ]
  for (const message of broken) {
    const answer = ask(message)
    expect([answer?.length, answer?.readUInt16BE(0), (answer?.readUInt16BE(2) ?? 0) & 0x800f]).toEqual([
      12,
      message.readUInt16BE(0),
      0x8001,
    ])
  }
})

test('goal: a label that holds a dot is not two labels', () => {
  const labels = ['abcd2345.acme', 'agents', 'example']
  const name = Buffer.concat([
    ...labels.map(label => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)])),
    Buffer.from([0, 0, 1, 0, 1]),
  ])
  expect(seen(ask(Buffer.concat([query({}).subarray(0, 12), name]))).answers).toEqual([])
})

/** The encoder clears this bit in what it takes for a query. */
function asResponse(message: Buffer): Buffer {
  const copy = Buffer.from(message)
  copy.writeUInt16BE(copy.readUInt16BE(2) | 0x8000, 2)
  return copy
}

function withCounts(message: Buffer, questions: number): Buffer {
  const copy = Buffer.from(message)
  copy.writeUInt16BE(questions, 4)
  return copy
}

test('goal: EDNS: OPT is answered with ours, absent it is not added, DO is echoed, version 1 is BADVERS', () => {
  const optOf = (answer: Buffer | null) => decode(answer ?? Buffer.alloc(0)).additionals?.[0]
  expect(optOf(ask(query({})))).toBeUndefined()
  expect(optOf(ask(query({ edns: {} })))).toMatchObject({ type: 'OPT', udpPayloadSize: 1232, flags: 0 })
  expect(optOf(ask(query({ edns: { flags: 0x8000 } })))).toMatchObject({ flag_do: true })
  const version = decode(ask(query({ edns: { version: 1 } })) ?? Buffer.alloc(0))
  expect([version.answers, optOf(ask(query({ edns: { version: 1 } })))]).toMatchObject([
    [],
    { extendedRcode: 1, ednsVersion: 0 },
  ])
})

test('goal: over UDP an answer beyond the limit is cut to none with TC; over TCP it is whole', () => {
  const label = 'a'.repeat(63)
  const long: Zone = { ...zone, domain: [label, label, 'b'.repeat(50)].join('.') }
  const message = query({ name: `zzzz9999.acme.${long.domain}` })
  const plain = ask(message, 'udp', { zone: long })
  expect([plain?.length, (plain?.readUInt16BE(2) ?? 0) & 0x0200]).toEqual([message.length, 0x0200])
  const whole = ask(message, 'tcp', { zone: long })
  expect(whole?.length).toBeGreaterThan(512)
  expect((whole?.readUInt16BE(2) ?? 0) & 0x0200).toBe(0)
  const edns = ask(query({ name: `zzzz9999.acme.${long.domain}`, edns: { size: 4096 } }), 'udp', { zone: long })
  expect((edns?.readUInt16BE(2) ?? 0) & 0x0200).toBe(0)
  // A client may not lower the limit below what every resolver takes.
  const tiny = ask(query({ edns: { size: 0 } }))
  expect(seen(tiny).answers).toEqual([`${HOST} A 10.88.0.7`])
})

test('goal: random bytes, and good queries with flipped bytes, never throw and never amplify beyond the limit', () => {
  const answerFits = (bytes: Uint8Array) => {
    const answer = ask(bytes)
    if (answer === null) return true
    return (
      answer.length <= 1232 &&
      answer.length >= 12 &&
      (answer[2] ?? 0) >= 0x80 &&
      answer.readUInt16BE(0) === (((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0))
    )
  }
  fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), answerFits), { seed: 20261120, numRuns: 3_000 })
  const base = query({ edns: {} })
  const flips = fc.array(fc.tuple(fc.nat(base.length - 1), fc.nat(255)), { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(flips, changes => {
      const message = Buffer.from(base)
      for (const [at, value] of changes) message[at] = value
      return answerFits(message)
    }),
    { seed: 20261120, numRuns: 3_000 },
  )
})

async function withServer(work: (port: number, names: NameTableWriter) => Promise<void>): Promise<void> {
  const memory = nameTableMemory(8)
  const names = new NameTableWriter(memory)
  names.set('abcd2345.acme', '10.88.0.7')
  const server = await startDns({
    address: '127.0.0.1',
    port: 0,
    domain: zone.domain,
    names: memory,
    clock: systemClock,
    random: systemRandom,
    log: silentLogger,
  })
  try {
    await work(server.port, names)
  } finally {
    await server.close()
  }
}

async function overUdp(port: number, message: Buffer, hostname = '127.0.0.1'): Promise<DecodedPacket> {
  const answers: Buffer[] = []
  const socket = await Bun.udpSocket({ hostname, socket: { data: (_, data) => void answers.push(Buffer.from(data)) } })
  // As a resolver does: a packet may be lost.
  for (let attempt = 0; attempt < 10 && answers.length === 0; attempt += 1) {
    socket.send(message, port, '127.0.0.1')
    await until('an answer', 500, () => answers.length > 0).catch(() => {})
  }
  socket.close()
  return decode(present(answers[0], 'ten attempts get an answer'))
}

test('goal: the thread sees a name the moment that it is written, and the absence the moment that it is removed', async () => {
  await withServer(async (port, names) => {
    for (let i = 0; i < 50; i += 1) {
      names.set('abcd2345.acme', `10.88.0.${i}`)
      expect((await overUdp(port, query({}))).answers).toMatchObject([{ data: `10.88.0.${i}` }])
      names.set('abcd2345.acme', null)
      const gone = await overUdp(port, query({}))
      expect([gone.answers, Reflect.get(gone, 'rcode')]).toEqual([[], 'NXDOMAIN'])
    }
  })
})

test('goal: a network over its rate is told to use TCP, where it is answered; another network is answered as before', async () => {
  await withServer(async port => {
    let [answered, truncated] = [0, 0]
    const socket = await Bun.udpSocket({
      hostname: '127.0.9.1',
      socket: {
        data: (_, data) => {
          if (decode(Buffer.from(data)).flag_tc) truncated += 1
          else answered += 1
        },
      },
    })
    const packetsMax = 100_000
    const message = query({})
    const burst = Array.from({ length: 50 }, () => [message, port, '127.0.0.1']).flat()
    for (let sent = 0; truncated === 0 && sent < packetsMax; sent += 50) {
      socket.sendMany(burst)
      await Bun.sleep(0)
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
  await withServer(async taken => {
    port = taken
    const second = startDns({
      address: '127.0.0.1',
      port,
      domain: zone.domain,
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

test('goal: a thread that ends is followed by another one on the same port, however often that takes', async () => {
  const clock = createManualClock()
  const ports: number[] = []
  const ends: ((reason: string) => void)[] = []
  const server = await startDns(
    {
      address: '127.0.0.1',
      port: 0,
      domain: zone.domain,
      names: nameTableMemory(8),
      clock,
      random: systemRandom,
      log: silentLogger,
    },
    async ({ port }) => {
      ports.push(port)
      if (ports.length === 2) throw new Error('the port is taken')
      const closed = Promise.withResolvers<string>()
      ends.push(closed.resolve)
      return { worker: { terminate: () => closed.resolve('') }, port: 5300, closed: closed.promise }
    },
  )
  for (const threads of [3, 4]) {
    ends.at(-1)?.('out of memory')
    await until('another thread', 5_000, () => {
      clock.advance(1_000)
      return ports.length === threads
    })
  }
  expect(ports).toEqual([0, 5300, 5300, 5300])
  await server.close()
})

const dig = Bun.which('dig') ?? ''

// Goal: an independent client reads what we answer.
test.skipIf(skipUnless(dig !== '', 'needs dig, of bind9-dnsutils'))(
  'goal: dig agrees, over UDP and TCP, with EDNS, cookies and mixed case',
  async () => {
    await withServer(async port => {
      const run = async (...argv: string[]) => {
        const all = [dig, '@127.0.0.1', '-p', String(port), '+time=2', '+tries=1', '+nosearch', ...argv]
        const child = Bun.spawn(all, { stdout: 'pipe', stderr: 'pipe' })
        const text = await new Response(child.stdout).text()
        expect(await child.exited).toBe(0)
        expect(text).not.toContain('WARNING: Message parser')
        return text
      }
      for (const transport of ['+notcp', '+tcp']) {
        expect((await run(transport, '+short', HOST)).trim()).toBe('10.88.0.7')
        expect((await run(transport, '+short', '+noedns', HOST.toUpperCase())).trim()).toBe('10.88.0.7')
        const absence = await run(transport, 'zzzz9999.acme.agents.example')
        expect(absence).toContain('status: NXDOMAIN')
        expect(absence).toMatch(/SOA\tns\.agents\.example\. hostmaster\.agents\.example\. \d+ 3600 600 86400 5/)
        expect(await run(transport, 'acme.agents.example')).toContain('status: NOERROR')
        expect(await run(transport, 'example.com')).toContain('status: REFUSED')
        expect(await run(transport, '+norecurse', HOST, 'AAAA')).toMatch(/flags: qr aa; .*ANSWER: 0, AUTHORITY: 1/)
      }
      expect((await run('+short', '+notcp', 'agents.example', 'NS')).trim()).toBe('ns.agents.example.')
      expect(await run('agents.example', 'AXFR')).toContain('Transfer failed')
      expect(await run('CH', 'TXT', 'version.bind')).toContain('status: REFUSED')
    })
  },
)
