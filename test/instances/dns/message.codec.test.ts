// Goal: queries are read by RFC 1035, 6891, 7873 and 9619, each error gets one code, and any client can read the
// responses.

import { expect, test } from 'bun:test'
import { decode } from 'dns-packet'
import { TYPE } from '../../../src/base/dns/wire.codec.ts'
import { type DnsRecord, RCODE, readQuery, writeResponse } from '../../../src/instances/dns/message.codec.ts'
import { answerQuery, TRUNCATED } from '../../../src/instances/dns/zone.plan.ts'
import { HOST, query } from '../../rigs/dns/query.ts'
import { ask, fingerprint, resolve, seen, zone } from '../../rigs/dns/zone.ts'

const packetOf = (answer: Uint8Array | null) => decode(Buffer.from(answer ?? []))
const optOf = (answer: Uint8Array | null) => packetOf(answer).additionals?.find(record => record.type === 'OPT')

/** With sections, counts and bytes of the test's choice. */
function message(counts: readonly [number, number, number, number], ...parts: (Buffer | readonly number[])[]): Buffer {
  const header = Buffer.alloc(12)
  header.writeUInt16BE(0x1234, 0)
  for (const [index, count] of counts.entries()) header.writeUInt16BE(count, 4 + 2 * index)
  return Buffer.concat([header, ...parts.map(part => Buffer.from(part))])
}
const question = query({}).subarray(12)
const option = (...bytes: number[]) => [0, 0, 41, 4, 0xd0, 0, 0, 0, 0, bytes.length >> 8, bytes.length & 0xff, ...bytes]
const record = (...name: number[]) => [...name, 0, 16, 0, 1, 0, 0, 0, 0, 0, 1, 0]
const long = (labelBytes: number, count: number) =>
  Buffer.alloc((1 + labelBytes) * count, Buffer.concat([Buffer.from([labelBytes]), Buffer.alloc(labelBytes, 97)]))
const cookie = (sizeBytes: number) => [0, 10, 0, sizeBytes, ...Array<number>(sizeBytes).fill(7)]

const MALFORMED: Record<string, Buffer> = {
  'a header alone': message([1, 0, 0, 0]),
  'no question': message([0, 0, 0, 0]),
  'no question, and an option that is no cookie': message([0, 0, 0, 1], option(0, 3, 0, 0)),
  'a question cut short': message([1, 0, 0, 0], question.subarray(0, -1)),
  'a name cut short': message([1, 0, 0, 0], question.subarray(0, 5)),
  'a question that is not counted': message([0, 0, 0, 0], question),
  'two questions': message([2, 0, 0, 0], question, question),
  '65,535 questions': message([0xffff, 0, 0, 0], question),
  'a compression pointer to itself': message([1, 0, 0, 0], [0xc0, 12, 0, 1, 0, 1]),
  'a compression pointer to the header': message([1, 0, 0, 0], [0xc0, 0, 0, 1, 0, 1]),
  'a reserved label type': message([1, 0, 0, 0], [0x41, 0, 0, 1, 0, 1]),
  'another reserved label type': message([1, 0, 0, 0], [0x80, 0, 0, 1, 0, 1]),
  'a name of 256 bytes': message([1, 0, 0, 0], long(63, 3), long(62, 1), [0, 0, 1, 0, 1]),
  'bytes behind the last record': message([1, 0, 0, 0], question, [0]),
  'a record that is not there': message([1, 0, 0, 1], question),
  '65,535 records that are not there': message([1, 0xffff, 0xffff, 0xffff], question, record(0)),
  'a record cut short': message([1, 0, 0, 1], question, record(0).slice(0, 8)),
  'a record whose data is cut short': message([1, 0, 0, 1], question, record(0).slice(0, -1)),
  'a record whose name is cut short': message([1, 0, 0, 1], question, [5, 97]),
  'a record whose name points to itself': message([1, 0, 0, 1], question, record(0xc0, 12 + question.length)),
  'a record whose name points ahead': message([1, 0, 0, 1], question, record(0xc0, 40 + question.length)),
  'a record whose name points to the header': message([1, 0, 0, 1], question, record(0xc0, 4)),
  'a record whose pointer is cut short': message([1, 0, 0, 1], question, [0xc0]),
  'a record with a reserved label type': message([1, 0, 0, 1], question, record(0x40, 0)),
  'a record with a name of 256 bytes': message([1, 0, 0, 1], question, long(63, 3), long(62, 1), record(0)),
  'two OPT records': message([1, 0, 0, 2], question, option(), option()),
  'OPT among the answers': message([1, 1, 0, 0], question, option()),
  'OPT among the authorities': message([1, 0, 1, 0], question, option()),
  'OPT with a name': message([1, 0, 0, 1], question, [1, 97], option()),
  'an option cut short': message([1, 0, 0, 1], question, option(0, 3, 0)),
  'an option longer than OPT': message([1, 0, 0, 1], question, option(0, 3, 0, 1)),
  'a cookie of 7 bytes': message([1, 0, 0, 1], question, option(...cookie(7))),
  'a cookie of 15 bytes': message([1, 0, 0, 1], question, option(...cookie(15))),
  'a cookie of 41 bytes': message([1, 0, 0, 1], question, option(...cookie(41))),
  'two questions that are not there, and a cookie': message([2, 0, 0, 1], option(...cookie(8))),
  'a label of 64 bytes': message([1, 0, 0, 0], long(64, 1), [0, 0, 1, 0, 1]),
  'a label of 126 bytes': message([1, 0, 0, 0], long(126, 1), [0, 0, 1, 0, 1]),
  'a record whose label has 64 bytes': message([1, 0, 0, 1], question, long(64, 1), record(0)),
}

