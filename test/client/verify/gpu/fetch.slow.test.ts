// Goal: `verify gpu --fetch` judges what NVIDIA's services send as it judges files, keeps it with --cache, and never
// calls a GPU not genuine because a service fails; with a scripted stand-in for both services on 127.0.0.1.

import { afterAll, afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toPem } from '../../../../src/attest/encoding/pem.ts'
import { switchArch } from '../../../../src/attest/nvidia/hgx/switch.ts'
import { decodeCertificate } from '../../../../src/attest/x509/certificate.ts'
import { fromHex, fromUtf8, toBase64, toHex } from '../../../../src/base/bytes.ts'
import { expectNoCollateral, NO_COLLATERAL, startCollateralServer } from '../../../rigs/attest/collateral-server.ts'
import type { Holder } from '../../../rigs/attest/gpu/authority.ts'
import { SMALL, simulatedHgx } from '../../../rigs/attest/gpu/hgx.ts'
import { ocspResponse } from '../../../rigs/attest/gpu/ocsp.ts'
import {
  asOfMs,
  evidenceDocument,
  nonce,
  ocspOf,
  policyDocument,
  revocable,
  simulatedGpu,
} from '../../../rigs/attest/gpu/simulated.ts'
import { checksOf, expectUsageError, runHere } from '../../../rigs/program.ts'

const gpu = await simulatedGpu()
const { authorities } = gpu
const rimIds = ['NV_GPU_DRIVER_GH100_550.90.07', 'NV_GPU_VBIOS_1010_0200_882_96009F0001'] as const
const rim = (id: string, bytes: Uint8Array) => () => Response.json({ id, rim: toBase64(bytes) })
let responses = gpu.ocsp

/** The responder: finds the certificate by the serial number at the end of the request. */
async function respond(request: Request): Promise<Response> {
  const asked = toHex(new Uint8Array(await request.arrayBuffer()))
  const at = revocable(authorities).findIndex(([{ der }]) => asked.endsWith(serialTlv(decodeCertificate(der).serial)))
  const response = request.headers.get('content-type') === 'application/ocsp-request' ? responses[at] : undefined
  return response === undefined ? new Response('', { status: 400 }) : new Response(response.slice())
}

function serialTlv(serial: string): string {
  return toHex(Uint8Array.of(0x02, serial.length / 2, ...(fromHex(serial) ?? [])))
}

const server = startCollateralServer(path => {
  if (path === `/rim/${rimIds[0]}`) return rim(rimIds[0], gpu.driver)
  if (path === `/rim/${rimIds[1]}`) return rim(rimIds[1], gpu.vbios)
  return path === '/' ? respond : undefined
})
const rimRequests = rimIds.map(id => `GET /rim/${id}`)
const ocspRequests = Array.from({ length: 6 }, () => 'POST /')

const dir = mkdtempSync(join(tmpdir(), 'srt-gpu-fetch-'))
const cache = join(dir, 'cache')
afterAll(async () => {
  rmSync(dir, { recursive: true })
  await server[Symbol.asyncDispose]()
})
beforeEach(() => {
  mkdirSync(cache)
  server.requests = []
  server.instead = () => null
  responses = gpu.ocsp
})
afterEach(() => rmSync(cache, { recursive: true }))

function file(name: string, contents: string | Uint8Array): string {
  writeFileSync(join(dir, name), contents)
  return join(dir, name)
}

const roots = [authorities.device.root, authorities.rim.root].map(({ der }) => toPem(der, 'CERTIFICATE')).join('')
const evidence = file('evidence.json', JSON.stringify([evidenceDocument(gpu.evidence)]))
const asOf = (ms: number) => ['--as-of', new Date(ms).toISOString().replace('.000', '')]
const trusted = ['--trust-simulated-root', file('roots.pem', roots)]
const base = ['verify', 'gpu', evidence, '--nonce', toHex(nonce), ...asOf(asOfMs)]
const services = ['--fetch', '--rim-url', `${server.url}rim/`, '--ocsp-url', server.url]
const policy = ['--policy', file('policy.json', JSON.stringify(policyDocument()))]

async function fetched(...more: readonly string[]) {
  const { code, stdout, stderr } = await runHere([...base, ...trusted, ...services, ...policy, ...more, '--json'])
  expect(stderr).toBe('')
  return { code, document: JSON.parse(stdout) }
}

