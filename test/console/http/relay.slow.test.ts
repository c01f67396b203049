// Goal: the relay to services A, B and C serves nobody without a key or a session, counts by the visitor's own address,
// and holds no more than its bounds for all, for one address and for one organization.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { serverAuthority } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { relayTo } from '../../../src/appliance/console/tenant.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { createRelay, RELAY_BOUNDS, type RelayBounds } from '../../../src/console/http/relay.ts'
import type { TenantServices, Visitor } from '../../../src/console/http/tenant.routes.ts'
import type { Session } from '../../../src/console/sessions/sessions.ts'
import { createPublicLimiter } from '../../../src/http/public-rate.ts'
import { revokeKey } from '../../../src/store/directory/key.query.ts'
import { setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import { logIn, pageHeaders, startConsole, tenantKey } from '../../rigs/console/console.ts'

const SERVICES = ['instances', 'inference', 'builds'] as const

/** Three services that answer everything, and note what they were asked for. */
function openServices() {
  const seen: string[] = []
  const serving = (name: string) => async (request: Request) => {
    seen.push(`${name} ${new URL(request.url).pathname}`)
    return new Response('from the service')
  }
  const services = {
    instances: { fetch: serving('instances') },
    builds: { fetch: serving('builds') },
    gateway: { url: null, fetch: serving('inference') },
  }
  return { seen, services }
}

test('goal: the bounds of what goes through the console, written out', () => {
  expect(RELAY_BOUNDS).toEqual({
    openMax: 256,
    requestsPerMinute: 600,
    requestBytesMax: 1_610_612_736,
    responseBytesMax: 1_073_741_824,
    exchangeMs: 3_600_000,
  })
})

test('goal: a visitor without a good key and without a session reaches no service, and learns of none', async () => {
  const { seen, services } = openServices()
  await using rig = await startConsole({ services })
  const [ca, gw, revoked, suspended] = [
    tenantKey(rig, 'ca'),
    tenantKey(rig, 'gw'),
    tenantKey(rig, 'ca'),
    tenantKey(rig, 'ca', 'away'),
  ]
  const { db } = rig.store.directory
  revokeKey(db, { prefix: revoked.slice(3, 11), nowMs: Date.now() })
  setOrganizationStatus(db, { slug: 'away', status: 'suspended' })
  const statusOf = async (path: string, authorization: string | null) =>
    (await rig.send(`/api/tenant${path}`, { headers: authorization === null ? {} : { authorization } })).status
  const paths = ['/instances/v1/me', '/inference/health', '/inference/attestation', '/builds/health', '', '/other/x']
  const other = `${ca.slice(0, -1)}${ca.endsWith('0') ? '1' : '0'}`
  const bad = [null, '', 'Bearer ca_x', `Basic ${btoa(ca)}`, `Bearer ${other}`, `Bearer ${revoked}`]
  for (const path of paths) {
    for (const authorization of bad) {
      expect([path, authorization, await statusOf(path, authorization)]).toEqual([path, authorization, 401])
    }
    expect([path, await statusOf(path, `Bearer ${suspended}`)]).toEqual([
      path,
      path.startsWith('/inference') ? 401 : 403,
    ])
  }
  // Each service has its own kind of key.
  expect(await statusOf('/inference/health', `Bearer ${ca}`)).toBe(401)
  expect(await statusOf('/instances/v1/me', `Bearer ${gw}`)).toBe(401)
  expect(await statusOf('/builds/health', `Bearer ${gw}`)).toBe(401)
  expect(seen).toEqual([])

  expect(await statusOf('/instances/v1/me', `Bearer ${ca}`)).toBe(200)
  expect(await statusOf('/inference/health', `Bearer ${gw}`)).toBe(200)
  expect(await statusOf('/builds/health', `Bearer ${ca}`)).toBe(200)
  for (const key of [ca, gw]) expect(await statusOf('', `Bearer ${key}`)).toBe(200)
  expect(seen).toEqual(['instances /v1/me', 'inference /health', 'builds /health'])
})

test('goal: a session reaches the services too, and a bad key is no less bad with it', async () => {
  const { seen, services } = openServices()
  await using rig = await startConsole({ services })
  const cookie = await logIn(rig)
  for (const name of SERVICES) {
    expect((await rig.send(`/api/tenant/${name}/health`, { headers: { cookie } })).status).toBe(200)
  }
  expect((await rig.send('/api/tenant', { headers: { cookie } })).status).toBe(200)
  const both = { cookie, authorization: 'Bearer ca_x' }
  expect((await rig.send('/api/tenant/instances/health', { headers: both })).status).toBe(401)
  await rig.send('/api/session', { method: 'DELETE', headers: pageHeaders(rig.origin, cookie) })
  expect((await rig.send('/api/tenant/instances/health', { headers: { cookie } })).status).toBe(401)
  expect(seen).toEqual(['instances /health', 'inference /health', 'builds /health'])
})

/** A gateway as in its VM: what needs no key it counts by the address that it sees, which is this host's. */
async function gatewayInVm(requestsPerMinute: number) {
  const authority = await serverAuthority()
  const { cert, key } = await authority.issue(['127.0.0.1'], 1)
  const { admitPublic } = createPublicLimiter({ clock: systemClock, requestsPerMinute })
  const server = Bun.serve({
    ...{ hostname: '127.0.0.1', port: 0, development: false, tls: { cert, key } },
    fetch: (request, bun) => {
      const isPublic = !new URL(request.url).pathname.startsWith('/v1/')
      const refusal = isPublic ? admitPublic(bun.requestIP(request)?.address ?? '') : null
      return new Response(null, { status: refusal === null ? 200 : 429 })
    },
  })
  const folder = mkdtempSync(join(tmpdir(), 'strongroom-relay-'))
  const caFile = join(folder, 'ca.pem')
  writeFileSync(caFile, authority.caPem)
  return {
    url: `https://127.0.0.1:${server.port}`,
    caFile,
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

test('goal: one visitor does not use up what the gateway in its VM admits from the address of this host', async () => {
  await using gateway = await gatewayInVm(60)
  const { url, caFile } = gateway
  const clock = createManualClock()
  const relay = relayTo({ url, caFile, clock, publicRequestsPerMinute: 60 })
  const ask = async (address: string, owner: string, path = '/attestation') => {
    const visitor: Visitor = { address: () => address, owner, mayPause: () => {} }
    const answer = async () => (await relay(new Request(`https://x${path}`), visitor)).status
    return await answer().catch((error: unknown) => (error instanceof Fault ? error.code : String(error)))
  }
  const many = async (count: number, address: (at: number) => string, owner: (at: number) => string) => {
    const answers: unknown[] = []
    for (let at = 0; at < count; at += 1) answers.push(await ask(address(at), owner(at)))
    return answers.filter(answer => answer === 200).length
  }
  expect(
    await many(
      80,
      () => '192.0.2.1',
      () => 'organization a',
    ),
  ).toBe(7)
  // Neither with more keys at one address, nor with one key at more addresses.
  expect(
    await many(
      80,
      () => '192.0.2.1',
      at => `organization ${at}`,
    ),
  ).toBe(0)
  expect(
    await many(
      80,
      at => `198.51.100.${at}`,
      () => 'organization a',
    ),
  ).toBe(0)
  expect(
    await many(
      80,
      () => '2001:db8:1:2::1',
      () => 'organization b',
    ),
  ).toBe(7)
  expect(
    await many(
      80,
      at => `2001:db8:1:2::${at}`,
      at => `organization c${at}`,
    ),
  ).toBe(0)
  expect(await ask('203.0.113.9', 'organization d')).toBe(200)
  // The VM counts these by their key.
  expect(
    await many(
      20,
      () => '192.0.2.1',
      () => 'organization a',
    ),
  ).toBe(0)
  for (let count = 0; count < 20; count += 1) expect(await ask('192.0.2.1', 'organization a', '/v1/models')).toBe(200)
  for (const path of ['//v1/models', '/attestation/', '/v1/../health', '/v1/%2e%2e/health', '/V1/models']) {
    expect([path, await ask('192.0.2.1', 'organization a', path)]).toEqual([path, 'rate_limited'])
  }
})

type Respond = (request: Request, visitor: Visitor) => Response | Promise<Response>

/** The relay before a service of the test, for keys that are `Bearer OWNER`. */
function relayBefore(
  respond: Respond,
  changed: Partial<RelayBounds> = {},
  clock = createManualClock(),
  ownerOfKey: TenantServices['ownerOfKey'] = async headers =>
    (headers.get('authorization') ?? '').slice('Bearer '.length),
) {
  const services: TenantServices = {
    maintenance: () => null,
    urls: { instances: null, inference: null, builds: null },
    ownerOfKey,
    ...{ instances: respond, inference: null, builds: null },
  }
  const relay = createRelay({ clock, services, bounds: { ...RELAY_BOUNDS, ...changed } })
  type From = {
    address?: string
    owner?: string
    session?: Session
    signal?: AbortSignal
    body?: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>
  }
  return async ({ address = '192.0.2.1', owner = 'a', session, signal, body }: From = {}) => {
    const headers: Record<string, string> = session === undefined ? { authorization: `Bearer ${owner}` } : {}
    const init = {
      headers,
      ...(body === undefined ? {} : { method: 'POST', body }),
      ...(signal === undefined ? {} : { signal }),
    }
    return await relay({
      request: new Request('https://localhost/api/tenant/instances/x', init),
      ...{ path: '/api/tenant/instances/x', search: '', session: () => session ?? null },
      peer: { address: () => address, mayPause: () => {} },
    })
  }
}

const open = () => new Response(new ReadableStream({ start: controller => controller.enqueue(new Uint8Array(1)) }))

const codeOf = async (response: Promise<Response>) =>
  await response.then(
    ({ status }) => status,
    (error: unknown) => (error instanceof Fault ? error.code : String(error)),
  )

test('goal: open requests are bounded for one organization, one address and all; each that ends makes room', async () => {
  const ask = relayBefore(open, { openMax: 16 })
  const held: Response[] = []
  const hold = async (from: { address: string; owner: string }) => void held.push(await ask(from))
  await hold({ address: '192.0.2.1', owner: 'a' })
  await hold({ address: '192.0.2.2', owner: 'a' })
  expect(await codeOf(ask({ address: '192.0.2.3', owner: 'a' }))).toBe('rate_limited')
  for (const owner of ['b', 'c', 'd']) await hold({ address: '192.0.2.1', owner })
  expect(await codeOf(ask({ address: '192.0.2.1', owner: 'e' }))).toBe('rate_limited')
  for (let count = held.length; count < 16; count += 1) {
    await hold({ address: `198.51.100.${count}`, owner: `other ${count}` })
  }
  expect(await codeOf(ask({ address: '203.0.113.1', owner: 'last' }))).toBe('rate_limited')
  await held[0]?.body?.cancel()
  expect(await codeOf(ask({ address: '203.0.113.1', owner: 'last' }))).toBe(200)
})

test('goal: a place is given back at a read end, a failure, a refusal and a response without a body', async () => {
  const failing = () => new Response(new ReadableStream({ pull: () => Promise.reject(new Error('broken')) }))
  const answers: readonly Respond[] = [
    () => new Response('whole'),
    failing,
    () => new Response(null, { status: 204 }),
    () => Promise.reject(new Fault('conflict', 'no')),
    () => {
      throw new Fault('conflict', 'no')
    },
  ]
  let next = 0
  // One at a time for an owner.
  const ask = relayBefore((...asked) => answers[next++ % answers.length]?.(...asked) ?? open(), { openMax: 8 })
  const outcomes: unknown[] = []
  for (let count = 0; count < 2 * answers.length; count += 1) {
    outcomes.push(
      await ask()
        .then(
          response => response.text(),
          error => error.code,
        )
        .catch(error => error.message),
    )
  }
  expect(outcomes.slice(0, 5)).toEqual(['whole', 'broken', '', 'conflict', 'conflict'])
  expect(outcomes.slice(5)).toEqual(outcomes.slice(0, 5))
})

test('goal: one address sends so many requests a minute, and another its own', async () => {
  const ask = relayBefore(() => new Response('x'), { requestsPerMinute: 3 })
  const codes: unknown[] = []
  for (let count = 0; count < 5; count += 1) codes.push(await codeOf(ask({ owner: `o${count}` })))
  expect(codes).toEqual([200, 200, 200, 'rate_limited', 'rate_limited'])
  expect(await codeOf(ask({ address: '192.0.2.2' }))).toBe(200)
})

test('goal: requests with bad keys count for their address, and no key is looked up beyond its limit', async () => {
  let lookups = 0
  const refuse = () => {
    lookups += 1
    return Promise.reject(new Fault('unauthenticated', 'no'))
  }
  const ask = relayBefore(() => new Response('x'), { requestsPerMinute: 3 }, undefined, refuse)
  const codes: unknown[] = []
  for (let count = 0; count < 5; count += 1) codes.push(await codeOf(ask()))
  expect(codes).toEqual(['unauthenticated', 'unauthenticated', 'unauthenticated', 'rate_limited', 'rate_limited'])
  expect(lookups).toBe(3)
})

test('goal: a response beyond the bound is refused or fails, and never passes for a whole one', async () => {
  const big = new Uint8Array(11)
  const declared = relayBefore(() => new Response(big, { headers: { 'content-length': '11' } }), {
    responseBytesMax: 10,
  })
  expect(await codeOf(declared())).toBe('body_too_large')
  const pieces = () =>
    new Response(
      new ReadableStream({
        start: controller => {
          controller.enqueue(big.subarray(0, 6))
          controller.enqueue(big.subarray(0, 5))
          controller.close()
        },
      }),
    )
  const chunked = await relayBefore(pieces, { responseBytesMax: 10 })()
  await expect(chunked.arrayBuffer()).rejects.toThrow('has more than the 10 bytes')
  expect((await (await relayBefore(pieces, { responseBytesMax: 11 })()).arrayBuffer()).byteLength).toBe(11)
})

test('goal: a request beyond the bound does not come to the service whole', async () => {
  const got: unknown[] = []
  const note: Respond = async request => {
    got.push(
      await request.arrayBuffer().then(
        ({ byteLength }) => byteLength,
        () => 'failed',
      ),
    )
    return new Response('x')
  }
  const ask = relayBefore(note, { requestBytesMax: 10 })
  await ask({ body: new Uint8Array(10) })
  await ask({ body: new Blob([new Uint8Array(6), new Uint8Array(5)]).stream() })
  expect(got).toEqual([10, 'failed'])
})

test('goal: an exchange ends after its time, before its response and within it', async () => {
  const clock = createManualClock()
  const signals: AbortSignal[] = []
  const silent: Respond = request => {
    signals.push(request.signal)
    return new Promise(() => {})
  }
  const late = codeOf(relayBefore(silent, { exchangeMs: 5_000 }, clock)())
  await until('the service is asked', 10_000, () => signals.length === 1)
  await clock.elapse(5_001)
  expect(await late).toBe('attestation_unavailable')
  expect(signals[0]?.aborted).toBe(true)
  const response = await relayBefore(open, { exchangeMs: 5_000 }, clock)()
  const reader = response.body?.getReader()
  expect((await reader?.read())?.value).toHaveLength(1)
  const rest = reader?.read()
  await clock.elapse(5_001)
  await expect(rest).rejects.toThrow('at most 5 s')
})

test('goal: a client that leaves frees its place though the service does not notice', async () => {
  const leaving = new AbortController()
  const ask = relayBefore(() => new Promise(() => {}), { openMax: 8 })
  const left = codeOf(ask({ signal: leaving.signal }))
  await Promise.resolve()
  leaving.abort()
  expect(await left).toBe(499)
  const again = codeOf(ask({ signal: AbortSignal.abort() }))
  expect(await again).toBe(499)
})

test('goal: what a session began ends with it', async () => {
  const ending = new AbortController()
  const person = { uid: 0, actor: 'root', role: 'admin' } as const
  const session = { person, ended: ending.signal } as Session
  const ask = relayBefore(open)
  const response = await ask({ session })
  const reader = response.body?.getReader()
  await reader?.read()
  const rest = reader?.read()
  ending.abort()
  await expect(rest).rejects.toThrow()
  expect(await codeOf(ask({ session }))).toBe('unauthenticated')
})
