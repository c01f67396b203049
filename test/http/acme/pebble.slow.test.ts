// Goal: Pebble, which checks every step for real, issues certificates for the names of an appliance by HTTP-01 and by
// DNS-01; clients of a name get its own, all others the local one; they are renewed in time and kept over a restart.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { generateKeyPairSync } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { certificateRequest } from '../../../src/http/acme/request.ts'
import { spkiDigestOf, spkiOf } from '../../../src/linux/keys/spki.ts'
import { domain, type Edge, startEdge, startEdgeDns } from '../../rigs/acme/appliance-edge.ts'
import { hasPebble, startPebble } from '../../rigs/acme/pebble.ts'

const testMs = 120_000
let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-acme-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

const without = skipUnless(hasPebble, 'needs pebble')
const issued = (edge: Edge) => edge.events.filter(({ kind }) => kind === 'tls.acme_issued').length
const caOf = (edge: Edge) => readFileSync(edge.tls.caFile ?? '', 'utf8')

test.skipIf(without)(
  'goal: by DNS-01 each service name gets a certificate of its own, the local one stays for all else',
  async () => {
    const dns = await startEdgeDns()
    await using _dns = { [Symbol.asyncDispose]: () => dns.close() }
    await using pebble = await startPebble({ directory: dir, dnsServer: `127.0.0.1:${dns.port}`, httpPort: 5002 })
    const stateDir = join(dir, 'state')
    const acme = { directory: pebble.directoryUrl, ca_file: pebble.caFile, contact: ['ops@agents.example'] }
    await using edge = await startEdge({ stateDir, dns, acme })
    await until('two certificates', 60_000, () => issued(edge) === 2)
    const root = await pebble.root()
    for (const name of [`instances.${domain}`, `inference.${domain}`]) {
      const found = await edge.shown(name, root)
      expect([found.names, found.problem]).toEqual([`DNS:${name}`, null])
    }
    const local = await edge.shown(null, caOf(edge))
    expect(local.problem).toBe(null)
    expect((await edge.shown('localhost', caOf(edge))).raw).toBe(local.raw)
    // Receipts name one key for all connections.
    expect((await edge.shown(`instances.${domain}`, root)).spki).toBe(local.spki)
    const files = ['certificates.json', readAccountName(stateDir)]
    expect(files.map(file => statSync(join(stateDir, 'acme', file)).mode & 0o777)).toEqual([0o600, 0o600])
  },
  testMs,
)

function readAccountName(stateDir: string): string {
  return [...new Bun.Glob('account-*.json').scanSync(join(stateDir, 'acme'))][0] ?? ''
}

test.skipIf(without)(
  'goal: by HTTP-01 the listener is there for the proof alone, and says nothing but what was asked for',
  async () => {
    const dns = await startEdgeDns()
    await using _dns = { [Symbol.asyncDispose]: () => dns.close() }
    const httpPort = lastingPort()
    await using pebble = await startPebble({ directory: dir, dnsServer: `127.0.0.1:${dns.port}`, httpPort })
    const acme = {
      directory: pebble.directoryUrl,
      ca_file: pebble.caFile,
      challenge: 'http-01' as const,
      http_listen: `127.0.0.1:${httpPort}`,
    }
    await using edge = await startEdge({ stateDir: join(dir, 'state'), dns, acme })
    await until('two certificates', 60_000, () => issued(edge) === 2)
    expect((await edge.shown(`instances.${domain}`, await pebble.root())).problem).toBe(null)
    await expect(fetch(`http://127.0.0.1:${httpPort}/`)).rejects.toThrow()
  },
  testMs,
)

test.skipIf(without)(
  'goal: a certificate is renewed before a third of its time is left, for the same key; a restart orders nothing, by the same account',
  async () => {
    const dns = await startEdgeDns()
    await using _dns = { [Symbol.asyncDispose]: () => dns.close() }
    const validitySeconds = 30 * 86_400
    await using pebble = await startPebble({
      directory: dir,
      dnsServer: `127.0.0.1:${dns.port}`,
      httpPort: 5002,
      validitySeconds,
    })
    const settings = {
      stateDir: join(dir, 'state'),
      dns,
      acme: { directory: pebble.directoryUrl, ca_file: pebble.caFile },
    }
    const name = `instances.${domain}`
    const root = await pebble.root()
    let before: Awaited<ReturnType<Edge['shown']>>
    {
      await using edge = await startEdge(settings)
      await until('two certificates', 60_000, () => issued(edge) === 2)
      before = await edge.shown(name, root)
    }
    let aheadMs = 0
    const clock = { ...systemClock, nowMs: () => Date.now() + aheadMs }
    {
      await using edge = await startEdge({ ...settings, clock })
      expect((await edge.shown(name, root)).raw).toBe(before.raw)
      const next = edge.tls.acme()?.map(({ nextAtMs }) => ((nextAtMs ?? 0) - Date.now()) / 86_400_000) ?? []
      // A third of 30 days is left after 20; the draw takes up to 1.5 days more.
      for (const days of next) expect([days > 18.4, days <= 20]).toEqual([true, true])
    }
    aheadMs = 21 * 86_400_000
    await using edge = await startEdge({ ...settings, clock })
    // Until it is renewed the one of before is served.
    expect((await edge.shown(name, root)).raw).toBe(before.raw)
    await until('it is ordered again', 60_000, () => edge.events.length > 0)
    // Pebble's own clock is not ahead: what it issues is good.
    await until('both are renewed', 60_000, () => issued(edge) === 2)
    const after = await edge.shown(name, root)
    expect([after.raw === before.raw, after.spki === before.spki, after.problem]).toEqual([false, true, null])
    expect(pebble.log().split('accounts in memory')).toHaveLength(2)
  },
  testMs,
)

