// Goal: `verify report --fetch` judges what a key server sends as it judges files, whatever the server does; with a
// stand-in on 127.0.0.1. AMD's own service is never asked.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  chipIdOf,
  SIMULATED_TCBS,
  simulatedAsOf,
  simulatedPlatform,
  vekValidity,
} from '../../../scripts/rigs/launch/simulated-platform.ts'
import { PRODUCTS } from '../../../src/attest/amd/product.ts'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { chainRequest, crlRequest, vcekRequest } from '../../../src/attest/kds/request.ts'
import { servedRequests } from '../../../src/attest/kds/served.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { issueSimulatedCrl, issueSimulatedVcek } from '../../../src/attest/simulator/certificates.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { Downloader } from '../../../src/client/collateral/download.ts'
import { fetchMissing } from '../../../src/client/kds/kds-fetch.ts'
import type { Run } from '../../../src/terminal/command.ts'
import { type KdsServer, type Respond, startKdsServer } from '../../rigs/kds-server.ts'
import { checksOf, expectUsageError, runHere, vectors } from '../../rigs/program.ts'
import { startScriptedProxy } from '../../rigs/proxy/scripted-proxy.ts'

const product = 'genoa'
const tcb = SIMULATED_TCBS[product]
const wanted = { product, chipId: chipIdOf(product), tcb } as const
const requests = [vcekRequest(wanted), crlRequest(product, 'vcek')]
const [vcekFile = '', crlFile = ''] = requests.map(({ file }) => file)

let server: KdsServer
let dir: string
let save: string
let report: string
let trust: string[]

beforeAll(async () => {
  server = await startKdsServer(product)
})
afterAll(() => server[Symbol.asyncDispose]())
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'srt-verify-kds-'))
  save = join(dir, 'save')
  mkdirSync(save)
  report = file('report.bin', await server.platform.report({ report: { platformInfo: 0x21n } }))
  const { ask, ark, asvk } = server.platform.authority.root
  trust = ['--trust-simulated-root', file('root.pem', [ark, ask, asvk].map(der => toPem(der, 'CERTIFICATE')).join(''))]
  server.requests = []
  server.respond = server.serve
})
afterEach(() => rmSync(dir, { recursive: true }))

function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name)
  writeFileSync(path, content)
  return path
}

const asOf = ['--as-of', simulatedAsOf.toISOString()]

/** `verify report` of the simulated report, with --json. */
async function verify(...more: string[]) {
  const argv = ['verify', 'report', '--report', report, ...asOf, ...trust, '--any-measurement', ...more, '--json']
  const { code, stdout, stderr } = await runHere(argv)
  expect(stderr).toBe('')
  return { code, document: JSON.parse(stdout) }
}

const fetched = (...more: string[]) => verify('--fetch', '--kds-url', server.url, ...more)

/** The working service, but for what `change` answers. */
function answer(change: (path: string) => Response | null): void {
  server.respond = request => change(new URL(request.url).pathname) ?? server.serve(request)
}

const isVcek = (path: string) => path.startsWith('/vcek/v1/Genoa/0')

// Goal: a refusal of the proxy is no collateral: neither the key server's limit, nor a chip that it does not know.
test.each([403, 404, 407, 429, 502])('a proxy that refuses with %i', async status => {
  const refuse = (client: Socket) => client.end(`HTTP/1.1 ${status} No\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n`)
  await using proxy = await startScriptedProxy(0, refuse)
  process.env.HTTPS_PROXY = proxy.url
  try {
    const { code, document } = await verify('--fetch', '--kds-url', 'https://kds.example')
    expect([code, document.error.code]).toEqual([3, 'api.unreachable'])
    expect(document.error.message).toContain(`Proxy refused to open a tunnel: ${status}`)
    expect(proxy.heads).toHaveLength(1)
  } finally {
    delete process.env.HTTPS_PROXY
  }
})

