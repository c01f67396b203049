// Goal: the operator's changes are made once, journalled and shown by contract; real socket and database.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { systemClock } from '../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import {
  AdminEventList,
  AdminGatewayKeyCreated,
  AdminGatewayKeyList,
  AdminInstance,
  AdminInstanceList,
  AdminKey,
  AdminKeyCreated,
  AdminKeyList,
  type AdminLeak,
  AdminLeaks,
  AdminOrganization,
  AdminOrganizationList,
  AdminProblem,
  AdminStatus,
} from '../../src/contract/admin/admin.ts'
import { OPERATIONS } from '../../src/contract/admin/roles.ts'
import { offeredModels } from '../../src/contract/key-rules.ts'
import { UnavailableFault } from '../../src/http/limited.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../src/instances/http/auth.ts'
import { type AdminServer, listenAdmin } from '../../src/operator/access/socket.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { storeAttestation } from '../../src/store/directory/attestation.query.ts'
import { insertInstance } from '../../src/store/directory/instance.query.ts'
import { instances } from '../../src/store/directory/instance.table.ts'
import { findKey } from '../../src/store/directory/key.query.ts'
import { findOrganization } from '../../src/store/directory/organization.query.ts'
import { recordEgress } from '../../src/store/ledger/egress.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { insertVm } from '../../src/store/ledger/vm.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { STATUS } from '../rigs/admin-status.ts'
import { holdLock } from '../rigs/lock-holder.ts'

const GATEWAY_TERMS = {
  requests_per_minute: null,
  tokens_per_minute: null,
  concurrency_max: null,
  expires_at: null,
} as const

