// Goal: a tenant's page asks the services with its own key, as any client does; nothing of the operator's session goes
// along, and nothing comes back that acts for the console.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { relayTo } from '../../../src/appliance/console/tenant.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { logIn, pageHeaders, startConsole, tenantKey } from '../../rigs/console/console.ts'

type Seen = { method: string; path: string; headers: Record<string, string>; body: string; address: string }

function watched() {
  const seen: Seen[] = []
  const fetch = async (request: Request, { address }: { readonly address: () => string }) => {
    const { pathname, search } = new URL(request.url)
    const body = await request.text()
    const headers = Object.fromEntries(request.headers)
    seen.push({ method: request.method, path: pathname + search, headers, body, address: address() })
    return new Response('{"ok":true}', {
      headers: {
        'content-type': 'application/json',
        'set-cookie': '__Host-strongroom=stolen',
        'access-control-allow-origin': '*',
        // These would change the console's own pages.
        nel: '{"report_to":"x","max_age":1}',
        'report-to': '{"group":"x","max_age":1,"endpoints":[{"url":"https://evil.example"}]}',
        refresh: '0; url=https://evil.example',
        'service-worker-allowed': '/',
        'speculation-rules': '"/rules.json"',
        'www-authenticate': 'Basic realm="console"',
        'x-request-id': 'req_1',
      },
    })
  }
  return { seen, fetch }
}

test('goal: path, query, key and body go to the service; cookie and origin do not', async () => {
  const service = watched()
  await using rig = await startConsole({ services: { instances: { fetch: service.fetch } } })
  const cookie = await logIn(rig)
  const authorization = `Bearer ${tenantKey(rig, 'ca')}`
  const response = await rig.send('/api/tenant/instances/v1/instances?limit=2', {
    method: 'POST',
    headers: { ...pageHeaders(rig.origin, cookie), authorization, 'idempotency-key': 'k' },
    body: '{"name":"a"}',
  })
  expect([response.status, await response.json()]).toEqual([200, { ok: true }])
  expect(service.seen).toMatchObject([
    {
      method: 'POST',
      path: '/v1/instances?limit=2',
      headers: { authorization, 'idempotency-key': 'k', 'content-type': 'application/json' },
      body: '{"name":"a"}',
      address: '127.0.0.1',
    },
  ])
  expect(Object.keys(service.seen[0]?.headers ?? {})).not.toEqual(expect.arrayContaining(['cookie']))
  expect(service.seen[0]?.headers).not.toHaveProperty('cookie')
  expect(service.seen[0]?.headers).not.toHaveProperty('origin')
  expect(response.headers.get('set-cookie')).toBeNull()
  expect(response.headers.get('access-control-allow-origin')).toBeNull()
  expect(response.headers.get('x-request-id')).toBe('req_1')
  for (const name of [
    'nel',
    'report-to',
    'refresh',
    'service-worker-allowed',
    'speculation-rules',
    'www-authenticate',
  ]) {
    expect([name, response.headers.get(name)]).toEqual([name, null])
  }
  expect(response.headers.get('content-security-policy')).toContain('; sandbox;')
})

test('goal: a key needs no session, another site is refused, and a service that is off is not found', async () => {
  const service = watched()
  const notice = { since: '2026-11-30T12:00:00.000Z', until: null, message: 'a disk is replaced' }
  await using rig = await startConsole({
    services: { instances: { fetch: service.fetch } },
    maintenance: { view: () => notice },
  })
  const authorization = `Bearer ${tenantKey(rig, 'ca')}`
  const keyFor = (path: string) => (path.includes('inference') ? `Bearer ${tenantKey(rig, 'gw')}` : authorization)
  expect((await rig.send('/api/tenant/instances/v1/me', { headers: { authorization } })).status).toBe(200)
  const cross = await rig.send('/api/tenant/instances/v1/me', {
    headers: { authorization, 'sec-fetch-site': 'cross-site' },
  })
  expect(cross.status).toBe(403)
  const foreign = { method: 'POST', headers: { authorization, origin: 'https://evil.example' }, body: '{}' }
  expect((await rig.send('/api/tenant/instances/v1/instances', foreign)).status).toBe(403)
  for (const path of [
    '/api/tenant/builds/build',
    '/api/tenant/inference/v1/models',
    '/api/tenant/constructor/x',
    '/api/tenant/x',
  ]) {
    const headers = { authorization: keyFor(path) }
    expect([path, (await rig.send(path, { headers })).status]).toEqual([path, 404])
  }
  const urls = (await (await rig.send('/api/tenant', { headers: { authorization } })).json()) as Record<string, string>
  expect(urls).toEqual({
    instances: 'https://instances.agents.internal:8441',
    inference: 'https://inference.agents.internal:8442',
    builds: null as never,
    maintenance: notice as never,
  })
  expect(service.seen).toHaveLength(1)
})

test('goal: a gateway in its VM gets the bytes of the page and the page gets its own, by the authority of this host', async () => {
  const upstream = watched()
  await using gateway = await startConsole({ services: { instances: { fetch: upstream.fetch } } })
  const folder = mkdtempSync(join(tmpdir(), 'strongroom-relay-'))
  try {
    const caFile = join(folder, 'ca.pem')
    writeFileSync(caFile, gateway.ca)
    const common = { clock: systemClock, publicRequestsPerMinute: 60 }
    const relay = relayTo({ url: `${gateway.origin}/api/tenant/instances`, caFile, ...common })
    const visitor = { address: () => '192.0.2.1', owner: 'organization a', mayPause: () => {} }
    const authorization = `Bearer ${tenantKey(gateway, 'ca')}`
    const body = new Uint8Array([0, 255, 1, 2])
    const request = new Request('https://x/v1/chat/completions?a=b', {
      method: 'POST',
      headers: { origin: gateway.origin, authorization, 'content-type': 'application/json' },
      body,
    })
    const response = await relay(request, visitor)
    expect([response.status, await response.text()]).toEqual([200, '{"ok":true}'])
    expect(upstream.seen).toMatchObject([{ path: '/v1/chat/completions?a=b', headers: { authorization } }])
    const other = relayTo({ url: gateway.origin, caFile: join(folder, 'other.pem'), ...common })
    await using stranger = await startConsole()
    writeFileSync(join(folder, 'other.pem'), stranger.ca)
    await expect(other(new Request('https://x/'), visitor)).rejects.toMatchObject({ code: 'attestation_unavailable' })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