describe('a working server', () => {
  // Goal: what is missing is fetched, once, and the verdict is good without a file of the user's own. The chain is
  // built in, and not fetched.
  test('gives both', async () => {
    const { code, document } = await fetched('--save', save)
    expect([code, document.ok, document.simulated, checksOf(document, 'FAIL')]).toEqual([0, true, true, []])
    expect(checksOf(document, 'PASS')).toContain('chain-revocation')
    expect(server.requests).toEqual(requests.map(({ path }) => path))
    const base = server.url.replace(/\/$/, '')
    const [vcek, crl] = requests.map(({ path }) => `${base}${path}`)
    expect(document.fetched).toEqual({ vcek, crl })
    expect(document.saved).toEqual([vcekFile, crlFile].map(name => join(save, name)))
  })

  // Goal: what was saved is all that the next verification needs, without a network; nothing else lies beside it.
  test('is not needed again', async () => {
    await fetched('--save', save)
    expect(readdirSync(save).toSorted()).toEqual([vcekFile, crlFile].toSorted())
    expect(new Uint8Array(readFileSync(join(save, vcekFile)))).toEqual(new Uint8Array(server.platform.vcek))
    server.requests = []
    const files = ['--vek', join(save, vcekFile), '--crl', join(save, crlFile)]
    const { code, document } = await verify(...files)
    expect([code, document.fetched, document.saved, server.requests]).toEqual([0, undefined, undefined, []])
  })

  // Goal: a file of the user's own is not fetched, and counts.
  test('is not asked for what is given', async () => {
    const vek = ['--vek', file('vcek.der', server.platform.vcek)]
    expect((await fetched(...vek)).code).toBe(0)
    expect(server.requests.some(isVcek)).toBe(false)
    server.requests = []
    const crl = ['--crl', file('crl.der', server.crl.with(-1, (server.crl.at(-1) ?? 0) ^ 1))]
    const { code, document } = await fetched(...vek, ...crl)
    expect([code, checksOf(document, 'FAIL')]).toEqual([1, ['chain-revocation']])
    expect(server.requests).toEqual([])
  })

  // Goal: --cache finds the files again; the CRL for a day, and neither one that is not in force nor a broken file.
  test('is not asked again with --cache', async () => {
    const first = await fetched('--cache', save)
    expect([first.code, first.document.cached, readdirSync(save).toSorted()]).toEqual([
      ...[0, [], [vcekFile, crlFile].toSorted()],
    ])
    server.requests = []
    const second = await fetched('--cache', save)
    expect([second.code, second.document.cached, second.document.saved]).toEqual([0, [vcekFile, crlFile], []])
    expect([second.document.fetched, server.requests]).toEqual([{}, []])
    const dayAgo = new Date(Date.now() - 24 * 3_600_000 - 1_000)
    for (const name of [vcekFile, crlFile]) utimesSync(join(save, name), dayAgo, dayAgo)
    const third = await fetched('--cache', save)
    expect([third.code, third.document.cached, server.requests]).toEqual([0, [vcekFile], [requests[1]?.path ?? '']])
    server.requests = []
    const later = await fetched('--cache', save, '--as-of', '2026-12-02T00:00:00Z')
    // The cached VCEK could be why the verdict is bad.
    expect([later.code, server.requests]).toEqual([1, [requests[1]?.path ?? '', requests[0]?.path ?? '']])
    server.requests = []
    writeFileSync(join(save, vcekFile), 'none')
    expect([(await fetched('--cache', save)).code, server.requests]).toEqual([0, [requests[0]?.path ?? '']])
  })

  // Goal: without its root the same answers fail: the network makes nothing trusted.
  test('is not trusted', async () => {
    trust = []
    const { code, document } = await fetched('--save', save)
    expect([code, document.ok, checksOf(document, 'FAIL')]).toEqual([1, false, ['chain-certificates']])
    expect([document.saved, readdirSync(save)]).toEqual([[], []])
  })

  // Goal: people read what was saved on stderr, and the verdict on stdout.
  test('for people', async () => {
    const argv = ['verify', 'report', '--report', report, ...asOf, ...trust, '--any-measurement', '--fetch']
    const { code, stdout, stderr } = await runHere([...argv, '--kds-url', server.url, '--save', save])
    expect([code, stdout.split('\n')[0]]).toEqual([0, expect.stringContaining('VERDICT: PASS SIMULATED')])
    expect(stderr).toContain(`saved ${join(save, crlFile)}\n`)
  })
})

