// Goal: BIND's client reads our responses, over UDP and TCP, for every kind of question, flag and option that
// compliance checks of name servers send.

import { expect, test } from 'bun:test'
import { freeRates, hostKeyDigest, withDns } from '../../../scripts/rigs/dns/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { HOST } from '../../rigs/dns/query.ts'

const dig = Bun.which('dig') ?? ''
const isThere = skipUnless(dig !== '', 'needs dig, of bind9-dnsutils')
const DUAL = 'dual2345.acme.agents.example'
const ZONE = 'agents.example'

/** Status, flags, and the counts of answers, authorities and additional records. */
type Expected = readonly [status: string, flags: string, counts: string]
type Row = readonly [argv: string, Expected, also?: RegExp]

const SOA =
  /^agents\.example\.\s+5\s+IN\s+SOA\s+ns\.agents\.example\. hostmaster\.agents\.example\. \d+ 3600 600 86400 5$/m
const plain = '+noedns +norecurse +noad'

const ROWS: readonly Row[] = [
  // The zone's records.
  [
    `${plain} ${HOST} A`,
    ['NOERROR', 'qr aa', '1 0 0'],
    /^abcd2345\.acme\.agents\.example\.\s+5\s+IN\s+A\s+10\.88\.0\.7$/m,
  ],
  [`${plain} ${HOST} AAAA`, ['NOERROR', 'qr aa', '0 1 0'], SOA],
  [`${plain} ${DUAL} AAAA`, ['NOERROR', 'qr aa', '1 0 0'], /\sAAAA\s+2001:db8::9$/m],
  [
    `${plain} ${HOST} SSHFP`,
    ['NOERROR', 'qr aa', '1 0 0'],
    new RegExp(`SSHFP\\s+4 2 ${Buffer.from(hostKeyDigest).toString('hex').slice(0, 56)}`, 'i'),
  ],
  [`${plain} ${DUAL} SSHFP`, ['NOERROR', 'qr aa', '0 1 0'], SOA],
  [`${plain} ${ZONE} SOA`, ['NOERROR', 'qr aa', '1 0 0'], SOA],
  [`${plain} ${ZONE} NS`, ['NOERROR', 'qr aa', '1 0 2'], /^ns\.agents\.example\.\s+5\s+IN\s+AAAA\s+2001:db8::1$/m],
  [`${plain} ns.${ZONE} A`, ['NOERROR', 'qr aa', '1 0 0'], /\s192\.0\.2\.1$/m],
  [`${plain} +notcp ${HOST} ANY`, ['NOERROR', 'qr aa', '1 0 0'], /\s10\.88\.0\.7$/m],
  // Absence.
  [`${plain} zzzz9999.acme.${ZONE} A`, ['NXDOMAIN', 'qr aa', '0 1 0'], SOA],
  [`${plain} acme.${ZONE} A`, ['NOERROR', 'qr aa', '0 1 0'], SOA],
  [`${plain} nobody.${ZONE} A`, ['NOERROR', 'qr aa', '0 1 0'], SOA],
  [`${plain} ${ZONE} MX`, ['NOERROR', 'qr aa', '0 1 0'], SOA],
  [`${plain} ${HOST} TYPE1000`, ['NOERROR', 'qr aa', '0 1 0'], SOA],
  // Names outside our zone.
  [`${plain} example.com A`, ['REFUSED', 'qr', '0 0 0']],
  [`${plain} . NS`, ['REFUSED', 'qr', '0 0 0']],
  [`${plain} -c CH version.bind TXT`, ['REFUSED', 'qr', '0 0 0']],
  // Case comes back as it went.
  [
    `${plain} AbCd2345.aCmE.Agents.EXAMPLE A`,
    ['NOERROR', 'qr aa', '1 0 0'],
    /^AbCd2345\.aCmE\.Agents\.EXAMPLE\.\s+5\s+IN\s+A/m,
  ],
  // Flags, as in ISC's compliance checks: none but RD is answered with itself.
  [`+noedns +recurse +noad ${HOST} A`, ['NOERROR', 'qr aa rd', '1 0 0']],
  [`${plain} +aaflag +tcflag +raflag +cdflag +zflag ${HOST} A`, ['NOERROR', 'qr aa', '1 0 0']],
  [`+noedns +norecurse +adflag ${HOST} A`, ['NOERROR', 'qr aa', '1 0 0']],
  ['+noedns +norecurse +noad +opcode=15 +header-only', ['NOTIMP', 'qr', '0 0 0']],
  ['+noedns +norecurse +noad +opcode=notify agents.example SOA', ['NOTIMP', 'qr', '0 0 0']],
  ['+noedns +norecurse +noad +opcode=update agents.example SOA', ['NOTIMP', 'qr', '0 0 0']],
  ['+noedns +norecurse +noad +header-only', ['FORMERR', 'qr', '0 0 0']],
  // EDNS.
  [
    `+norecurse +noad +nocookie +edns=0 ${ZONE} SOA`,
    ['NOERROR', 'qr aa', '1 0 1'],
    /EDNS: version: 0, flags:; udp: 1232$/m,
  ],
  [
    `+norecurse +noad +nocookie +edns=1 +noednsneg ${ZONE} SOA`,
    ['BADVERS', 'qr', '0 0 1'],
    /EDNS: version: 0, flags:; udp: 1232$/m,
  ],
  [`+norecurse +noad +nocookie +edns=1 +noednsneg +ednsopt=100 ${ZONE} SOA`, ['BADVERS', 'qr', '0 0 1']],
  [`+norecurse +noad +nocookie +bufsize=512 ${ZONE} SOA`, ['NOERROR', 'qr aa', '1 0 1']],
  [`+norecurse +noad +nocookie +bufsize=1 ${ZONE} NS`, ['NOERROR', 'qr aa', '1 0 3']],
  [
    `+norecurse +noad +nocookie +ednsopt=100 ${ZONE} SOA`,
    ['NOERROR', 'qr aa', '1 0 1'],
    /EDNS: version: 0, flags:; udp: 1232\n;; QUESTION/,
  ],
  [
    `+norecurse +noad +nocookie +ednsflags=0x80 ${ZONE} SOA`,
    ['NOERROR', 'qr aa', '1 0 1'],
    /EDNS: version: 0, flags:; udp: 1232$/m,
  ],
  [
    `+norecurse +noad +nocookie +dnssec ${ZONE} SOA`,
    ['NOERROR', 'qr aa', '1 0 1'],
    /EDNS: version: 0, flags: do; udp: 1232$/m,
  ],
  [`+norecurse +noad +nocookie +dnssec ${ZONE} DNSKEY`, ['NOERROR', 'qr aa', '0 1 1'], SOA],
  [
    `+norecurse +noad +cookie +nsid +subnet=192.0.2.0/24 +expire +padding=128 ${ZONE} SOA`,
    ['NOERROR', 'qr aa', '1 0 1'],
    /COOKIE: [0-9a-f]{48} \(good\)/,
  ],
  [
    `+norecurse +noad +cookie=0102030405060708 ${HOST} A`,
    ['NOERROR', 'qr aa', '1 0 1'],
    /COOKIE: 0102030405060708[0-9a-f]{32} \(good\)/,
  ],
]