let dir: string
let store: Store
let server: AdminServer
let deps: AdminDeps
let nowMs: number
let deleted: string[]
let leaks: AdminLeak[]

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-admin-'))
  store = openStore(join(dir, 'strongroom.db'))
  nowMs = Date.parse('2026-11-20T12:00:00.000Z')
  deleted = []
  leaks = []
  deps = {
    ...NO_ADMINISTRATORS,
    store,
    clock: { ...systemClock, nowMs: () => nowMs },
    random: systemRandom,
    log: silentLogger,
    mintKey,
    mintGatewayKey,
    offeredModels: offeredModels([]),
    gateway: 'off',
    cancelBuild: null,
    deleteInstance: async (instance, organization) => {
      deleted.push(`${organization.slug}/${instance.name}`)
      store.directory.db.update(instances).set({ desired: 'absent' }).run()
    },
    applyEgressLimits: async () => {},
    vm: vmId => ({ state: 'running', address: vmId === '' ? null : '10.88.0.2', addressV6: null }),
    status: () => STATUS,
    clockGuard: createClockGuard(systemClock),
    leaks: async () => leaks,
    collectors: [],
    consoleDir: vmId => join(dir, vmId),
  }
  server = await listenAdmin(join(dir, 'admin.sock'), createAdmin(deps))
})
afterEach(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

async function ask(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`http://admin${path}`, {
    unix: server.path,
    method,
    headers: { 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  return { status: response.status, body: await response.json() }
}

function addInstance(slug: string, name: string): string {
  const organization = findOrganization(store.directory.db, slug)
  if (organization === null) throw new Error('no organization')
  const [id, vmId] = [newUuid(), newUuid()]
  insertVm(store.ledger.db, { id: vmId, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
  insertInstance(store.directory.db, {
    id,
    hostId: store.hostId,
    organizationId: organization.id,
    name,
    hostname: `${name}.${slug}.agents.test`,
    agent: 'agent',
    publicKey: 'ssh-ed25519 AAAA',
    inferenceMode: 'default_gateway',
    inferenceModel: 'tiny',
    vmId,
    nowMs,
  })
  return id
}

const kinds = () => listEvents(store.ledger.db, { limit: 100 }).map(event => event.kind)

test('goal: the socket is its owner’s alone, and is gone after a stop', async () => {
  expect(statSync(server.path).mode & 0o777).toBe(0o600)
  expect(statSync(server.path).isSocket()).toBe(true)
  await server.stop()
  expect(existsSync(server.path)).toBe(false)
})

test('goal: a second daemon is refused, a dead one’s socket is replaced', async () => {
  await expect(listenAdmin(server.path, createAdmin(deps))).rejects.toMatchObject({ code: 'conflict' })
  expect((await ask('GET', '/status')).status).toBe(200)
  const stale = join(dir, 'stale.sock')
  const script = `Bun.listen({ unix: ${JSON.stringify(stale)}, socket: { data() {} } }); process.kill(process.pid, 'SIGKILL')`
  await Bun.spawn([process.execPath, '-e', script]).exited
  expect(existsSync(stale)).toBe(true)
  const again = await listenAdmin(stale, createAdmin(deps))
  expect((await fetch('http://admin/status', { unix: stale })).status).toBe(200)
  await again.stop()
})

test('goal: every route responds in its documented shape', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const key = await ask('POST', '/organizations/acme/keys', { scope: 'write' })
  const prefix = String(Reflect.get(Object(key.body), 'prefix'))
  const id = addInstance('acme', 'abcd2345')
  const table: [string, string, TSchema, unknown?][] = [
    ['GET', '/status', AdminStatus],
    ['GET', '/leaks', AdminLeaks],
    ['GET', '/organizations', AdminOrganizationList],
    ['GET', '/organizations/acme', AdminOrganization],
    ['POST', '/organizations', AdminOrganization, { slug: 'beta' }],
    ['POST', '/organizations/acme/suspend', AdminOrganization],
    ['POST', '/organizations/acme/resume', AdminOrganization],
    ['GET', '/organizations/acme/keys', AdminKeyList],
    ['POST', '/organizations/acme/keys', AdminKeyCreated, { scope: 'read' }],
    ['POST', `/keys/${prefix}/revoke`, AdminKey],
    ['POST', '/organizations/acme/gateway-keys', AdminGatewayKeyCreated, GATEWAY_TERMS],
    ['GET', '/organizations/acme/gateway-keys', AdminGatewayKeyList],
    ['GET', '/instances', AdminInstanceList],
    ['GET', '/instances?organization=acme', AdminInstanceList],
    ['GET', `/instance?ref=${id}`, AdminInstance],
    ['GET', '/instance/events?ref=abcd2345', AdminEventList],
    ['DELETE', '/instance?ref=abcd2345', AdminInstance],
  ]
  for (const [method, path, schema, body] of table) {
    const answer = await ask(method, path, body)
    expect([method, path, answer.status < 300, [...Value.Errors(schema, answer.body)]]).toEqual([
      method,
      path,
      true,
      [],
    ])
  }
})

test('goal: failures have status, code and field, and the shape of a problem', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const table: [string, string, unknown, number, string][] = [
    ['GET', '/nowhere', undefined, 404, 'not_found'],
    ['GET', '/organizations/nobody', undefined, 404, 'not_found'],
    ['POST', '/organizations', { slug: 'acme' }, 409, 'conflict'],
    ['POST', '/organizations', { slug: 'Acme' }, 400, 'invalid_request'],
    ['POST', '/organizations', { slug: 'a', more: 1 }, 400, 'invalid_request'],
    ['POST', '/organizations', '{nonsense', 400, 'invalid_request'],
    ['POST', '/organizations/nobody/suspend', undefined, 404, 'not_found'],
    ['POST', '/organizations/nobody/keys', { scope: 'read' }, 404, 'not_found'],
    ['POST', '/organizations/acme/keys', { scope: 'all' }, 400, 'invalid_request'],
    ['POST', '/keys/zzzzzzzz/revoke', undefined, 404, 'not_found'],
    ['GET', '/instances?organization=nobody', undefined, 404, 'not_found'],
    ['GET', '/instance?ref=nothing1', undefined, 404, 'not_found'],
    ['GET', '/instance?ref=acme/nothing1', undefined, 404, 'not_found'],
    ['GET', '/instance', undefined, 400, 'invalid_request'],
    ['GET', '/instance/console?ref=nothing1&tail=1', undefined, 404, 'not_found'],
    ['GET', '/instance/console?ref=nothing1&tail=x', undefined, 400, 'invalid_request'],
    ['DELETE', '/instance?ref=nothing1', undefined, 404, 'not_found'],
  ]
  for (const [method, path, body, status, code] of table) {
    const answer = await ask(method, path, body)
    const problem = answer.body
    const found = Value.Check(AdminProblem, problem) ? problem.error.code : 'no problem'
    expect([method, path, answer.status, found]).toEqual([method, path, status, code])
  }
  // None of these changed anything.
  expect(kinds()).toEqual(['organization.created'])
})

test('goal: a body is read as strictly as those of the services, and refused in the same words', async () => {
  const post = async (body: RequestInit['body'], headers: Record<string, string> = {}) => {
    const response = await fetch('http://admin/organizations', { unix: server.path, method: 'POST', body, headers })
    const problem = (await response.json()) as AdminProblem
    return [response.status, problem.error.code, problem.error.message]
  }
  const invalid = (message: string) => [400, 'invalid_request', message]
  expect(await post('{"slug":"a1","slug":"b1"}')).toEqual(invalid('The body has a field twice.'))
  expect(await post('')).toEqual(invalid('The body is empty; a JSON object is expected.'))
  expect(await post(Uint8Array.of(0x22, 0xff, 0x22))).toEqual(invalid('The body is not valid UTF-8.'))
  expect(await post('{"slug":"a1"}', { 'content-type': 'text/html' })).toEqual(
    invalid('The Content-Type header must be application/json.'),
  )
  expect(await post(`{"slug":"${'a'.repeat(65_536)}"}`)).toEqual([
    413,
    'body_too_large',
    'The body is larger than 65536 bytes.',
  ])
  expect(kinds()).toEqual([])
})

test('goal: a response that breaks its own schema is our failure, not the caller’s', async () => {
  leaks = [{ kind: 'tap', name: 'sr1', detail: 7 as unknown as string, vm: null, remedy: '' }]
  expect(await ask('GET', '/leaks')).toMatchObject({ status: 500, body: { error: { code: 'internal' } } })
})

test('goal: suspending and resuming is idempotent and only a change is an event', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  for (const verb of ['suspend', 'suspend', 'resume', 'resume']) {
    const status = verb === 'suspend' ? 'suspended' : 'active'
    expect(await ask('POST', `/organizations/acme/${verb}`)).toMatchObject({ status: 200, body: { status } })
  }
  expect(kinds()).toEqual(['organization.resumed', 'organization.suspended', 'organization.created'])
})

test('goal: a key is shown once, kept only as a hash, never journalled, and its revocation keeps the first time', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const made = await ask('POST', '/organizations/acme/keys', { scope: 'read' })
  const body = made.body
  if (!Value.Check(AdminKeyCreated, body)) throw new Error('not a key')
  expect([made.status, body.organization, body.scope]).toEqual([201, 'acme', 'read'])
  const secret = body.key.split('_')[2] ?? ''
  expect(findKey(store.directory.db, body.prefix)?.secretSha256.length).toBe(32)
  const everything = JSON.stringify([
    await ask('GET', '/organizations/acme/keys'),
    listEvents(store.ledger.db, { limit: 100 }),
  ])
  expect(everything).toContain(body.prefix)
  expect(everything).not.toContain(secret)
  const first = await ask('POST', `/keys/${body.prefix}/revoke`)
  nowMs += 60_000
  expect(await ask('POST', `/keys/${body.prefix}/revoke`)).toEqual(first)
  expect(kinds()).toEqual(['key.revoked', 'key.created', 'organization.created'])
  expect(await ask('GET', '/organizations/acme')).toMatchObject({ body: { keys_active: 0 } })
})

test('goal: a taken key prefix is drawn again, and never for ever', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const fixed = mintKey(systemRandom)
  let drawn = 0
  const mintStubborn: typeof mintKey = random => {
    drawn += 1
    return drawn % 10 < 4 || drawn > 10 ? fixed : mintKey(random)
  }
  const stubborn = asRoot(createAdmin({ ...deps, mintKey: mintStubborn }))
  const create = () =>
    stubborn(
      new Request('http://admin/organizations/acme/keys', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"scope":"write"}',
      }),
    )
  expect((await create()).status).toBe(201)
  expect((await create()).status).toBe(201)
  drawn = 11
  expect((await create()).status).toBe(500)
  expect(drawn).toBe(19)
})