test.skipIf(without)(
  'goal: a server that binds accounts gets the key that it gave, and one without it is told so by name',
  async () => {
    const dns = await startEdgeDns()
    await using _dns = { [Symbol.asyncDispose]: () => dns.close() }
    const secret = 'zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W'
    await using pebble = await startPebble({
      directory: dir,
      dnsServer: `127.0.0.1:${dns.port}`,
      httpPort: 5002,
      bindings: { 'kid-1': secret },
    })
    const acme = { directory: pebble.directoryUrl, ca_file: pebble.caFile }
    {
      await using edge = await startEdge({ stateDir: join(dir, 'without'), dns, acme })
      await until('a failure', 60_000, () => edge.events.some(({ kind }) => kind === 'tls.acme_failed'))
      const [first] = edge.tls.acme() ?? []
      expect(first?.failure?.type).toBe('urn:ietf:params:acme:error:externalAccountRequired')
    }
    const file = join(dir, 'eab.key')
    writeFileSync(file, `${secret}\n`)
    const bound = { ...acme, eab_kid: 'kid-1', eab_key_file: file }
    await using edge = await startEdge({ stateDir: join(dir, 'with'), dns, acme: bound })
    await until('two certificates', 60_000, () => issued(edge) === 2)
  },
  testMs,
)

test.skipIf(without)(
  'goal: a proof that fails leaves the local certificate in service, names the type of the problem, and does not hammer',
  async () => {
    const dns = await startEdgeDns()
    await using _dns = { [Symbol.asyncDispose]: () => dns.close() }
    await using pebble = await startPebble({
      directory: dir,
      dnsServer: `127.0.0.1:${dns.port}`,
      httpPort: lastingPort(),
    })
    const acme = {
      directory: pebble.directoryUrl,
      ca_file: pebble.caFile,
      challenge: 'http-01' as const,
      http_listen: '127.0.0.1:0',
    }
    await using edge = await startEdge({ stateDir: join(dir, 'state'), dns, acme })
    await until('both have failed', 60_000, () => edge.tls.acme()?.every(({ failure }) => failure !== null))
    const [first] = edge.tls.acme() ?? []
    expect(first?.failure?.type).toStartWith('urn:ietf:params:acme:error:')
    expect((first?.nextAtMs ?? 0) - Date.now()).toBeGreaterThan(200_000)
    const shown = await edge.shown(`instances.${domain}`, caOf(edge))
    expect([shown.problem, shown.names.includes('IP Address:127.0.0.1')]).toEqual([null, true])
  },
  testMs,
)

test.skipIf(without)(
  'goal: a gateway VM gets certificates for its own key, by requests of that key alone, and what it would get bears another stamp then',
  async () => {
    const dns = await startEdgeDns()
    await using _dns = { [Symbol.asyncDispose]: () => dns.close() }
    await using pebble = await startPebble({ directory: dir, dnsServer: `127.0.0.1:${dns.port}`, httpPort: 5002 })
    const acme = { directory: pebble.directoryUrl, ca_file: pebble.caFile }
    await using edge = await startEdge({ stateDir: join(dir, 'state'), dns, acme, placement: 'vm' })
    const [key, other] = [newKey(), newKey()]
    const name = `inference.${domain}`
    const csr = certificateRequest(null, key)
    const first = await edge.tls.certify(csr, { byName: true, follows: true })
    expect([first.requests, first.named]).toEqual([[name], []])
    const foreign = [{ name, csr: certificateRequest(name, other) }]
    expect(
      (await failure(edge.tls.certify(csr, { byName: true, follows: true, requests: foreign }))).message,
    ).toContain('another key')
    const requests = [{ name, csr: certificateRequest(name, key) }]
    const second = await edge.tls.certify(csr, { byName: true, follows: true, requests })
    const [named] = second.named ?? []
    expect(named?.serverName).toBe(name)
    const digest = new Bun.CryptoHasher('sha256').update(spkiOf(key)).digest('hex')
    expect(Buffer.from(spkiDigestOf(named?.cert ?? '')).toString('hex')).toBe(digest)
    expect(second.stamp).toBe(edge.tls.stamp())
    expect(second.stamp).not.toBe(first.stamp)
    // A VM from before gets no names to ask for, and a certificate with all names.
    const old = await edge.tls.certify(csr, { byName: false })
    expect(Object.keys(old).toSorted()).toEqual(['clients', 'guests'])
  },
  testMs,
)

function newKey(): string {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' })
    .privateKey.export({ format: 'pem', type: 'pkcs8' })
    .toString()
}
