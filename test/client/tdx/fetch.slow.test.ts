// Goal: `verify tdx --fetch` judges what Intel's service sends as it judges a file, keeps it with --cache, and never
// calls a quote not genuine because the service fails; with a scripted stand-in for Intel's service on 127.0.0.1.

import { afterAll, afterEach, beforeEach, expect, test } from 'bun:test'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { expectNoCollateral, NO_COLLATERAL, startCollateralServer } from '../../rigs/attest/collateral-server.ts'
import { bytesOf, pcsScript } from '../../rigs/attest/tdx/pcs-script.ts'
import {
  SIMULATED_PCK,
  SIMULATED_REPORT,
  simulateCollateral,
  simulateQuote,
  simulateTdx,
  tcbInfoOf,
} from '../../rigs/attest/tdx/simulated.ts'
import { checksOf, expectUsageError, runHere } from '../../rigs/program.ts'

const nowMs = Date.parse('2026-01-01T00:00:00Z')
const platform = await simulateTdx(nowMs)
const pck = await platform.pck(SIMULATED_PCK)
const collateralBytes = await simulateCollateral(platform)
const script = pcsScript(collateralBytes)
const server = startCollateralServer(path => script[path])
const everything = [
  'GET /tdx/certification/v4/tcb?fmspc=b0c06f000000',
  'GET /tdx/certification/v4/qe/identity',
  'GET /sgx/certification/v4/pckcrl?ca=platform&encoding=der',
  'GET /IntelSGXRootCA.der',
]
const kept = 'tdx-collateral-b0c06f000000-platform.json'

const dir = mkdtempSync(join(tmpdir(), 'srt-tdx-fetch-'))
const cache = join(dir, 'cache')
afterAll(async () => {
  rmSync(dir, { recursive: true })
  await server[Symbol.asyncDispose]()
})
beforeEach(() => {
  mkdirSync(cache)
  server.requests = []
  server.instead = () => null
})
afterEach(() => rmSync(cache, { recursive: true }))

function file(name: string, contents: Uint8Array | string): string {
  writeFileSync(join(dir, name), contents)
  return join(dir, name)
}

const policy = (mrTd: string) =>
  file(
    `policy-${mrTd.slice(0, 4)}.json`,
    JSON.stringify({
      ...encodeTdxPolicy(strictTdxPolicy()),
      ...{ mrTds: [mrTd], rtmr1: [toHex(SIMULATED_REPORT.rtmr1)], rtmr2: [toHex(SIMULATED_REPORT.rtmr2)] },
    }),
  )
const collateral = file('collateral.json', collateralBytes)
const quote = file('quote.bin', await simulateQuote(platform, { version: 4, report: SIMULATED_REPORT, pck }))
const root = ['--trust-simulated-root', file('root.pem', toPem(platform.rootDer, 'CERTIFICATE'))]

async function fetched(...more: readonly string[]) {
  const expected = ['--policy', policy(toHex(SIMULATED_REPORT.mrTd)), '--as-of', '2026-01-01', ...root]
  const argv = ['verify', 'tdx', quote, '--fetch', '--pcs-url', server.url, ...expected, ...more, '--json']
  const { code, stdout, stderr } = await runHere(argv)
  expect(stderr).toBe('')
  return { code, document: JSON.parse(stdout) }
}

// Goal: the four answers are a good verdict, and the chain of Intel's root, which is built in, is not asked for.
test('a working service', async () => {
  const { code, document } = await fetched()
  expect([code, document.ok, server.requests]).toEqual([0, true, everything])
  expect(Object.keys(document.fetched)).toEqual(['tcb_info', 'qe_identity', 'pck_crl', 'root_ca_crl'])
  expect([document.cached, document.saved]).toEqual([[], []])
})