test('goal: both manifests and a response for each certificate are a good verdict; the roots are not asked for', async () => {
  const { code, document } = await fetched()
  expect([code, document.ok, server.requests]).toEqual([0, true, [...rimRequests, ...ocspRequests]])
  expect(Object.keys(document.fetched).slice(0, 2)).toEqual(rimIds.map(id => `${id}.xml`))
  expect(Object.keys(document.fetched)).toHaveLength(8)
})

test('goal: --cache finds all of it again, and old OCSP responses are fetched anew', async () => {
  expect((await fetched('--cache', cache)).document.saved).toHaveLength(8)
  server.requests = []
  const { code, document } = await fetched('--cache', cache)
  expect([code, document.cached.length, document.fetched, server.requests]).toEqual([0, 8, {}, []])
  // The responses end an hour after this time. Newer ones could need other manifests, so those are fetched, too.
  const later = await fetched('--cache', cache, ...asOf(asOfMs + 3_600_001))
  expect([later.document.cached, server.requests]).toEqual([[], [...ocspRequests, ...rimRequests]])
})

test('goal: a manifest in the cache is in force as long as its certificates, and one that does not verify is replaced', async () => {
  await fetched('--cache', cache)
  server.requests = []
  const [id] = rimIds
  const path = join(cache, `${id}.xml`)
  const text = fromUtf8(gpu.driver)
  const forged = text.replace(/(<ds:SignatureValue>\s*)(.)/, (_, start, first) => start + (first === 'A' ? 'B' : 'A'))
  expect(forged).not.toBe(text)
  writeFileSync(path, forged)
  const { code, document } = await fetched('--cache', cache)
  expect([code, Object.keys(document.fetched)[0], readFileSync(path, 'utf8')]).toEqual([0, `${id}.xml`, text])
  // Each file is requested once.
  expect(server.requests).toEqual([...rimRequests, ...ocspRequests])
  server.requests = []
  const years = 40 * 365 * 86_400_000
  const late = await fetched('--cache', cache, ...asOf(asOfMs + years))
  expect([late.code, server.requests.slice(0, 2)]).toEqual([1, rimRequests])
})

test('goal: given files are not fetched, and what a flag accepts is not asked for', async () => {
  const rims = ['--rim', file('driver.xml', gpu.driver), '--rim', file('vbios.xml', gpu.vbios)]
  expect([(await fetched(...rims)).code, server.requests]).toEqual([0, ocspRequests])
  server.requests = []
  const any = [...base, ...trusted, ...services, '--any-gpu', '--any-ocsp', '--any-devtools']
  expect([(await runHere(any)).code, server.requests]).toEqual([0, rimRequests])
})

test.each(NO_COLLATERAL)('goal: no collateral is exit code 3, and nothing is kept: %s', async (words, answer) => {
  await expectNoCollateral(server, [`/rim/${rimIds[1]}`, '/'], [words, answer], () => fetched('--cache', cache))
  expect(readdirSync(cache)).toEqual([])
})

test('goal: a revoked certificate and a response of a stranger are no good verdict, and nothing is kept', async () => {
  responses = await ocspOf(authorities, ({ name }) => (name.includes('BROM') ? { state: 'revoked' } : {}))
  const revoked = await fetched('--cache', cache)
  expect([revoked.code, checksOf(revoked.document, 'FAIL')]).toEqual([1, ['gpu-0/gpu-chain-ocsp']])
  const [certificate, issuer] = revocable(authorities)[0] as readonly [Holder, Holder]
  const answers = [{ certificate, issuer, thisUpdateMs: asOfMs - 1000 }]
  responses = [await ocspResponse({ answers, signer: authorities.rim.signer }), ...gpu.ocsp.slice(1)]
  const forged = await fetched('--cache', cache)
  expect([forged.code, forged.document.ok]).toEqual([2, false])
  expect(readdirSync(cache)).toEqual([])
})

test('goal: no service is asked about certificates of an untrusted root, nor about what cannot be read', async () => {
  const untrusted = await runHere([...base, ...services, ...policy])
  expect([untrusted.code, server.requests]).toEqual([1, []])
  server.requests = []
  const broken = file('broken.json', JSON.stringify({ ...evidenceDocument(gpu.evidence), evidence: 'AAAA' }))
  const { code } = await runHere(
    [...base, ...trusted, ...services, ...policy].map(word => (word === evidence ? broken : word)),
  )
  expect([code, server.requests]).toEqual([2, ocspRequests.slice(3)])
})

