// Names that are added, and a domain that changes, as clients meet them who trust an earlier root: real TLS.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { X509Certificate } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { loadX509 } from '../../src/attest/x509/runtime.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import type { Config } from '../../src/config/schema.ts'
import { createTls } from '../../src/http/certificate.ts'
import { serveTls } from '../../src/http/serve.ts'
import { spkiDigestOf } from '../../src/linux/keys/spki.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-names-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

/** How a client fares that trusts this root, by this name or, without one, by address. */
function reach(port: number, ca: string, name: string | null): Promise<string> {
  return new Promise(resolve => {
    const socket = connect({ host: '127.0.0.1', port, ca, ...(name === null ? {} : { servername: name }) }, () => {
      socket.destroy()
      resolve('reached')
    })
    socket.on('error', (error: Error) => resolve(String(Reflect.get(error, 'code'))))
  })
}

async function served(
  config: Partial<Config['tls']> & { domain?: string; isFresh?: boolean } = {},
  clock = systemClock,
) {
  const { domain = 'agents.internal', isFresh = false, ...tls } = config
  const events: string[] = []
  const own = await createTls({
    config: { ...defaultConfig(), domain, tls: { ...defaultConfig().tls, ...tls } },
    stateDir: dir,
    clock,
    random: systemRandom,
    log: silentLogger,
    onEvent: kind => events.push(kind),
    isFresh,
  })
  const server = serveTls(() => new Response('hello'), {
    hostname: '127.0.0.1',
    port: 0,
    tls: own,
    idleTimeoutSeconds: 30,
    requestBodyBytesMax: 65_536,
    log: silentLogger,
  })
  return {
    tls: own,
    events,
    ca: readFileSync(join(dir, 'ca', 'ca.pem'), 'utf8'),
    reach: (ca: string, name: string | null) => reach(server.port, ca, name),
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      own.stop()
    },
  }
}

const refused = expect.not.stringContaining('reached')

test('goal: a name that is added breaks no client: those of before go on by all their names, the new one needs the new root', async () => {
  let first: string
  {
    await using before = await served()
    first = before.ca
    expect(await before.reach(first, 'instances.agents.internal')).toBe('reached')
  }
  await using after = await served({ names: ['box.example', '*.wild.example', 'x.agents.internal'] })
  for (const name of ['agents.internal', 'inference.agents.internal', 'x.agents.internal', 'localhost', null]) {
    expect([name, await after.reach(first, name)]).toEqual([name, 'reached'])
    expect([name, await after.reach(after.ca, name)]).toEqual([name, 'reached'])
  }
  for (const name of ['box.example', 'a.wild.example']) {
    expect([name, await after.reach(after.ca, name)]).toEqual([name, 'reached'])
    expect([name, await after.reach(first, name)]).toEqual([name, refused])
  }
  // Receipts name one key, whatever name a client calls.
  const keys = [after.tls.current().cert, ...after.tls.named().map(({ cert }) => cert)].map(spkiDigestOf)
  expect(new Set(keys.map(digest => digest.toHex())).size).toBe(1)
})

test('goal: a change of the domain is announced, and for a while both domains are reached by those who trust their root', async () => {
  const old = ['instances.agents.internal', 'localhost', null]
  let first: string
  {
    await using before = await served()
    first = before.ca
  }
  let announced: string
  {
    await using before = await served({ announced_names: ['new.example'] })
    announced = before.ca
    expect(announced).not.toBe(first)
    for (const ca of [first, announced]) for (const name of old) expect(await before.reach(ca, name)).toBe('reached')
  }
  {
    await using after = await served({ domain: 'new.example' })
    expect(after.events).toContain('tls.former_names')
    expect(after.tls.former()?.names).toContain('agents.internal')
    for (const name of old) expect([name, await after.reach(first, name)]).toEqual([name, 'reached'])
    // Clients that took the announced root reach both, before and after.
    for (const name of [...old, 'instances.new.example', 'new.example'])
      expect([name, await after.reach(announced, name)]).toEqual([name, 'reached'])
    expect(await after.reach(first, 'instances.new.example')).toEqual(refused)
  }
  {
    await using again = await served({ domain: 'new.example' })
    expect(await again.reach(first, 'instances.agents.internal')).toBe('reached')
  }
  const later = { ...systemClock, nowMs: () => Date.now() + 31 * 86_400_000 }
  await using ended = await served({ domain: 'new.example' }, later)
  expect(ended.tls.former()).toBeNull()
  expect(await ended.reach(first, 'instances.agents.internal')).toEqual(refused)
  expect(await ended.reach(announced, 'instances.new.example')).toBe('reached')
})

test('goal: a state directory from before leaves were apart keeps its authority, and its clients', async () => {
  let first: string
  {
    await using before = await served({ names: ['box.example'] })
    first = before.ca
  }
  rmSync(join(dir, 'tls', 'names.json'))
  await using after = await served({ names: ['box.example'] })
  expect(after.ca).toBe(first)
  for (const name of ['box.example', 'agents.internal', null]) expect(await after.reach(first, name)).toBe('reached')
  expect([after.tls.former(), after.events]).toEqual([null, []])
})

test('goal: without an overlap a change of the domain is made at once', async () => {
  ;(await served())[Symbol.asyncDispose]()
  await using after = await served({ domain: 'new.example', overlap_days: 0 })
  expect(after.tls.former()).toBeNull()
  expect(await after.reach(after.ca, 'agents.internal')).toEqual(refused)
  expect(await after.reach(after.ca, 'new.example')).toBe('reached')
})

test('goal: a gateway VM that asks by name gets each name apart, for its own key; one that does not gets all in one', async () => {
  await using after = await served({ names: ['box.example'] })
  const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify'])
  const { Pkcs10CertificateRequestGenerator } = await loadX509()
  const signingAlgorithm = { name: 'ECDSA', hash: 'SHA-256' }
  const request = await Pkcs10CertificateRequestGenerator.create({ name: 'CN=x', keys, signingAlgorithm })
  const csr = new Uint8Array(request.rawData)
  const namesOf = (cert: string) => new X509Certificate(cert).subjectAltName ?? ''
  const apart = await after.tls.certify(csr, { byName: true })
  expect(namesOf(apart.clients)).toContain('DNS:instances.agents.internal')
  expect(namesOf(apart.clients)).not.toContain('box.example')
  expect(apart.named?.map(({ serverName, cert }) => [serverName, namesOf(cert)])).toEqual([
    ['box.example', 'DNS:box.example'],
  ])
  const digests = [apart.clients, apart.guests, ...(apart.named ?? []).map(({ cert }) => cert)].map(spkiDigestOf)
  expect(new Set(digests.map(digest => digest.toHex())).size).toBe(1)
  const together = await after.tls.certify(csr, { byName: false })
  expect(namesOf(together.clients)).toContain('DNS:box.example')
  expect(together.named).toBeUndefined()
})

test('goal: a host that nobody can know yet takes its domain without a trace of the former one', async () => {
  {
    await using _ = await served({ isFresh: true })
  }
  await using host = await served({ domain: 'agents.example', isFresh: true })
  expect(host.tls.former()).toBeNull()
  expect(host.events).toEqual([])
  expect(await host.reach(host.ca, 'instances.agents.example')).toBe('reached')
  expect(await host.reach(host.ca, 'instances.agents.internal')).toEqual(refused)
  await using known = await served({ domain: 'agents.test' })
  expect(known.events.toSorted()).toEqual(['tls.authority_replaced', 'tls.former_names'])
})
