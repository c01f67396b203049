// An answer is read as another implementation writes it, and no bytes of a stranger throw or take long.

import { expect, test } from 'bun:test'
import { type Answer, decode, encode } from 'dns-packet'
import { type DnsRecord, decodeAnswer, encodeQuestion } from '../../../src/base/dns/answer.codec.ts'
import { numbersFrom } from '../../rigs/dns/fuzz.ts'

const asked = { id: 0x1234, name: 'Host.example', type: 'NS', recursion: true } as const
const query = encodeQuestion(asked)

const READ: readonly DnsRecord[] = [
  { type: 'NS', name: 'host.example', ttl: 2 ** 31, data: 'ns.elsewhere.net' },
  { type: 'CNAME', name: 'host.example', ttl: 1, data: 'alias.host.example' },
  { type: 'A', name: 'ns.elsewhere.net', ttl: 60, data: '198.51.100.255' },
  { type: 'AAAA', name: '.', ttl: 0, data: '2001:db8::1' },
]
const RECORDS: readonly Answer[] = [
  { type: 'TXT', name: 'host.example', ttl: 1, data: 'left out' },
  ...READ,
  { type: 'A', name: 'ns.elsewhere.net', ttl: 60, class: 'CH', data: '192.0.2.1' },
]

function written(change: object = {}): Buffer {
  const questions = [{ name: 'hoST.example', type: 'NS' as const }]
  return encode({ type: 'response', id: asked.id, questions, authorities: [...RECORDS], ...change })
}

function message(tail: readonly number[], counts: readonly [number, number, number]): Buffer {
  const bytes = Buffer.concat([query.subarray(0, query.length - 11), Buffer.from(tail)])
  bytes.writeUInt16BE(0x8180, 2)
  for (const [at, count] of counts.entries()) bytes.writeUInt16BE(count, 6 + 2 * at)
  return bytes
}

test('goal: the question', () => {
  const { id, questions, flag_rd, additionals } = decode(query)
  expect({ id, questions, flag_rd }).toMatchObject({ id: 0x1234, flag_rd: true })
  expect(questions).toMatchObject([{ name: 'Host.example', type: 'NS', class: 'IN' }])
  expect(additionals).toMatchObject([{ type: 'OPT', name: '.', udpPayloadSize: 1232 }])
  expect(decode(encodeQuestion({ ...asked, recursion: false })).flag_rd).toBe(false)
  expect(() => encodeQuestion({ ...asked, name: `${'a'.repeat(64)}.example` })).toThrow('63 bytes')
})

test('goal: the records that are read, in each section', () => {
  const none = { code: 'NOERROR', isTruncated: false, answers: [], authorities: [], additionals: [] }
  expect(decodeAnswer(written(), query)).toEqual({ ...none, authorities: READ })
  expect(decodeAnswer(written({ answers: RECORDS, authorities: [], additionals: RECORDS }), query)).toEqual({
    ...none,
    answers: READ,
    additionals: READ,
  })
  expect(decodeAnswer(written({ flags: 0x0203 }), query)).toMatchObject({ code: 'NXDOMAIN', isTruncated: true })
  expect(decodeAnswer(written({ flags: 9 }), query)).toMatchObject({ code: 'RCODE_9', isTruncated: false })
})

test('goal: answers to another question', () => {
  const others = [
    { id: 1 },
    { type: 'query' },
    { questions: [] },
    { questions: [{ name: 'host.example', type: 'A' }] },
    { questions: [{ name: 'host.example', type: 'NS', class: 'CH' }] },
    { questions: [{ name: 'hosts.example', type: 'NS' }] },
    { questions: Array.from({ length: 2 }, () => ({ name: 'host.example', type: 'NS' })) },
  ]
  expect(others.map(change => decodeAnswer(written(change), query))).toEqual(others.map(() => 'other'))
})