test('goal: while an upgrade is on trial every change is refused before its body is read, and every read is answered', async () => {
  const shut = asRoot(
    createAdmin({
      ...deps,
      admitChange: () => {
        throw new UnavailableFault('an upgrade is on trial', 5_000)
      },
    }),
  )
  const send = (method: string, path: string) => shut(new Request(`http://admin${path}`, { method }))
  const changes = Object.keys(OPERATIONS).filter(operation => !operation.startsWith('GET '))
  expect(changes.length).toBeGreaterThan(10)
  for (const operation of changes) {
    const [method = '', route = ''] = operation.split(' ')
    const response = await send(method, route.replaceAll(/:[a-z]+/gi, 'acme'))
    expect([method, route, response.status, response.headers.get('retry-after')]).toEqual([method, route, 503, '5'])
  }
  expect((await send('GET', '/organizations')).status).toBe(200)
  expect((await send('GET', '/status')).status).toBe(200)
  expect(listEvents(store.ledger.db, { limit: 10 })).toEqual([])
})

test('goal: an instance is found by id, by slug/name, by name where that is unambiguous, and else the choices are named', async () => {
  for (const slug of ['acme', 'beta']) await ask('POST', '/organizations', { slug })
  const instance = addInstance('acme', 'samename')
  const two = addInstance('beta', 'samename')
  const other = addInstance('beta', 'othernam')
  const idOf = async (ref: string) => Reflect.get(Object((await ask('GET', `/instance?ref=${ref}`)).body), 'id')
  expect([
    await idOf(instance),
    await idOf('acme/samename'),
    await idOf('beta%2Fsamename'),
    await idOf('othernam'),
  ]).toEqual([instance, instance, two, other])
  expect(await ask('GET', '/instance?ref=samename')).toEqual({
    status: 400,
    body: {
      error: {
        code: 'invalid_request',
        message: '2 organizations have an instance samename; write acme/samename or beta/samename',
        param: 'instance',
      },
    },
  })
})

