// Goal: every route of the admin interface has a role, each role may do what its word says and nothing else, and a
// route that somebody forgot is nobody's.

import { expect, test } from 'bun:test'
import {
  ADMIN_ROLES,
  isLook,
  mayDo,
  OPERATIONS,
  operationOf,
  RIGHTS,
  RIGHTS_OF,
} from '../../../src/contract/admin/roles.ts'
import { type AdminSocket, type Caller, knownCaller, refusalOf } from '../../../src/operator/access/caller.ts'
import type { Admin } from '../../../src/operator/api.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'

const administrators = ADMIN_ROLES.map((role, at) => ({ uid: 1001 + at, user: role, role }))
const setting = { administrators, ownerUid: 0 }
const callerOf = (uid: number, socket: AdminSocket = 'admin'): Caller => ({ uid, gid: uid, pid: 7, socket })
const uidOf = (role: string) => administrators.find(known => known.role === role)?.uid ?? 0

// Routes by the lowest role that may use them, written out: a row of the table that moves fails a test.
const MONITOR = [
  'GET /status',
  'GET /search',
  'GET /leaks',
  'GET /metrics',
  'GET /organizations',
  'GET /organizations/:slug',
  'GET /organizations/:slug/deletion',
  'GET /organizations/:slug/keys',
  'GET /organizations/:slug/gateway-keys',
  'GET /instances',
  'GET /instance',
  'GET /instance/usage',
  'GET /instance/events',
  'GET /builds',
  'GET /builds/:id',
  'GET /inference',
  'GET /clock',
  'GET /maintenance',
  'GET /log',
  'GET /log/entries',
  'GET /fleet/hosts',
  'GET /fleet/hosts/:name',
]
const AUDITOR = [
  'GET /events',
  'GET /billing/instance-hours',
  'GET /billing/instance-hours.csv',
  'GET /organizations/:slug/usage',
  'GET /organizations/:slug/usage.csv',
  'POST /console/links',
  'GET /console/sessions',
  'POST /console/close',
  'GET /console/passkeys',
  'DELETE /console/passkeys/:id',
]
const OPERATOR = [
  'POST /maintenance/begin',
  'POST /maintenance/end',
  'POST /organizations/:slug/suspend',
  'POST /keys/:prefix/revoke',
  'POST /gateway-keys/:prefix/revoke',
  'DELETE /instance',
  'GET /instance/console',
  'GET /builds/:id/log',
  'POST /builds/:id/cancel',
  'POST /inference/update',
  'POST /alerts/test',
  'POST /log/cosign',
  'POST /fleet/hosts/:name/drain',
  'POST /fleet/hosts/:name/undrain',
  'GET /inference/log',
]
const ADMIN = [
  'POST /organizations',
  'DELETE /organizations/:slug',
  'POST /organizations/:slug/budget',
  'POST /organizations/:slug/quotas',
  'POST /organizations/:slug/resume',
  'POST /organizations/:slug/keys',
  'POST /organizations/:slug/keys/add',
  'POST /organizations/:slug/gateway-keys',
  'POST /organizations/:slug/gateway-keys/add',
  'POST /gateway-keys/:prefix/terms',
  'POST /instance/egress-limit',
  'POST /clock/confirm',
  'POST /chips/export',
  'POST /chips/publish',
  'POST /log/policy',
  'POST /fleet/hosts/:name/remove',
  'POST /fleet/hosts/:name/forget',
]

async function ask(admin: Admin, caller: Caller, [method, route]: readonly [string, string]) {
  const path = route.replaceAll(/:(slug|prefix|id|name)/g, 'nobody0')
  const request = new Request(`http://strongroom${path}`, { method })
  const response = await admin.handle(request, caller)
  const body: unknown = await response.json().catch(() => null)
  const error: unknown = Reflect.get(Object(body), 'error')
  return { status: response.status, code: Reflect.get(Object(error), 'code') }
}

const partsOf = (key: string) => key.split(' ') as [string, string]

test('goal: the table of operations has each route once, and no other', () => {
  const { admin } = egressAdmin()
  expect([...admin.routes].sort()).toEqual(Object.keys(OPERATIONS).sort())
})

