// Goal: every kind of question gets the records that RFC 1034, 2308, 8020 and 8482 have for it.

import { expect, test } from 'bun:test'
import { decode } from 'dns-packet'
import { HOST, query } from '../../rigs/dns/query.ts'
import { ask, fingerprint, resolve, type Seen, seen, zone } from '../../rigs/dns/zone.ts'

const found = (...answers: string[]): Seen => ({ rcode: 'NOERROR', aa: true, answers, authorities: [] })
const absent = (rcode: string): Seen => ({ rcode, aa: true, answers: [], authorities: ['agents.example SOA'] })
const REFUSED: Seen = { rcode: 'REFUSED', aa: false, answers: [], authorities: [] }

const proofs = (name: string) => found(`${name} TXT second`, `${name} TXT third`)

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
  ['dual2345.acme.agents.example', 'A', found('dual2345.acme.agents.example A 10.88.0.9')],
  ['dual2345.acme.agents.example', 'AAAA', found('dual2345.acme.agents.example AAAA 2001:db8::9')],
  ['dual2345.acme.agents.example', 'ANY', found('dual2345.acme.agents.example A 10.88.0.9')],
  ['sixo2345.acme.agents.example', 'A', absent('NOERROR')],
  ['sixo2345.acme.agents.example', 'AAAA', found('sixo2345.acme.agents.example AAAA 2001:db8::a')],
  ['sixo2345.acme.agents.example', 'ANY', found('sixo2345.acme.agents.example AAAA 2001:db8::a')],
  [HOST, 'MX', absent('NOERROR')],
  // An authority that asks who may issue (RFC 8659) finds no rule, and goes on to ask above.
  ['instances.agents.example', 'CAA', absent('NOERROR')],
  ['agents.example', 'CAA', absent('NOERROR')],
  // A proof under way: at its own name alone, the newest two, in any case of letters.
  ['_acme-challenge.instances.agents.example', 'TXT', proofs('_acme-challenge.instances.agents.example')],
  ['_ACME-challenge.Instances.agents.example', 'TXT', proofs('_ACME-challenge.Instances.agents.example')],
  ['_acme-challenge.instances.agents.example', 'A', absent('NOERROR')],
  ['_acme-challenge.instances.agents.example', 'CAA', absent('NOERROR')],
  ['_acme-challenge.inference.agents.example', 'TXT', absent('NXDOMAIN')],
  ['x._acme-challenge.instances.agents.example', 'TXT', absent('NXDOMAIN')],
  ['instances.agents.example', 'TXT', absent('NOERROR')],
  [HOST, 'OPT', absent('NOERROR')],
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
  ['ns.agents.example', 'AAAA', found('ns.agents.example AAAA 2001:db8::1')],
  ['inference.agents.example', 'AAAA', absent('NOERROR')],
  ['nobody.agents.example', 'ANY', absent('NOERROR')],
  ['zzzz9999.acme.agents.example', 'ANY', absent('NXDOMAIN')],
  ['abcd2345.ns.agents.example', 'A', absent('NXDOMAIN')],
  ['agents.example', 'SOA', found('agents.example SOA')],
  ['agents.example', 'NS', found('agents.example NS ns.agents.example')],
  ['agents.example', 'ANY', found('agents.example SOA')],
  ['agents.example', 'A', absent('NOERROR')],
  ['agents.example', 'AAAA', absent('NOERROR')],
  ['agents.example', 'AXFR', REFUSED],
  ['example', 'A', REFUSED],
  ['.', 'NS', REFUSED],
  ['evil.com', 'A', REFUSED],
  ['xagents.example', 'A', REFUSED],
  ['agents.example.com', 'A', REFUSED],
]

for (const [name, type, expected] of TABLE) {
  test(`goal: ${name} ${type}: ${expected.rcode} with ${expected.answers.length} answers`, () => {
    expect(seen(ask(query({ name, type })))).toEqual(expected)
  })
}

// RFC 8020: NXDOMAIN says that nothing stands below a name, so none above a name that there is may get it.
test('goal: what is above a name that there is exists too, and nobody learns from it which organizations exist', () => {
  const responses = (name: string) =>
    ['A', 'AAAA', 'NS', 'SOA', 'TXT', 'ANY', 'SSHFP'].map(type => seen(ask(query({ name, type }))))
  expect(responses('acme.agents.example')).toEqual(responses('nobody.agents.example'))
  expect(responses('zzzz9999.acme.agents.example')).toEqual(responses('zzzz9999.nobody.agents.example'))
  expect(responses(`deeper.${HOST}`)).toEqual(responses('deeper.zzzz9999.nobody.agents.example'))
  for (const name of ['acme.agents.example', 'agents.example', HOST])
    for (const { rcode } of responses(name)) expect([name, rcode]).toEqual([name, 'NOERROR'])
})

test('goal: who asks for the name server gets its addresses too, those that there are', () => {
  const message = query({ name: 'agents.example', type: 'NS', edns: {} })
  const glue = (change: Parameters<typeof ask>[1] = {}) =>
    (decode(ask(message, change) ?? Buffer.alloc(0)).additionals ?? []).map(record =>
      [record.type, record.name, Reflect.get(record, 'data')].join(' ').trim(),
    )
  expect(glue()).toEqual(['A ns.agents.example 192.0.2.1', 'AAAA ns.agents.example 2001:db8::1', 'OPT .'])
  expect(glue({ resolve: () => resolve('inference') })).toEqual(['A ns.agents.example 192.0.2.2', 'OPT .'])
  expect(glue({ resolve: () => null })).toEqual(['OPT .'])
})