test('goal: an instance says when it was attested, or that it was not', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const id = addInstance('acme', 'abcd2345')
  const attestedAt = async () => Reflect.get(Object((await ask('GET', `/instance?ref=${id}`)).body), 'attested_at')
  expect(await attestedAt()).toBeNull()
  const row = { instanceId: id, nonce: 'n'.repeat(43), sshHostKey: 'ssh-ed25519 A', document: '{}' }
  storeAttestation(store.directory.db, { ...row, attestedAtMs: Date.UTC(2026, 10, 20, 8, 30) })
  expect(await attestedAt()).toBe('2026-11-20T08:30:00.000Z')
})

test('goal: an instance shows what it has sent beyond its cap', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const id = addInstance('acme', 'abcd2345')
  const rescued = async () => Reflect.get(Object((await ask('GET', `/instance?ref=${id}`)).body), 'rescue_bytes')
  const vmId = newUuid()
  store.directory.db.update(instances).set({ vmId: null }).run()
  expect(await rescued()).toBeNull()
  insertVm(store.ledger.db, { id: vmId, hostId: 'h', image: 'instance', vcpus: 1, memoryMib: 512, nowMs: 1 })
  store.directory.db.update(instances).set({ vmId }).run()
  expect(await rescued()).toBe(0)
  recordEgress(store.ledger.db, [{ vmId, usedBytes: 9, rescueBytes: 7, observedAtMs: 1, blockedAtMs: 1 }])
  expect(await rescued()).toBe(7)
})