// A record of NS whose data is a name that the case gives; `at` is the offset of its data.
const at = query.length - 11 + 11
const ns = (...data: number[]) => message([0, 0, 2, 0, 1, 0, 0, 0, 0, 0, data.length, ...data], [1, 0, 0])

test('goal: names that lie', () => {
  const names: Record<string, [number[], string | null]> = {
    'the root': [[0], '.'],
    'a pointer back': [[0xc0, 12], 'Host.example'],
    'a label, then a pointer': [[1, 0x61, 0xc0, 12], 'a.Host.example'],
    'a pointer to itself': [[0xc0, at], null],
    'a pointer ahead': [[0xc0, at + 2, 0], null],
    'a label type that is reserved': [[0x40, 0], null],
    'half a pointer': [[0xc0], null],
    'no end': [[1, 0x61], null],
    'something behind it': [[0, 0], null],
    'no bytes': [[], null],
  }
  for (const [what, [data, expected]] of Object.entries(names)) {
    const read = decodeAnswer(ns(...data), query)
    expect([what, read === null || read === 'other' ? read : read.answers[0]?.data]).toEqual([what, expected])
  }
  const long = (lastBytes: number) =>
    [63, 63, 63, lastBytes].flatMap(count => [count, ...Array.from({ length: count }, () => 0x61)])
  expect(decodeAnswer(ns(...long(61), 0), query)).toMatchObject({ answers: [{ type: 'NS' }] })
  expect(decodeAnswer(ns(...long(62), 0), query)).toBeNull()
})

test('goal: addresses of a wrong length, and fewer records than the header counts', () => {
  const a = (type: number, count: number) =>
    message([0, 0, type, 0, 1, 0, 0, 0, 0, 0, count, ...Array.from({ length: count }, () => 1)], [1, 0, 0])
  const read = (type: number, count: number) => decodeAnswer(a(type, count), query) !== null
  expect([read(1, 4), read(1, 3), read(1, 5), read(28, 16), read(28, 4)]).toEqual([true, false, false, true, false])
  expect(decodeAnswer(message([], [0, 0, 1]), query)).toBeNull()
  expect(decodeAnswer(ns(0).subarray(0, -1), query)).toBeNull()
})

test('goal: a chain of pointers without labels ends', () => {
  // Behind a record of an unknown type: 200 pointers, each to the one before, then a record that is named by the last.
  const start = at
  const chain = Array.from({ length: 200 }, (_, n) => {
    const target = n === 0 ? 12 : start + 2 * (n - 1)
    return [0xc0 | (target >> 8), target & 0xff]
  }).flat()
  const named = (hops: number) => {
    const target = start + 2 * (hops - 2)
    const owner = [0xc0 | (target >> 8), target & 0xff, 0, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0]
    return message([0, 0, 99, 0, 1, 0, 0, 0, 0, chain.length >> 8, chain.length & 0xff, ...chain, ...owner], [2, 0, 0])
  }
  expect(decodeAnswer(named(127), query)).toMatchObject({ answers: [{ name: 'Host.example', data: '.' }] })
  expect(decodeAnswer(named(128), query)).toBeNull()
})

test('goal: broken answers neither throw nor read as what they are not', () => {
  const draw = numbersFrom(20261130)
  const sound = written({ answers: RECORDS, additionals: RECORDS })
  let readCount = 0
  for (let round = 0; round < 20_000; round += 1) {
    const bytes = Buffer.from(sound)
    for (let changes = draw(4); changes >= 0; changes -= 1) bytes[12 + draw(bytes.length - 12)] = draw(256)
    const cut = bytes.subarray(0, draw(8) === 0 ? draw(bytes.length) : bytes.length)
    const read = decodeAnswer(cut, query)
    if (read === null || read === 'other') continue
    readCount += 1
    expect(read.answers.length).toBeLessThanOrEqual(RECORDS.length)
  }
  expect(readCount).toBeGreaterThan(1_000)
})