test('goal: only a name of two labels of ours, below no host, is looked up', () => {
  // Everything is known here.
  const asked: string[] = []
  const all = (name: string) => {
    asked.push(name)
    return { v4: Uint8Array.of(192, 0, 2, 9), v6: null, fingerprint: null }
  }
  const answers = (name: string) => seen(ask(query({ name }), { resolve: all })).answers.length
  expect(answers('box.acme.agents.example')).toBe(1)
  expect(asked.splice(0)).toEqual(['box.acme'])
  for (const name of [
    'x.box.acme.agents.example',
    'box.ns.agents.example',
    'box_1.acme.agents.example',
    'box.ac_me.agents.example',
    'acme.agents.example',
  ])
    expect([name, answers(name)]).toEqual([name, 0])
  expect(asked).toEqual([])
})

test('goal: no resolver keeps the text of a proof', () => {
  const name = '_acme-challenge.instances.agents.example'
  const answers = decode(ask(query({ name, type: 'TXT' })) ?? Buffer.alloc(0)).answers ?? []
  expect(answers.map(answer => Reflect.get(answer, 'ttl'))).toEqual([0, 0])
})

test('goal: an answer names four hosts by IPv4, three by IPv6, the first ones of a fleet', () => {
  const all = Array.from({ length: 6 }, (_, n) => ({
    v4: Uint8Array.of(192, 0, 2, n + 1),
    v6: Uint8Array.of(0x20, 1, 0xd, 0xb8, ...Array<number>(11).fill(0), n + 1),
    fingerprint: null,
  }))
  // The key of the first host is the label, that of the n-th the label and n.
  const fleet = new Map(all.map((records, n) => [n === 0 ? 'ns' : `ns ${n}`, records]))
  const asked = (type: string) =>
    seen(ask(query({ name: 'ns.agents.example', type }), { resolve: name => fleet.get(name) ?? null })).answers.map(
      text => text.replace('ns.agents.example ', ''),
    )
  expect(asked('A')).toEqual(['A 192.0.2.1', 'A 192.0.2.2', 'A 192.0.2.3', 'A 192.0.2.4'])
  expect(asked('AAAA')).toEqual(['AAAA 2001:db8::1', 'AAAA 2001:db8::2', 'AAAA 2001:db8::3'])
})

test('goal: ttl is small, and so is how long an absence is believed', () => {
  const positive = decode(ask(query({})) ?? Buffer.alloc(0)).answers?.[0]
  expect(positive && 'ttl' in positive && positive.ttl).toBe(5)
  for (const message of [query({ type: 'AAAA' }), query({ name: 'zzzz9999.acme.agents.example' })]) {
    const negative = decode(ask(message) ?? Buffer.alloc(0)).authorities?.[0]
    expect(negative).toMatchObject({
      name: 'agents.example',
      ttl: 5,
      data: { mname: 'ns.agents.example', rname: 'hostmaster.agents.example', serial: 1_800_000_000, minimum: 5 },
    })
    // An hour, ten minutes and a day.
    expect(Reflect.get(negative ?? {}, 'data')).toMatchObject({ refresh: 3_600, retry: 600, expire: 86_400 })
  }
})

test('goal: classes other than IN are refused', () => {
  for (const name of ['CH', 'HS', 'ANY']) expect(seen(ask(query({ class: name })))).toEqual(REFUSED)
  const version = query({ name: 'version.bind', type: 'TXT', class: 'CH' })
  expect(seen(ask(version))).toEqual(REFUSED)
})

test('goal: a label that holds a dot is not two labels', () => {
  for (const labels of [
    ['abcd2345.acme', 'agents', 'example'],
    ['abcd2345', 'acme', 'agents.example'],
    ['ns.agents.example'],
  ]) {
    const name = Buffer.concat(labels.map(label => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)])))
    const message = Buffer.concat([query({}).subarray(0, 12), name, Buffer.from([0, 0, 1, 0, 1])])
    expect(seen(ask(message)).answers).toEqual([])
  }
})

test('goal: only A to Z fold: no other byte of a name is taken for a letter', () => {
  const upper = (message: Buffer, from: number, to: number) => {
    const changed = Buffer.from(message)
    for (let i = 13; i < 13 + HOST.length; i += 1) if (changed[i] === from) changed[i] = to
    return changed
  }
  expect(seen(ask(upper(query({}), 0x61, 0x41))).answers).toHaveLength(1)
  // a with an accent in latin-1, small and large; and what differs from a letter or digit in the bit of the case.
  for (const [from, to] of [
    [0x61, 0xe1],
    [0x61, 0xc1],
    [0x64, 0x04],
    [0x32, 0x12],
  ] as const)
    expect(seen(ask(upper(query({}), from, to))).answers).toEqual([])
})

test('goal: where ports may be published, one label below an instance has its addresses, and nothing else of it', () => {
  const publishing = { ...zone, publishes: true }
  const asked = (name: string, type: string) => seen(ask(query({ name, type }), { zone: publishing }))
  const web = `web.${HOST}`
  expect(asked(web, 'A')).toEqual(found(`${web} A 10.88.0.7`))
  expect(asked('web.sixo2345.acme.agents.example', 'AAAA')).toEqual(
    found('web.sixo2345.acme.agents.example AAAA 2001:db8::a'),
  )
  for (const type of ['SSHFP', 'CAA', 'TXT', 'AAAA']) expect(asked(web, type)).toEqual(absent('NOERROR'))
  const none = [`x.${web}`, `_x.${HOST}`, 'web.zzzz9999.acme.agents.example', 'web.abcd2345.ns.agents.example']
  for (const name of none) expect(asked(name, 'A')).toEqual(absent('NXDOMAIN'))
  expect(asked(HOST, 'A')).toEqual(found(`${HOST} A 10.88.0.7`))
})