// Goal: a device whose manifest does not exist is named, as is a certificate without a response; none is called forged.
test('a missing file', async () => {
  const argv = [...base, ...trusted, ...services, ...policy]
  const none = () => new Response('', { status: 404 })
  server.instead = request => (request.url.includes('VBIOS') ? none() : null)
  const [, vbios] = rimIds
  const manifest = await runHere(argv)
  expect([manifest.code, manifest.stdout]).toEqual([3, ''])
  const words = `manifest ${vbios} of gpu-0: ${server.url}rim/${vbios}: HTTP status 404: the server has no such file`
  expect(manifest.stderr).toContain(words)
  expect(manifest.stderr).toContain('name a mirror by --rim-url, or the file by --rim')
  const two = file('two.json', JSON.stringify([evidenceDocument(gpu.evidence), evidenceDocument(gpu.evidence)]))
  const both = await runHere(argv.map(word => (word === evidence ? two : word)))
  expect([both.code, both.stderr]).toEqual([3, expect.stringContaining(`manifest ${vbios} of gpu-0, gpu-1: `)])
  server.instead = request => (request.method === 'POST' ? none() : null)
  const response = await runHere(argv)
  expect([response.code, response.stderr]).toEqual([3, expect.stringMatching(/OCSP response for SIMULATED .+: .+ 404/)])
})

// Goal: options without effect, and a directory that does not exist, are refused before any request.
test('usage', async () => {
  await expectUsageError([...base, '--cache', cache], '--cache goes with --fetch')
  await expectUsageError([...base, '--rim-url', server.url], '--rim-url goes with --fetch')
  await expectUsageError([...base, '--ocsp-url', server.url], '--ocsp-url goes with --fetch')
  await expectUsageError([...base, '--fetch', '--cache', join(dir, 'none', 'x')], 'none can be made')
})

test('goal: the manifest of switches is fetched once for all of them', async () => {
  const hgx = await simulatedHgx(SMALL)
  const path = '/rim/NV_SWITCH_BIOS_5612_0002_890_9610550001'
  const rims = new Map([
    [path, hgx.switchRim],
    [`/rim/${rimIds[0]}`, hgx.base.driver],
    [`/rim/${rimIds[1]}`, hgx.base.vbios],
  ])
  server.instead = ({ url }) => {
    const { pathname } = new URL(url)
    const bytes = rims.get(pathname)
    return bytes === undefined ? null : rim(pathname, bytes)()
  }
  const { device, rim: ofRims } = hgx.base.authorities
  const pem = [device.root, ofRims.root].map(({ der }) => toPem(der, 'CERTIFICATE')).join('')
  const devices = file('machine.json', JSON.stringify(hgx.question.evidence.map(evidenceDocument)))
  const argv = [
    ...['verify', 'gpu', devices, '--nonce', toHex(nonce), ...asOf(asOfMs), ...services, '--any-ocsp', '--json'],
    ...['--trust-simulated-root', file('machine.pem', pem), '--any-gpu', '--any-devtools'],
  ]
  const { code, stdout } = await runHere(argv)
  expect([code, JSON.parse(stdout).failed]).toEqual([0, null])
  expect(server.requests.toSorted()).toEqual([...rims.keys()].map(asked => `GET ${asked}`).toSorted())

  // Without it, the message names the switches, counted apart from GPUs; of many devices the first twelve.
  rims.delete(path)
  const switches = hgx.question.evidence.filter(({ arch }) => arch === switchArch)
  const names = Array.from({ length: 13 }, (_, at) => `switch-${at}`)
  for (const [count, words] of [
    [switches.length, names.slice(0, switches.length).join(', ')],
    [12, names.slice(0, 12).join(', ')],
    [15, `${names.slice(0, 12).join(', ')} and 3 more`],
  ] as const) {
    const many = Array.from({ length: count }, (_, at) => switches[at % switches.length] as (typeof switches)[number])
    const all = [...hgx.question.evidence.filter(({ arch }) => arch !== switchArch), ...many]
    const lots = file('many.json', JSON.stringify(all.map(evidenceDocument)))
    const missing = await runHere(argv.map(word => (word === devices ? lots : word)).filter(word => word !== '--json'))
    const message = `manifest ${path.slice('/rim/'.length)} of ${words}: `
    expect([count, missing.code, missing.stderr]).toEqual([count, 3, expect.stringContaining(message)])
  }
})