for (const [what, bytes] of Object.entries(MALFORMED)) {
  test(`goal: ${what} gets FORMERR with the id, and nothing else`, () => {
    const answer = ask(bytes)
    expect(answer?.toString('hex')).toBe('123480010000000000000000')
  })
}

const READABLE: Record<string, Buffer> = {
  'a name of 255 bytes': message([1, 0, 0, 0], long(63, 3), long(61, 1), [0, 0, 1, 0, 1]),
  'the root': message([1, 0, 0, 0], [0, 0, 1, 0, 1]),
  'records that are none of ours, in every section': message(
    [1, 1, 1, 2],
    question,
    record(0xc0, 12),
    record(1, 97, 0),
    record(1, 97, 0xc0, 12),
    record(0),
  ),
  'a record behind OPT': message([1, 0, 0, 2], question, option(), record(0)),
  'an unknown option and a cookie': message([1, 0, 0, 1], question, option(0xfd, 0xe9, 0, 2, 1, 2, ...cookie(8))),
  'cookies of every length': message([1, 0, 0, 1], question, option(...cookie(16), ...cookie(40))),
  'an empty option at the end of OPT, as that which asks for the server (RFC 5001)': message(
    [1, 0, 0, 1],
    question,
    option(0, 3, 0, 0),
  ),
  'a name with a label of 63 bytes, and a record with one': message(
    [1, 0, 0, 1],
    long(63, 1),
    [0, 0, 1, 0, 1],
    long(63, 1),
    record(0),
  ),
  'nothing but a cookie': message([0, 0, 0, 1], option(...cookie(8))),
  'options of a version that is none of ours': message(
    [1, 0, 0, 1],
    question,
    [0, 0, 41, 4, 0xd0, 0, 9, 0, 0, 0, 3, 1, 2, 3],
  ),
}

for (const [what, bytes] of Object.entries(READABLE)) {
  test(`goal: ${what} can be read`, () => {
    expect(readQuery(bytes).kind).toBe('query')
  })
}

test('goal: a cookie of each length that RFC 7873 4 has is read, the client’s part and the server’s', () => {
  for (const [sizeBytes, serverBytes] of [
    [8, null],
    [16, 8],
    [40, 32],
  ] as const) {
    const read = readQuery(message([1, 0, 0, 1], question, option(...cookie(sizeBytes))))
    const given = read.kind === 'query' ? read.query.edns?.cookie : undefined
    expect([given?.client.length, given?.server?.length ?? null]).toEqual([8, serverBytes])
  }
})