describe('a server that is wrong', () => {
  // Goal: the VCEK of another chip, of another TCB or a revoked one fails by its check, and nothing is saved.
  test('certificates', async () => {
    const issue = (change: object) =>
      issueSimulatedVcek(server.platform.authority, { ...wanted, validity: vekValidity, ...change })
    const other = await issue({ chipId: wanted.chipId.with(0, 0xff) })
    const newer = await issue({ tcb: { ...tcb, microcode: 90 } })
    const revoked = await issueSimulatedCrl(server.platform.authority, {
      thisUpdate: new Date('2026-11-01T00:00:00Z'),
      nextUpdate: new Date('2026-12-01T00:00:00Z'),
      revoked: [{ serial: '530201', at: new Date('2026-11-01T00:00:00Z') }],
    })
    const body = (bytes: Uint8Array) => new Response(new Uint8Array(bytes))
    const cases = [
      [(path: string) => (isVcek(path) ? body(other) : null), 'vek-chip-id'],
      [(path: string) => (isVcek(path) ? body(newer) : null), 'vek-tcb'],
      [(path: string) => (path.endsWith('/crl') ? body(revoked) : null), 'chain-revocation'],
    ] as const
    for (const [change, failed] of cases) {
      answer(change)
      const { code, document } = await fetched('--save', save)
      expect([failed, code, checksOf(document, 'FAIL')]).toEqual([failed, 1, [failed]])
      expect([document.saved, readdirSync(save)]).toEqual([[], []])
    }
  })

  // Goal: too much, an error, a redirect, nothing at all: each names its address and what to do, and nothing is saved.
  test('answers', async () => {
    const other = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response(server.crl.slice()) })
    await using _ = { [Symbol.asyncDispose]: () => other.stop(true) }
    const bomb = { body: Bun.gzipSync(new Uint8Array(2 ** 25)), init: { headers: { 'content-encoding': 'gzip' } } }
    const cases: [Respond, number, string, string][] = [
      [() => new Response(bomb.body, bomb.init), 3, 'attest.unavailable', 'more than 65536 bytes came'],
      [() => new Response(new Uint8Array(65_537)), 3, 'attest.unavailable', 'more than 65536 bytes came'],
      [() => Response.redirect(other.url.href), 3, 'attest.unavailable', '302: redirects are not followed'],
      [() => Response.redirect(`${server.url}x/crl`, 307), 3, 'attest.unavailable', '307: redirects are not followed'],
      [() => new Response(''), 3, 'attest.unavailable', 'not what was requested'],
      [() => new Response('', { status: 503 }), 3, 'attest.unavailable', 'HTTP status 503'],
      [() => new Response('', { status: 404 }), 3, 'attest.unavailable', 'the server has no such file'],
      [
        () => new Response('', { status: 429, headers: { 'retry-after': '70' } }),
        3,
        'attest.unavailable',
        'status 429',
      ],
    ]
    for (const [respond, code, faultCode, message] of cases) {
      server.respond = request => (request.url.endsWith('/crl') ? respond(request) : server.serve(request))
      const found = await fetched('--save', save)
      expect([found.code, found.document.error]).toEqual([
        code,
        { code: faultCode, message: expect.stringContaining(message), param: 'crl' },
      ])
      expect(found.document.error.message).toStartWith(`${server.url}vcek/v1/Genoa/crl: `)
      expect(readdirSync(save)).toEqual([])
    }
    const argv = ['verify', 'report', '--report', report, ...trust, '--any-measurement', '--fetch']
    const waiting = await runHere([...argv, '--kds-url', server.url])
    expect(waiting.stderr).toContain('remedy: try again in 70 s, name a mirror by --kds-url, or the file by --crl\n')
  })

  // Goal: a port where nobody listens is exit code 3.
  test('nobody', async () => {
    const gone = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('') })
    const url = gone.url.href
    await gone.stop(true)
    const { code, document } = await verify('--fetch', '--kds-url', url)
    expect([code, document.error]).toMatchObject([3, { code: 'api.unreachable', param: 'vek' }])
  })

  // Goal: a body that never ends costs no more than the time of one file.
  test('too slowly', async () => {
    const drip = async function* () {
      for (;;) {
        yield new Uint8Array([0x30])
        await Bun.sleep(20)
      }
    }
    answer(path => (isVcek(path) ? new Response(drip()) : null))
    const decoded = decodeReport(new Uint8Array(readFileSync(report)))
    const asked = { served: servedRequests(decoded, null), given: { vek: undefined, chain: undefined, crl: undefined } }
    const limits = { timeoutMs: 150 }
    const downloader = new Downloader({
      run: { hint: async () => {} } as unknown as Run,
      clock: systemClock,
      asOfMs: 0,
      limits,
    })
    const failing = fetchMissing(decoded, asked, { baseUrl: server.url, downloader })
    await expect(failing).rejects.toMatchObject({
      code: 'api.unreachable',
      message: expect.stringContaining('no response within 150 ms'),
    })
  })
})