test('goal: a deletion goes to the service each time, and is journalled once', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  addInstance('acme', 'abcd2345')
  for (let time = 0; time < 2; time += 1) expect((await ask('DELETE', '/instance?ref=acme/abcd2345')).status).toBe(200)
  expect(deleted).toEqual(['acme/abcd2345', 'acme/abcd2345'])
  expect(kinds()).toEqual(['instance.operator_delete', 'organization.created'])
  const events = (await ask('GET', '/instance/events?ref=abcd2345')).body
  if (!Value.Check(AdminEventList, events)) throw new Error('no events')
  expect(events.events.map(event => event.kind)).toEqual(['status.provisioning', 'instance.operator_delete'])
})

test('goal: the console is read from its tail; following it goes on, and ends with the client', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  addInstance('acme', 'abcd2345')
  const vmId = store.directory.db.select({ vmId: instances.vmId }).from(instances).get()?.vmId ?? ''
  const path = '/instance/console?ref=abcd2345'
  const get = (query: string, init: RequestInit = {}) =>
    fetch(`http://admin${path}${query}`, { unix: server.path, ...init })
  expect(await (await get('&tail=100')).text()).toBe('')
  mkdirSync(join(dir, vmId))
  const log = join(dir, vmId, 'console.log')
  writeFileSync(log, 'one two three\n')
  expect(await (await get('&tail=6')).text()).toBe('three\n')
  const leave = new AbortController()
  const response = await get('&tail=6&follow=true', { signal: leave.signal })
  const reader = response.body?.getReader()
  let text = ''
  const readUntil = async (wanted: string) => {
    while (!text.endsWith(wanted)) {
      const next = await reader?.read()
      if (next === undefined || next.done) throw new Error(`ended after ${JSON.stringify(text)}`)
      text += new TextDecoder().decode(next.value)
    }
  }
  await readUntil('three\n')
  writeFileSync(log, 'four\n', { flag: 'a' })
  await readUntil('four\n')
  expect(text).toBe('three\nfour\n')
  leave.abort()
  await expect(reader?.read()).rejects.toThrow()
  // The daemon goes on, and a follower that is still there does not keep it from stopping.
  const second = await get('&tail=1&follow=true')
  await second.body?.getReader().read()
  await server.stop()
})

test('goal: while another program holds the database, a change is refused whole, with the code that says what to do, and reads go on', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  const before = kinds()
  {
    await using _ = await holdLock(join(dir, 'strongroom.db'))
    const post = { unix: server.path, method: 'POST', headers: { 'content-type': 'application/json' } }
    const body = JSON.stringify({ scope: 'write' })
    const response = await fetch('http://admin/organizations/acme/keys', { ...post, body })
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '2'])
    expect(await response.json()).toEqual({
      error: { code: 'store.busy', message: 'nothing was changed; error of the database: database is locked' },
    })
    expect((await ask('GET', '/organizations/acme')).status).toBe(200)
  }
  expect(kinds()).toEqual(before)
  expect((await ask('GET', '/organizations/acme/keys')).body).toEqual({ keys: [] })
  expect((await ask('POST', '/organizations/acme/keys', { scope: 'write' })).status).toBeLessThan(300)
})

test('goal: a key that was made is shown also when its entry in the journal cannot be written', async () => {
  await ask('POST', '/organizations', { slug: 'acme' })
  store.ledger.db.run("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END")
  const { status, body } = await ask('POST', '/organizations/acme/keys', { scope: 'write' })
  expect([status < 300, [...Value.Errors(AdminKeyCreated, body)]]).toEqual([true, []])
  store.ledger.db.run('DROP TRIGGER full')
  expect(findKey(store.directory.db, String(Reflect.get(Object(body), 'prefix')))).not.toBeNull()
  expect(kinds()).toEqual(['organization.created'])
})