test('goal: each operation has the name by which the record of commands knows it, and no two have the same', () => {
  expect(Object.entries(OPERATIONS).map(([key, { name }]) => `${name}: ${key}`)).toEqual([
    'status: GET /status',
    'search: GET /search',
    'leaks: GET /leaks',
    'metrics: GET /metrics',
    'events: GET /events',
    'org.list: GET /organizations',
    'org.create: POST /organizations',
    'org.show: GET /organizations/:slug',
    'org.deletion: GET /organizations/:slug/deletion',
    'org.delete: DELETE /organizations/:slug',
    'org.budget: POST /organizations/:slug/budget',
    'org.quota: POST /organizations/:slug/quotas',
    'org.suspend: POST /organizations/:slug/suspend',
    'org.resume: POST /organizations/:slug/resume',
    'key.list: GET /organizations/:slug/keys',
    'key.create: POST /organizations/:slug/keys',
    'key.add: POST /organizations/:slug/keys/add',
    'key.revoke: POST /keys/:prefix/revoke',
    'gateway-key.list: GET /organizations/:slug/gateway-keys',
    'gateway-key.create: POST /organizations/:slug/gateway-keys',
    'gateway-key.add: POST /organizations/:slug/gateway-keys/add',
    'gateway-key.set: POST /gateway-keys/:prefix/terms',
    'gateway-key.revoke: POST /gateway-keys/:prefix/revoke',
    'usage: GET /organizations/:slug/usage',
    'usage.csv: GET /organizations/:slug/usage.csv',
    'billing: GET /billing/instance-hours',
    'billing.csv: GET /billing/instance-hours.csv',
    'instance.list: GET /instances',
    'instance.show: GET /instance',
    'instance.delete: DELETE /instance',
    'instance.usage: GET /instance/usage',
    'instance.events: GET /instance/events',
    'instance.console: GET /instance/console',
    'instance.egress-raise: POST /instance/egress-limit',
    'builds.list: GET /builds',
    'builds.show: GET /builds/:id',
    'builds.logs: GET /builds/:id/log',
    'builds.cancel: POST /builds/:id/cancel',
    'inference.show: GET /inference',
    'inference.update: POST /inference/update',
    'alerts.test: POST /alerts/test',
    'clock: GET /clock',
    'clock.confirm: POST /clock/confirm',
    'maintenance: GET /maintenance',
    'maintenance.begin: POST /maintenance/begin',
    'maintenance.end: POST /maintenance/end',
    'log.status: GET /log',
    'log.show: GET /log/entries',
    'log.cosign: POST /log/cosign',
    'log.publish-policy: POST /log/policy',
    'chips.export: POST /chips/export',
    'chips.publish: POST /chips/publish',
    'fleet.list: GET /fleet/hosts',
    'fleet.show: GET /fleet/hosts/:name',
    'fleet.drain: POST /fleet/hosts/:name/drain',
    'fleet.undrain: POST /fleet/hosts/:name/undrain',
    'fleet.remove: POST /fleet/hosts/:name/remove',
    'fleet.forget: POST /fleet/hosts/:name/forget',
    'inference.log: GET /inference/log',
    'console.open: POST /console/links',
    'console.sessions: GET /console/sessions',
    'console.close: POST /console/close',
    'passkey.list: GET /console/passkeys',
    'passkey.remove: DELETE /console/passkeys/:id',
  ])
  const names = Object.values(OPERATIONS).map(({ name }) => name)
  expect(new Set(names).size).toBe(names.length)
})

test('goal: the rights and the roles, and which role has which right, written out', () => {
  expect([...RIGHTS]).toEqual(['look', 'audit', 'operate', 'administer'])
  expect([...ADMIN_ROLES]).toEqual(['admin', 'operator', 'auditor'])
  expect(RIGHTS_OF).toEqual({
    monitor: ['look'],
    auditor: ['look', 'audit'],
    operator: ['look', 'audit', 'operate'],
    admin: ['look', 'audit', 'operate', 'administer'],
  })
})