test('goal: types, codes and flags have the numbers of their registry', () => {
  // Numbers of types as another implementation writes them, and its names of the codes that it reads.
  for (const [name, type] of [
    ['A', TYPE.A],
    ['NS', TYPE.NS],
    ['CNAME', TYPE.CNAME],
    ['SOA', TYPE.SOA],
    ['TXT', TYPE.TXT],
    ['AAAA', TYPE.AAAA],
    ['OPT', TYPE.OPT],
    ['SSHFP', TYPE.SSHFP],
    ['IXFR', TYPE.transferIncremental],
    ['AXFR', TYPE.transfer],
    ['ANY', TYPE.ANY],
  ] as const) {
    const read = readQuery(query({ name: 'a.example', type: name }))
    expect([name, read.kind === 'query' ? read.query.question?.type : null]).toEqual([name, type])
  }
  const read = readQuery(query({ edns: {} }))
  if (read.kind !== 'query') throw new Error(read.kind)
  const empty = { authoritative: false, truncated: false, answers: [], authorities: [], additionals: [] }
  const written = (rcode: number) => packetOf(writeResponse(read.query, { ...empty, rcode }, null))
  for (const [name, rcode] of [
    ['NOERROR', RCODE.ok],
    ['FORMERR', RCODE.formatError],
    ['SERVFAIL', RCODE.serverFailure],
    ['NXDOMAIN', RCODE.nameError],
    ['NOTIMP', RCODE.notImplemented],
    ['REFUSED', RCODE.refused],
  ] as const)
    expect([name, Reflect.get(written(rcode), 'rcode')]).toEqual([name, name])
  // RFC 6891 9: 16, whose low four bits are in the header and the rest in OPT.
  const bad = Buffer.from(writeResponse(read.query, { ...empty, rcode: RCODE.badVersion }, null))
  expect([bad.readUInt16BE(2) & 0xf, optOf(bad)?.extendedRcode]).toEqual([0, 1])
  const flagged = packetOf(
    writeResponse(read.query, { ...empty, rcode: 0, authoritative: true, recursion: true }, null),
  )
  expect([flagged.flag_qr, flagged.flag_aa, flagged.flag_tc, flagged.flag_rd, flagged.flag_ra]).toEqual([
    ...[true, true, false, true, true],
  ])
})

test('goal: DO alone decides about DO, whatever payload size the client has', () => {
  for (const size of [0, 512, 65_535])
    for (const flags of [0, 0x8000])
      expect([size, optOf(ask(query({ edns: { size, flags } })))?.flags]).toEqual([size, flags])
})

test('goal: the extended error is option 15 with two bytes (RFC 8914 2), and a reply beyond 512 bytes is a fault', () => {
  const read = readQuery(query({ edns: {} }))
  if (read.kind !== 'query') throw new Error(read.kind)
  const nothing = { rcode: 3, authoritative: false, truncated: false, answers: [], authorities: [], additionals: [] }
  const written = Buffer.from(writeResponse(read.query, { ...nothing, extendedError: 0x1234 }, null))
  expect(written.subarray(-8).toString('hex')).toBe('0006000f00021234')
  const answers: DnsRecord[] = [1, 2, 3].map(() => ({
    type: 'TXT',
    owner: { at: 12 },
    ttlSeconds: 0,
    text: 'x'.repeat(150),
  }))
  expect(() => writeResponse(read.query, { ...nothing, answers }, null)).toThrow('a response fits 512 bytes')
})

test('goal: each kind of record is on the wire as an independent parser reads it', () => {
  const read = readQuery(query({ name: 'a.example' }))
  if (read.kind !== 'query') throw new Error(read.kind)
  const owner = { at: 12 }
  const answers: DnsRecord[] = [
    { type: 'A', owner, ttlSeconds: 1, address: Uint8Array.of(192, 0, 2, 1) },
    { type: 'AAAA', owner, ttlSeconds: 70_000, address: Uint8Array.of(0x20, 1, 0xd, 0xb8, ...Array(11).fill(0), 1) },
    { type: 'NS', owner, ttlSeconds: 3, server: { label: 'ns', at: 14 } },
    { type: 'TXT', owner, ttlSeconds: 4, text: 'hello' },
  ]
  const reply = { rcode: 0, authoritative: true, truncated: false, answers, authorities: [], additionals: [] }
  const packet = packetOf(writeResponse(read.query, reply, null))
  expect(
    packet.answers?.map(answer => [
      answer.type,
      answer.name,
      Reflect.get(answer, 'class'),
      Reflect.get(answer, 'ttl'),
      String(Reflect.get(answer, 'data')),
    ]),
  ).toEqual([
    ['A', 'a.example', 'IN', 1, '192.0.2.1'],
    ['AAAA', 'a.example', 'IN', 70_000, '2001:db8::1'],
    ['NS', 'a.example', 'IN', 3, 'ns.example'],
    ['TXT', 'a.example', 'IN', 4, 'hello'],
  ])
})

