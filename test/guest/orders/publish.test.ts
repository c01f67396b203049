// Goal: an order publishes a port with a key that stays in the VM; the host's certificate is taken for that key alone;
// what is served is in the statement at all times.

import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { dirname, join } from 'node:path'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'
import { fromBase64Url } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { PublishedResult } from '../../../src/client/orders/published-wait.ts'
import { checkValue } from '../../../src/contract/check.ts'
import { AgentResponse } from '../../../src/contract/vm/agent-responses.ts'
import { publishedEgressBytes, publishedMax } from '../../../src/contract/vm/orders/published.ts'
import { endpointPort } from '../../../src/guest/gateway/address.ts'
import { createPublishing, type Publishing } from '../../../src/guest/orders/publish.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { readPublished } from '../../../src/guest/published/state.ts'
import { type Authority, openAuthority } from '../../../src/http/authority.ts'
import { spkiSha256Of } from '../../../src/linux/keys/spki.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-publish-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))
const { uid, gid } = userInfo()
const hostname = 'abcd2345.acme.vm.example'
let ca: Authority
beforeAll(async () => {
  const names = ['vm.example']
  ca = await openAuthority({ kind: 'clients', stateDir: dir, names, nowMs: Date.now, random: systemRandom })
})

let paths = guestPaths('')
let publishing: Publishing
/** Each start and stop of the process that serves the ports, with the names in the file at that moment. */
let acts: string[]
const names = () => readPublished(paths).map(({ name, chain }) => `${name}${chain === null ? '' : '+'}`)
/** Whether the process starts. */
let starts = true
const act = (what: string) => async () => {
  acts.push(`${what} ${names().join(',')}`)
  if (what === 'start' && !starts) throw new Error('it does not start')
}

const open = () =>
  createPublishing({
    paths,
    system: { uid, gid },
    publishedGid: gid,
    daemon: { start: act('start'), stop: act('stop'), signal: () => false },
    claim: () => ({ hostname }),
  })

beforeEach(() => {
  paths = guestPaths(mkdtempSync(join(dir, 'root-')))
  mkdirSync(dirname(paths.published), { recursive: true })
  acts = []
  starts = true
  publishing = open()
})

const order = (body: unknown) => publishing.publish(body, { counter: 1 })
const publish = (name: string, port: number | null = 3_000) => order({ name, port })
async function refused(body: unknown): Promise<string> {
  const outcome = await order(body)
  return outcome.ok ? 'carried out' : outcome.message
}

async function certified(name: string, host = `${name}.${hostname}`): Promise<string> {
  const asked = publishing.requests().find(request => request.name === name)
  const { Pkcs10CertificateRequest } = await loadX509()
  const request = new Pkcs10CertificateRequest(Uint8Array.from(fromBase64Url(asked?.csr ?? '') ?? []))
  expect(await request.verify()).toBe(true)
  return await ca.certify(new Uint8Array(request.publicKey.rawData), [host], 30)
}

test('goal: without an order nothing is stated, requested, written or started', async () => {
  await publishing.restore()
  expect([publishing.stated(), publishing.requests(), acts]).toEqual([null, [], []])
  expect(() => statSync(paths.published)).toThrow()
})

test('goal: a port is published, certified, moved with its key kept, and unpublished', async () => {
  const outcome = await publish('web')
  if (!outcome.ok) throw new Error(outcome.message)
  expect(checkValue(PublishedResult, outcome.result).ok).toBe(true)
  const [port] = readPublished(paths)
  if (port === undefined) throw new Error('nothing is published')
  expect(port.host).toBe(`web.${hostname}`)
  expect(publishing.stated()).toEqual([`{"keySha256":"${port.keySha256}","name":"web","port":3000}`])
  expect(statSync(paths.published).mode & 0o777).toBe(0o640)
  const answer = { id: 'r', ok: true, isIdle: false, published: publishing.requests() }
  expect(checkValue(AgentResponse, answer).ok).toBe(true)
  // Not served without a certificate.
  expect(acts).toEqual([])
  const chain = await certified('web')
  expect(await publishing.take({ name: 'web', chain, problem: null })).toEqual({ ok: true })
  // The process ends before the file changes.
  expect(acts).toEqual(['stop web', 'start web+'])
  expect(await publishing.take({ name: 'web', chain, problem: null })).toEqual({ ok: true })
  expect(acts).toHaveLength(2)
  await publish('web', 4_000)
  expect(readPublished(paths)).toEqual([{ ...port, chain, port: 4_000 }])
  await publish('api')
  // Another agent takes over what it finds.
  publishing = open()
  await publishing.restore()
  expect(acts.slice(2)).toEqual(['stop web+', 'start web+', 'start api,web+'])
  expect((await publish('web', null)).ok).toBe(true)
  expect(acts.slice(5)).toEqual(['stop api,web+'])
  await publish('web')
  expect(readPublished(paths).find(({ name }) => name === 'web')?.keySha256).not.toBe(port.keySha256)
})