// Goal: --cache finds again what is in force, also as --collateral; not what is a day old or cannot be read.
test('--cache', async () => {
  const path = join(cache, kept)
  const first = await fetched('--cache', cache)
  expect([first.code, first.document.saved, readdirSync(cache)]).toEqual([0, [path], [kept]])
  server.requests = []
  const second = await fetched('--cache', cache)
  expect([second.code, second.document.cached, second.document.fetched, server.requests]).toEqual([0, [kept], {}, []])
  const offline = ['verify', 'tdx', quote, '--collateral', path, ...root, '--as-of', '2026-01-01', '--any-measurement']
  expect((await runHere(offline)).code).toBe(0)
  const dayAgo = new Date(Date.now() - 24 * 3_600_000 - 1_000)
  utimesSync(path, dayAgo, dayAgo)
  expect([(await fetched('--cache', cache)).code, server.requests]).toEqual([0, everything])
  server.requests = []
  writeFileSync(path, '{')
  expect([(await fetched('--cache', cache)).code, server.requests]).toEqual([0, everything])
  server.requests = []
  const until = tcbInfoOf(nowMs, { nextUpdate: '2026-01-02T00:00:00Z' })
  writeFileSync(path, await simulateCollateral(platform, { tcbInfo: until }))
  const later = await fetched('--cache', cache, '--as-of', '2026-01-03')
  expect([later.code, later.document.saved, server.requests]).toEqual([0, [path], everything])
  // The quote's own certificates are not in force then, so nothing is requested.
  server.requests = []
  const expired = await fetched('--cache', cache, '--as-of', '2026-03-01')
  expect([expired.code, checksOf(expired.document, 'FAIL'), server.requests]).toEqual([1, ['pck-chain'], []])
})

// Goal: nothing in the place of a kept file costs the verdict, whether it cannot be read, or cannot be replaced.
test.each([
  ['a directory', (path: string) => mkdirSync(path), 'it exists and is not a regular file'],
  ['a loop', (path: string) => symlinkSync(kept, path), 'it exists and is not a regular file'],
  ['a FIFO', (path: string) => expect(Bun.spawnSync(['mkfifo', path]).exitCode).toBe(0), 'not a regular file'],
  ['no file, and no place for one', (path: string) => mkdirSync(`${path}.strongroom-part`), 'directory'],
] as const)('a bad cache: %s', async (_, place, words) => {
  place(join(cache, kept))
  const argv = ['verify', 'tdx', quote, '--fetch', '--pcs-url', server.url, '--cache', cache, ...root]
  const { code, stderr } = await runHere([...argv, '--as-of', '2026-01-01', '--any-measurement', '--any-rtmr'])
  expect([code, stderr, server.requests]).toEqual([0, expect.stringContaining('nothing was saved: '), everything])
  expect(stderr).toContain(words)
})

// Goal: a cached file that makes genuine evidence look forged is downloaded once more; without the service, the verdict
// stands and names the file. A policy's refusal does not depend on the file.
test('a forged file in the cache', async () => {
  await fetched('--cache', cache)
  const path = join(cache, kept)
  const genuine = readFileSync(path, 'utf8')
  const forged = JSON.stringify({ ...JSON.parse(genuine), root_ca_crl: toHex(await platform.crl('stranger')) })
  writeFileSync(path, forged)
  server.requests = []
  server.instead = () => new Response('', { status: 500 })
  const offline = await fetched('--cache', cache)
  expect([offline.code, checksOf(offline.document, 'FAIL'), offline.document.cached]).toEqual([1, ['root-crl'], [kept]])
  expect(server.requests).toHaveLength(1)
  server.requests = []
  server.instead = () => null
  const argv = ['verify', 'tdx', quote, '--fetch', '--pcs-url', server.url, '--cache', cache, ...root]
  const any = ['--as-of', '2026-01-01', '--any-measurement', '--any-rtmr']
  const mended = await runHere([...argv, ...any])
  expect([mended.code, server.requests, readFileSync(path, 'utf8')]).toEqual([0, everything, genuine])
  expect(mended.stderr).toContain(`downloaded again: ${kept}\n`)
  expect((await runHere([...argv, ...any])).stderr).toBe(`used from --cache: ${kept}\n`)
  server.requests = []
  const refused = await fetched('--cache', cache, '--policy', policy('00'.repeat(48)))
  expect([refused.code, server.requests]).toEqual([6, []])
})

