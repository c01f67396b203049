// Goal: answers are right and bounded for every kind of question, and no bytes whatever make the server throw, amplify or loop.

import { expect, test } from 'bun:test'
import { type Answer, decode } from 'dns-packet'
import fc from 'fast-check'
import {
  type DnsContext,
  type DnsTransport,
  dnsResponse,
  truncatedResponse,
  type Zone,
} from '../../../src/instances/dns/zone.codec.ts'
import { HOST, query } from '../../rigs/dns-query.ts'

const zone: Zone = {
  domain: 'agents.example',
  hosts: new Set(['ns', 'instances', 'inference']),
  serial: 1_800_000_000,
}
const fingerprint = Uint8Array.from({ length: 32 }, (_, at) => 0xe0 + at)
const NAMES = new Map([
  ['abcd2345.acme', { address: '10.88.0.7', fingerprint }],
  ['booting2.acme', { address: '10.88.0.8', fingerprint: null }],
  ['ns', { address: '192.0.2.1', fingerprint: null }],
  ['inference', { address: '192.0.2.2', fingerprint: null }],
])
const resolve = (name: string) => NAMES.get(name) ?? null

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
    const value = record.type === 'SSHFP' ? Object.values(record.data).join(' ') : data
    return `${record.name} ${record.type} ${typeof value === 'string' ? value : ''}`.trim()
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
  [HOST, 'SSHFP', found(`${HOST} SSHFP 4 2 ${Buffer.from(fingerprint).toString('hex').toUpperCase()}`)],
  ['booting2.acme.agents.example', 'SSHFP', absent('NOERROR')],
  ['ns.agents.example', 'SSHFP', absent('NOERROR')],
  ['agents.example', 'SSHFP', absent('NOERROR')],
  ['zzzz9999.acme.agents.example', 'SSHFP', absent('NXDOMAIN')],
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

test('goal: an SSHFP record is on the wire as RFC 4255 has it: algorithm 4, fingerprint type 2, 32 bytes', () => {
  const answer = ask(query({ type: 'SSHFP' }))
  if (answer === null) throw new Error('no answer')
  // The answer section ends the message: name, type 44, class 1, TTL 5, then the data behind its length.
  const record = answer.subarray(answer.length - 44)
  expect(record.toString('hex')).toBe(`002c00010000000500220402${Buffer.from(fingerprint).toString('hex')}`)
})