test('goal: messages without a whole header, and responses, get nothing', () => {
  for (let length = 0; length < 12; length += 1) expect(ask(Buffer.alloc(length, 1))).toBeNull()
  for (const bytes of [query({}), query({ flags: 5 << 11 }), query({}).subarray(0, 13), ask(query({}))]) {
    const response = Buffer.from(bytes ?? [])
    response.writeUInt16BE(response.readUInt16BE(2) | 0x8000, 2)
    expect(ask(response)).toBeNull()
  }
})

test('goal: every opcode but QUERY is not implemented', () => {
  for (let opcode = 1; opcode < 16; opcode += 1) {
    const answer = ask(query({ flags: opcode << 11 }))
    expect([answer?.length, (answer?.readUInt16BE(2) ?? 0) & 0x780f]).toEqual([12, (opcode << 11) | 4])
  }
})

test('goal: id, RD and the question go back as they came; RA, AD, CD and Z are never set', () => {
  for (const flags of [0x0100, 0x07f0, 0]) {
    const asked = query({ name: 'aBcD2345.ACME.agents.EXAMPLE', id: 0xbeef, flags })
    const answer = ask(asked)
    expect(answer?.subarray(12, asked.length)).toEqual(asked.subarray(12))
    const { id, flag_rd, flag_ra, flag_ad, flag_cd, flag_z, flag_tc } = packetOf(answer)
    expect([id, flag_rd, flag_ra, flag_ad, flag_cd, flag_z, flag_tc]).toEqual([
      0xbeef,
      (flags & 0x0100) !== 0,
      false,
      false,
      false,
      false,
      false,
    ])
  }
})

test('goal: EDNS: OPT is answered with ours and nothing of the client’s but DO; absent it is not added', () => {
  expect(optOf(ask(query({})))).toBeUndefined()
  const ours = { type: 'OPT', udpPayloadSize: 1232, extendedRcode: 0, ednsVersion: 0, options: [] }
  expect(optOf(ask(query({ edns: {} })))).toMatchObject({ ...ours, flags: 0 })
  expect(optOf(ask(query({ edns: { flags: 0x8000, size: 65_535 } })))).toMatchObject({ ...ours, flags: 0x8000 })
  expect(optOf(ask(query({ edns: { flags: 0x7fff, size: 0 } })))).toMatchObject({ ...ours, flags: 0 })
  expect(optOf(ask(message([1, 0, 0, 1], question, option(0xfd, 0xe9, 0, 1, 9))))).toMatchObject(ours)
})

test('goal: every EDNS version but 0 gets BADVERS, with the question and the version that we speak', () => {
  for (const version of [1, 2, 255]) {
    const answer = ask(query({ edns: { version } }))
    expect([packetOf(answer).answers, packetOf(answer).questions?.length, optOf(answer)]).toMatchObject([
      [],
      1,
      { extendedRcode: 1, ednsVersion: 0 },
    ])
    expect((answer?.readUInt16BE(2) ?? 0) & 0x040f).toBe(0)
  }
})

test('goal: a cookie stands in the response’s OPT, where there is one; whoever asks for nothing else gets nothing else', () => {
  const given = Uint8Array.from({ length: 24 }, (_, i) => i)
  const respond = (bytes: Uint8Array) => {
    const read = readQuery(bytes)
    if (read.kind !== 'query') throw new Error('not a query')
    return writeResponse(read.query, answerQuery(read.query, zone, resolve), given)
  }
  const answer = respond(message([1, 0, 0, 1], question, option(...cookie(8))))
  expect(optOf(answer)).toMatchObject({ options: [{ code: 10, data: Buffer.from(given) }] })
  const alone = packetOf(respond(message([0, 0, 0, 1], option(...cookie(8)))))
  expect([Reflect.get(alone, 'rcode'), alone.questions, alone.answers, alone.additionals?.length]).toEqual([
    'NOERROR',
    [],
    [],
    1,
  ])
})