// Goal: whatever the service does instead of answering, exit code 3 says that nothing was judged, and nothing is kept.
test.each(NO_COLLATERAL)('no collateral: %s', async (words, answer) => {
  await expectNoCollateral(server, Object.keys(script), [words, answer], () => fetched('--cache', cache))
  expect(readdirSync(cache)).toEqual([])
})

// Goal: a stranger's quote is not genuine, whatever platform it names, and nothing about that platform is requested.
test('a forged platform', async () => {
  const forger = await simulateTdx(nowMs)
  server.instead = () => new Response('', { status: 404 })
  for (const fmspc of [SIMULATED_PCK.fmspc, new Uint8Array(6).fill(255)]) {
    const forged = await forger.pck({ ...SIMULATED_PCK, fmspc })
    const chain = [forged, forger.authority].map(({ der }) => toPem(der, 'CERTIFICATE')).join('')
    for (const [name, pem] of Object.entries({ chain, alone: toPem(forged.der, 'CERTIFICATE') })) {
      const bytes = await simulateQuote(forger, { version: 4, report: SIMULATED_REPORT, pck: forged, chain: pem })
      const argv = ['verify', 'tdx', file('forged.bin', bytes), '--as-of', '2026-01-01', '--any-measurement', ...root]
      const asked = [...argv, '--fetch', '--pcs-url', server.url, '--cache', cache, '--json']
      for (const line of [asked, [...argv, '--collateral', collateral, '--json']]) {
        const { code, stdout } = await runHere(line)
        const failed = checksOf(JSON.parse(stdout), 'FAIL')
        expect([name, code, failed, server.requests]).toEqual([name, 1, expect.arrayContaining(['pck-chain']), []])
      }
    }
  }
})

// Goal: a member without the header that has its chain is no collateral, either, nor is a missing file.
test('half an answer', async () => {
  server.instead = request => (request.url.endsWith('/qe/identity') ? new Response('{}') : null)
  const { code, document } = await fetched()
  expect([code, document.error.message]).toEqual([
    3,
    `${server.url}tdx/certification/v4/qe/identity: not what was requested: no header SGX-Enclave-Identity-Issuer-Chain`,
  ])
})

// Goal: genuine collateral stays when a policy refuses the quote; collateral of another authority is not kept.
test('what is kept', async () => {
  const refused = await fetched('--cache', cache, '--policy', policy('00'.repeat(48)))
  expect([refused.code, readdirSync(cache)]).toEqual([6, [kept]])
  rmSync(join(cache, kept))
  const stranger = toHex(await platform.crl('stranger'))
  server.instead = request => (request.url.endsWith('.der') && !request.url.includes('?') ? bytesOf(stranger)() : null)
  const forged = await fetched('--cache', cache)
  expect([forged.code, checksOf(forged.document, 'FAIL'), readdirSync(cache)]).toEqual([1, ['root-crl'], []])
})

// Goal: options without effect, and a directory that does not exist, are refused before any request.
test('usage', async () => {
  const argv = ['verify', 'tdx', quote]
  await expectUsageError([...argv, '--cache', cache], '--cache goes with --fetch')
  await expectUsageError([...argv, '--pcs-url', server.url], '--pcs-url goes with --fetch')
  await expectUsageError([...argv, '--fetch', '--cache', join(dir, 'none', 'x')], 'none can be made')
  await expectUsageError([...argv, '--fetch', '--pcs-url', 'ftp://host'], 'It must be an http or https URL')
})