test('goal: the host cannot put in a chain for another key, or what is no chain', async () => {
  await publish('web')
  await publish('api')
  const [other, own] = [await certified('api'), await certified('web')]
  const foreign = (await ca.issue([`web.${hostname}`], 30)).cert
  // For the key, but another name; and one whose second certificate would keep the process from starting.
  const elsewhere = await certified('web', 'web.other234.acme.vm.example')
  const junk = `${own}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`
  for (const chain of [other, foreign, elsewhere, junk, '', 'x', own.replace('CERTIFICATE', 'PRIVATE KEY')]) {
    const taken = await publishing.take({ name: 'web', chain, problem: null })
    expect([chain.slice(0, 40), taken.ok]).toEqual([chain.slice(0, 40), false])
  }
  expect((await publishing.take({ name: 'www', chain: own, problem: null })).ok).toBe(false)
  expect(acts).toEqual([])
  // A problem says why, and takes no certificate away.
  await publishing.take({ name: 'web', chain: own, problem: null })
  await publishing.take({ name: 'web', chain: null, problem: 'the server is away' })
  const web = readPublished(paths).find(({ name }) => name === 'web')
  expect([web?.chain, web?.problem]).toEqual([own, 'the server is away'])
  expect(web?.keySha256).not.toBe(spkiSha256Of(new Uint8Array()))
})

test('goal: a question changes nothing, so whoever waits for a port does not publish it again', async () => {
  await publish('web')
  await publish('web', null)
  expect(await order({ name: 'web' })).toEqual({ ok: true, result: { published: [] } })
  expect([publishing.stated(), readPublished(paths)]).toEqual([null, []])
  await publish('web')
  await publishing.take({ name: 'web', chain: null, problem: 'no room' })
  const asked = await order({ name: 'web' })
  expect(asked).toMatchObject({ result: { published: [{ name: 'web', isCertified: false, problem: 'no room' }] } })
})

test('goal: a new order begins without the problem of an earlier one, and keeps its part of the cap', async () => {
  await order({ name: 'web', port: 3_000, egressBytes: 5_000 })
  const [request] = publishing.requests()
  await publishing.take({ name: 'web', chain: null, problem: 'no room' })
  expect(await publish('web')).toMatchObject({ result: { published: [{ problem: null, egressBytes: 5_000 }] } })
  // One request for one key: nothing is signed at each poll.
  expect(publishing.requests()).toEqual(request === undefined ? [] : [request])
  await order({ name: 'web', port: 3_000, egressBytes: 6_000 })
  expect(publishing.requests()).toMatchObject([{ csr: request?.csr, egressBytes: 6_000 }])
  await publish('api')
  expect(publishing.requests()).toMatchObject([{ egressBytes: publishedEgressBytes }, { egressBytes: 6_000 }])
  // A port that is certified keeps its problem, about the part of the cap, until an order changes that.
  await publishing.take({ name: 'web', chain: await certified('web'), problem: null })
  await publishing.take({ name: 'web', chain: null, problem: 'used up' })
  expect(await publish('web')).toMatchObject({ result: { published: [{}, { problem: 'used up' }] } })
  const raised = await order({ name: 'api', port: 3_000, egressBytes: 6_000 })
  expect(raised).toMatchObject({ result: { published: [{ problem: null }, { name: 'web', problem: null }] } })
  for (const egressBytes of [0, -1, 0.5, 2 ** 45, '1']) {
    expect(await refused({ name: 'web', port: 3_000, egressBytes })).toContain('egressBytes')
  }
})

test('goal: a process that does not start is started once the host hands in again what it then sees missing', async () => {
  await publish('web')
  const chain = await certified('web')
  starts = false
  const hand = () => publishing.take({ name: 'web', chain, problem: null })
  expect(await hand().catch(() => 'failed')).toBe('failed')
  // Not certified, because it is not served.
  expect(await order({ name: 'web' })).toMatchObject({ result: { published: [{ isCertified: false }] } })
  expect(publishing.requests()).toMatchObject([{ chainSha256: null }])
  // Neither does another agent end by it.
  publishing = open()
  await publishing.restore()
  expect(publishing.requests()).toMatchObject([{ chainSha256: null }])
  starts = true
  expect(await hand()).toEqual({ ok: true })
  expect(publishing.requests()).toMatchObject([{ chainSha256: expect.stringMatching(/^[0-9a-f]{64}$/) }])
  expect(acts.at(-1)).toBe('start web+')
  expect(await order({ name: 'web' })).toMatchObject({ result: { published: [{ isCertified: true }] } })
})

test('goal: what cannot be published is refused with the field and the remedy', async () => {
  for (const name of ['', 'Web', '-a', 'a.b', 'a-', '*', '_acme', '1a', 'x'.repeat(33)]) {
    expect([name, await refused({ name, port: 3_000 })]).toEqual([name, expect.stringContaining('name')])
  }
  for (const port of [0, 22, 443, 1_023, 65_536, 3.5, '3000']) {
    expect([port, await refused({ name: 'web', port })]).toEqual([port, expect.stringContaining('port')])
  }
  expect(await refused({ name: 'web', port: endpointPort })).toContain('anyone could use your key')
  expect(await refused({ name: 'web', port: null })).toContain('web is not published')
  for (const port of [{}, { port: null }]) {
    expect(await refused({ name: 'web', ...port, egressBytes: 5_000 })).toContain('egressBytes: order it together')
  }
  for (let at = 0; at < publishedMax; at += 1) expect((await publish(`a${at}`)).ok).toBe(true)
  expect(await refused({ name: 'web', port: 3_000 })).toContain('unpublish one first')
  expect((await publish('a0', 5_000)).ok).toBe(true)
})