test('goal: a truncated response carries the question alone and is never longer than the query', () => {
  for (const asked of [
    query({ name: 'aBcD2345.ACME.agents.EXAMPLE' }),
    query({ name: 'aBcD2345.ACME.agents.EXAMPLE', edns: {} }),
    query({ name: 'evil.com' }),
  ]) {
    const read = readQuery(asked)
    if (read.kind !== 'query') throw new Error('not a query')
    const cut = Buffer.from(writeResponse(read.query, TRUNCATED, null))
    expect(cut.length).toBe(asked.length)
    expect(packetOf(cut)).toMatchObject({ flag_tc: true, flag_qr: true, answers: [], authorities: [] })
    const questionBytes = read.query.question?.bytes.length ?? 0
    expect(cut.toString('hex', 12, 12 + questionBytes)).toBe(asked.toString('hex', 12, 12 + questionBytes))
  }
})

test('goal: the longest response, to the longest name of the longest domain with everything asked for, fits 512 bytes', () => {
  const domain = [...Array<string>(2).fill('d'.repeat(63)), 'd'.repeat(52)].join('.')
  expect(domain.length).toBe(180)
  const longest = { ...zone, domain }
  const name = `${'n'.repeat(63)}.acme4567.${domain}`
  expect(name.length).toBe(253)
  let mostBytes = 0
  for (const type of ['A', 'AAAA', 'NS', 'SOA', 'ANY', 'SSHFP', 'MX']) {
    for (const asked of [name, `ns.${domain}`, domain]) {
      const read = readQuery(query({ name: asked, type, edns: {} }))
      if (read.kind !== 'query') throw new Error('not a query')
      const all = { v4: new Uint8Array(4), v6: new Uint8Array(16), fingerprint: new Uint8Array(32) }
      const answer = writeResponse(
        read.query,
        answerQuery(read.query, longest, () => all),
        new Uint8Array(40),
      )
      expect(Reflect.get(packetOf(answer), 'rcode')).toBe('NOERROR')
      mostBytes = Math.max(mostBytes, answer.length)
    }
  }
  expect(mostBytes).toBeGreaterThan(350)
  expect(mostBytes).toBeLessThanOrEqual(512)
})

test('goal: names of the response point into the question, whose case they share', () => {
  const answer = ask(query({ name: 'zzzz9999.ACME.Agents.Example' }))
  expect(seen(answer).authorities).toEqual(['Agents.Example SOA'])
  expect(packetOf(answer).authorities).toMatchObject([
    { data: { mname: 'ns.Agents.Example', rname: 'hostmaster.Agents.Example' } },
  ])
  // 12 of the header, the question, and 50 of the SOA, whose three names are 2, 5 and 13 bytes.
  expect(answer?.length).toBe(12 + question.length + 2 + 10 + 5 + 13 + 20)
})

test('goal: an SSHFP record is on the wire as RFC 4255 has it: algorithm 4, fingerprint type 2, 32 bytes', () => {
  const answer = ask(query({ name: HOST, type: 'SSHFP' }))
  // The answer section is last: a pointer to the question, type 44, class 1, TTL 5, then the data after its length.
  const expected = `c00c002c00010000000500220402${Buffer.from(fingerprint).toString('hex')}`
  expect(answer?.subarray(12 + question.length).toString('hex')).toBe(expected)
})

test('goal: who is answered learns why there is nothing (RFC 8914), beside a cookie, if it understands OPT', () => {
  const nothing = { rcode: 3, authoritative: false, truncated: false, answers: [], authorities: [], additionals: [] }
  const write = (edns: boolean, given: Uint8Array | null) => {
    const read = readQuery(query(edns ? { edns: {} } : {}))
    if (read.kind !== 'query') throw new Error(read.kind)
    return writeResponse(read.query, { ...nothing, recursion: true, extendedError: 15 }, given)
  }
  const options = (answer: Uint8Array) => optOf(answer)?.options.map(({ code }) => Number(code))
  expect(packetOf(write(true, null))).toMatchObject({ rcode: 'NXDOMAIN', flag_ra: true })
  expect([options(write(true, null)), options(write(true, new Uint8Array(16))), options(write(false, null))]).toEqual([
    [15],
    [10, 15],
    undefined,
  ])
})