// Goal: what is saved is whole or not there, and a directory that is missing is refused before anything is asked for.
test('directories', async () => {
  mkdirSync(join(save, crlFile))
  const blocked = await fetched('--save', save)
  expect([blocked.code, blocked.document.error.message]).toEqual([2, expect.stringContaining('not a regular file')])
  expect(readdirSync(save)).toEqual([crlFile])
  server.requests = []
  const missing = await fetched('--save', join(dir, 'missing'))
  expect([missing.code, missing.document.error.message]).toEqual([2, expect.stringContaining('no such directory')])
  expect(server.requests).toEqual([])
  // A cache that is missing is made, for its owner alone, and only inside a directory that exists.
  const made = join(dir, 'made')
  expect((await fetched('--cache', made)).document.error).toBeUndefined()
  expect([statSync(made).mode & 0o777, readdirSync(made).length > 0]).toEqual([0o700, true])
  const deep = await fetched('--cache', join(dir, 'missing', 'deep'))
  expect([deep.code, deep.document.error.message]).toEqual([2, expect.stringContaining('none can be made')])
})

// Goal: the addresses of every product are those of its simulated platform, and nobody is asked for them.
test.each([...PRODUCTS])('addresses of %s', async product => {
  const platform = await simulatedPlatform(product)
  const path = file('product.bin', await platform.report())
  const wanted = { product, chipId: chipIdOf(product), tcb: SIMULATED_TCBS[product] }
  const paths = [vcekRequest(wanted).path, chainRequest(product, 'vcek').path, crlRequest(product, 'vcek').path]
  const argv = ['verify', 'report', '--report', path, '--print-kds-urls']
  const amd = await runHere(argv)
  expect([amd.code, amd.stdout]).toEqual([0, paths.map(path => `https://kdsintf.amd.com${path}\n`).join('')])
  const mirror = await runHere([...argv, '--kds-url', `${server.url}mirror/`, '--json'])
  const [vcek, chain, crl] = paths.map(path => `${server.url}mirror${path}`)
  expect(JSON.parse(mirror.stdout)).toEqual({ vcek, chain, crl, reason: null })
  expect(server.requests).toEqual([])
})

describe('reports without a VCEK there', () => {
  const genuine = (name: string) => join(vectors, 'reports', name)

  // Goal: a VLEK is not fetched, and the failure says where it is from; with the VLEK the rest is fetched, of its tree.
  test('a VLEK', async () => {
    const argv = ['verify', 'report', '--report', genuine('milan-v3-vlek.bin'), '--fetch', '--kds-url', server.url]
    await expectUsageError(argv, '--fetch: the report is not signed by a VCEK (vlek)')
    expect((await runHere(argv)).stderr).toContain("remedy: AMD's key server has no VLEKs: take the certificate")
    expect(server.requests).toEqual([])
    await runHere([...argv, '--vek', genuine('milan-v3-vlek.vlek.der')])
    expect(server.requests.toSorted()).toEqual(['/vlek/v1/Milan/crl'])
    const urls = await runHere(['verify', 'report', '--report', genuine('milan-v3-vlek.bin'), '--print-kds-urls'])
    expect([urls.code, urls.stdout]).toEqual([
      0,
      'https://kdsintf.amd.com/vlek/v1/Milan/cert_chain\nhttps://kdsintf.amd.com/vlek/v1/Milan/crl\n',
    ])
    expect(urls.stderr).toStartWith('no VCEK: ')
  })

  // Goal: a version 2 report needs its product, by name.
  test('version 2', async () => {
    const argv = ['verify', 'report', '--report', genuine('milan-v2.bin'), '--print-kds-urls']
    await expectUsageError(argv, 'a version 2 report does not name its product')
    const named = await runHere([...argv, '--product', 'milan'])
    expect(named.stdout).toContain('/vcek/v1/Milan/d49554ec')
    await expectUsageError([...argv, '--product', 'turin'], 'is reserved on turin')
  })
})

// Goal: options that say nothing together are refused, and so are addresses with credentials or of another kind.
test('options', async () => {
  const argv = ['verify', 'report', '--report', report]
  await expectUsageError(argv, '--vek is missing')
  await expectUsageError([...argv, '--fetch', '--print-kds-urls'], 'exclude each other')
  await expectUsageError([...argv, '--vek', report, '--save', save], '--save goes with --fetch')
  await expectUsageError([...argv, '--vek', report, '--cache', save], '--cache goes with --fetch')
  await expectUsageError([...argv, '--fetch', '--cache', save, '--save', save], 'exclude each other')
  await expectUsageError([...argv, '--vek', report, '--kds-url', server.url], '--kds-url goes with')
  for (const url of ['', 'ftp://host', 'https://user:word@host', 'https://host?x=1', 'file:///etc'])
    await expectUsageError([...argv, '--fetch', '--kds-url', url], 'It must be an http or https URL')
  await expectUsageError(['verify', 'report', '--report', file('none', 'x'), '--fetch'], 'neither a report of 1184')
})