async function run(port: number, argv: readonly string[]): Promise<string> {
  const child = Bun.spawn([dig, '@127.0.0.1', '-p', String(port), '+time=5', '+tries=3', '+nosearch', ...argv], {
    stdout: 'pipe',
    stderr: 'pipe',
    env: { HOME: '/nonexistent', PATH: process.env.PATH ?? '' },
  })
  const [text, exitCode] = await Promise.all([child.stdout.text(), child.exited])
  // That there is no recursion it says to all that ask for it, and rightly.
  const warnings = (text.match(/warning:.*/gi) ?? []).filter(line => !line.includes('recursion requested but not'))
  expect([argv.join(' '), exitCode, warnings]).toEqual([argv.join(' '), 0, []])
  return text
}

function headerOf(text: string): Expected {
  const status = /status: ([A-Z]+)/.exec(text)?.[1] ?? 'none'
  const [, flags = '', counts = ''] = /flags: ([a-z ]*);.*(ANSWER: .*)$/m.exec(text) ?? []
  return [status, flags, counts.replace(/[^\d]+/g, ' ').trim()]
}

for (const transport of ['+notcp', '+tcp']) {
  test.skipIf(isThere)(
    `goal: dig ${transport} reads every answer of the table, and each is as the RFCs have it`,
    async () => {
      await withDns({ rates: freeRates }, async ({ port }) => {
        for (const [line, expected, also] of ROWS) {
          // It sends ANY over TCP unless told otherwise, and reads +notcp as that.
          const text = await run(port, [transport, ...line.split(' ')])
          expect([line, ...headerOf(text)]).toEqual([line, ...expected])
          if (also !== undefined) expect([line, text]).toEqual([line, expect.stringMatching(also)])
        }
      })
    },
    60_000,
  )
}

test.skipIf(isThere)(
  'goal: zone transfers fail, and several queries of dig on one connection are all answered',
  async () => {
    await withDns({ rates: freeRates }, async ({ port }) => {
      expect(await run(port, [ZONE, 'AXFR'])).toContain('Transfer failed')
      expect(await run(port, [ZONE, 'IXFR=1'])).toContain('Transfer failed')
      const names = [HOST, DUAL, 'ns.agents.example']
      const text = await run(port, ['+tcp', '+keepopen', '+short', ...names.flatMap(name => [name, 'A'])])
      expect(text.trim().split('\n')).toEqual(['10.88.0.7', '10.88.0.9', '192.0.2.1'])
    })
  },
)

test.skipIf(isThere)('goal: dig told to use TCP by a truncated response does, and then has its answer', async () => {
  const none = { ...freeRates.forgeable, burst: 0, perSecond: 0 }
  await withDns({ rates: { ...freeRates, forgeable: none } }, async ({ port }) => {
    expect(await run(port, ['+ignore', '+nocookie', HOST])).toMatch(/flags: qr tc rd; QUERY: 1, ANSWER: 0/)
    const text = await run(port, ['+nocookie', HOST])
    expect(text).toMatch(/^;; Truncated, retrying in TCP mode\.$/m)
    expect(text).toMatch(/\s10\.88\.0\.7$/m)
  })
})

test.skipIf(isThere)('goal: the same over IPv6', async () => {
  await withDns({ address: '::1', rates: freeRates }, async ({ port }) => {
    for (const transport of ['+notcp', '+tcp']) {
      const child = Bun.spawn([dig, '@::1', '-p', String(port), transport, '+short', '+tries=3', DUAL, 'AAAA'], {
        stdout: 'pipe',
      })
      expect([transport, (await child.stdout.text()).trim()]).toEqual([transport, '2001:db8::9'])
    }
  })
})