test('goal: each route has the lowest role that is written here, and each role has what the lower ones have', async () => {
  const { admin } = egressAdmin({ administrators })
  const allowed = {
    monitor: MONITOR,
    auditor: [...MONITOR, ...AUDITOR],
    operator: [...MONITOR, ...AUDITOR, ...OPERATOR],
    admin: [...MONITOR, ...AUDITOR, ...OPERATOR, ...ADMIN],
  }
  for (const [role, routes] of Object.entries(allowed)) {
    const caller = role === 'monitor' ? callerOf(4242, 'monitor') : callerOf(uidOf(role))
    const open: string[] = []
    for (const key of admin.routes) if ((await ask(admin, caller, partsOf(key))).code !== 'forbidden') open.push(key)
    expect([role, open.toSorted()]).toEqual([role, routes.toSorted()])
  }
})

test('goal: over every route and role, the daemon forbids exactly what the role has no right to', async () => {
  const { admin } = egressAdmin({ administrators })
  for (const [key, { right }] of Object.entries(OPERATIONS)) {
    for (const role of ADMIN_ROLES) {
      const { code } = await ask(admin, callerOf(uidOf(role)), partsOf(key))
      expect([key, role, code === 'forbidden']).toEqual([key, role, !mayDo(role, right)])
    }
    for (const [caller, isAllowed] of [
      [callerOf(0), true],
      [callerOf(0, 'monitor'), right === 'look'],
      [callerOf(uidOf('admin'), 'monitor'), right === 'look'],
      [callerOf(4242), false],
      [callerOf(4242, 'monitor'), right === 'look'],
    ] as const) {
      const { code } = await ask(admin, caller, partsOf(key))
      expect([key, caller, code === 'forbidden']).toEqual([key, caller, !isAllowed])
    }
  }
})

test('goal: what changes something is no look, a look is not all that reads, and a higher role has what a lower one has', () => {
  for (const [key, { right }] of Object.entries(OPERATIONS)) {
    // Each role has a link, sessions and passkeys of its own; for those of others the handler asks for more.
    const isOwn = / \/console\/(?:links|close|passkeys\/:id)$/.test(key) && right === 'audit'
    const isChange = right === 'operate' || right === 'administer' || isOwn
    if (!key.startsWith('GET ')) expect([key, isChange]).toEqual([key, true])
  }
  for (const path of ['/events', '/instance/console', '/inference/log', '/organizations/acme/usage']) {
    expect([path, isLook(path)]).toEqual([path, false])
  }
  for (const path of ['/status', '/metrics', '/organizations/acme/keys', '/builds/b1']) {
    expect([path, isLook(path)]).toEqual([path, true])
  }
  const counts = (['monitor', 'auditor', 'operator', 'admin'] as const).map(
    role => RIGHTS.filter(right => mayDo(role, right)).length,
  )
  expect(counts).toEqual([1, 2, 3, 4])
})

test('goal: a route without a role is refused to root, and HEAD needs what GET needs', () => {
  const root = knownCaller(callerOf(0), setting)
  expect(operationOf('PUT', '/organizations')).toBeNull()
  expect(operationOf('GET', 'constructor')).toBeNull()
  expect(refusalOf(root, 'POST', '/forgotten')?.message).toContain('has no role')
  expect(refusalOf(knownCaller(callerOf(4242, 'monitor'), setting), 'HEAD', '/events')?.code).toBe('forbidden')
  expect(refusalOf(knownCaller(callerOf(4242, 'monitor'), setting), 'HEAD', '/status')).toBeNull()
})

test('goal: a refusal is for who has no right, before anything of the request is looked at', async () => {
  const { admin } = egressAdmin({ administrators })
  const request = new Request('http://strongroom/organizations', {
    method: 'POST',
    headers: { 'content-type': 'text/plain' },
    body: '{"slug": not json',
  })
  const response = await admin.handle(request, callerOf(uidOf('auditor')))
  expect(response.status).toBe(403)
  expect(await response.json()).toMatchObject({
    error: { message: expect.stringContaining('it needs the role admin ([[operator.admins]]') },
  })
  expect(request.bodyUsed).toBe(false)
})
