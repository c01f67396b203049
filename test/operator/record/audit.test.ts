// Goal: each change and each refusal is on record with who asked, never with a secret, within bounds; and a change that
// could not be recorded does not happen.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { AdminKeyCreated } from '../../../src/contract/admin/admin.ts'
import { type Caller, knownCaller } from '../../../src/operator/access/caller.ts'
import { Audit } from '../../../src/operator/record/audit.ts'
import { openStore, prepareRaw } from '../../../src/store/db.ts'
import { listOrganizations } from '../../../src/store/directory/organization.query.ts'
import { appendAudit, deleteExpiredAudit, listAudit, prune } from '../../../src/store/ledger/audit.query.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'

const alice = { uid: 1001, user: 'alice', role: 'operator' } as const
const root: Caller = { uid: 0, gid: 0, pid: 7, socket: 'admin' }
const asAlice: Caller = { uid: 1001, gid: 100, pid: 8, socket: 'admin' }
type AuditFilter = Parameters<typeof listAudit>[1]
const all: AuditFilter = { after: null, sinceMs: null, actor: null, limit: 1_000 }

function opened() {
  const lines: Record<string, unknown>[] = []
  const log = createLogger({ level: 'info', nowMs: () => 0, sink: line => lines.push(JSON.parse(line)) })
  const rig = egressAdmin({ administrators: [alice], log })
  const ask = async (caller: Caller, method: string, path: string, body?: unknown) => {
    const headers = { 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const response = await rig.admin.handle(
      new Request(`http://strongroom${path}`, { method, headers, ...sent }),
      caller,
    )
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  const rows = () => listAudit(rig.store.ledger.db, all)
  const run = (sql: string) => prepareRaw(rig.store.ledger.db, sql).run()
  return { ...rig, ask, rows, run, lines }
}

test('goal: a change is on record with who, what and how it ended, in the database and in the log; reading is not', async () => {
  const { ask, rows, lines } = opened()
  await ask(root, 'POST', '/organizations', { slug: 'beta' })
  await ask(root, 'POST', '/organizations', { slug: 'beta' })
  await ask(asAlice, 'POST', '/organizations/beta/suspend')
  await ask(asAlice, 'GET', '/organizations')
  await ask(asAlice, 'GET', '/organizations/nobody')
  const shown = rows().map(({ actor, role, uid, gid, pid, socket, operation, arguments: asked, result, refused }) => ({
    who: [actor, role, uid, gid, pid, socket].join(' '),
    what: [operation, asked],
    result,
    refused,
  }))
  expect(shown).toEqual([
    { who: 'root admin 0 0 7 admin', what: ['org.create', { slug: 'beta' }], result: 'ok', refused: false },
    { who: 'root admin 0 0 7 admin', what: ['org.create', { slug: 'beta' }], result: 'conflict', refused: false },
    { who: 'alice operator 1001 100 8 admin', what: ['org.suspend', { slug: 'beta' }], result: 'ok', refused: false },
  ])
  expect(rows().every(({ endedAtMs }) => endedAtMs !== null)).toBe(true)
  const journal = lines.filter(({ message }) => message === 'operator command')
  expect(journal.map(({ seq, actor, operation, result }) => [seq, actor, operation, result])).toEqual([
    [1, 'root', 'org.create', 'ok'],
    [2, 'root', 'org.create', 'conflict'],
    [3, 'alice', 'org.suspend', 'ok'],
  ])
})

test('goal: no key is on record, minted or typed, and long arguments are cut', async () => {
  const { ask, rows, lines } = opened()
  const made = await ask(root, 'POST', '/organizations/acme/keys', { scope: 'write' })
  const key = Value.Check(AdminKeyCreated, made.body) ? made.body.key : ''
  expect(key).toStartWith('ca_')
  // Somebody gives the whole key where its prefix belongs, and too long a reason.
  await ask(root, 'POST', `/keys/${key}/revoke`)
  const terms = { to_bytes: 1, by_bytes: null, reason: `lost ${key}`, operator: 'bob' }
  await ask(root, 'POST', '/instance/egress-limit?ref=acme/abcd2345', terms)
  const models = Array.from({ length: 20 }, (_, at) => `${'m'.repeat(200)}${at}`)
  await ask(root, 'POST', `/gateway-keys/abc/terms`, { models })
  const text = JSON.stringify([rows(), lines])
  expect(text).not.toContain(key.slice(-18))
  expect(rows().map(({ operation, result }) => [operation, result])).toEqual([
    ['key.create', 'ok'],
    ['key.revoke', 'not_found'],
    ['instance.egress-raise', 'conflict'],
    ['gateway-key.set', 'not_found'],
  ])
  const [, , , cut] = rows()
  expect(Object.keys(cut?.arguments ?? {})).toEqual(['shortened'])
  expect(JSON.stringify(cut?.arguments).length).toBeLessThan(3_000)
})

test('goal: a change whose row cannot be written does not happen, and says so', async () => {
  const { ask, rows, run, store } = opened()
  run("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no room'); END")
  const refused = await ask(root, 'POST', '/organizations', { slug: 'beta' })
  expect(refused.status).toBeGreaterThanOrEqual(500)
  expect(listOrganizations(store.directory.db).map(({ slug }) => slug)).toEqual(['acme'])
  // Refusals decide nothing: one that cannot be recorded is a refusal all the same.
  expect((await ask(asAlice, 'POST', '/organizations', { slug: 'beta' })).status).toBe(403)
  run('DROP TRIGGER full')
  expect((await ask(root, 'POST', '/organizations', { slug: 'beta' })).status).toBe(201)
  expect(rows()).toHaveLength(1)
})

test('goal: a result that cannot be written leaves the change on record, as one that was interrupted', async () => {
  const { ask, rows, run, store, lines } = opened()
  run("CREATE TRIGGER full BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'no room'); END")
  expect((await ask(root, 'POST', '/organizations', { slug: 'beta' })).status).toBe(201)
  run('DROP TRIGGER full')
  expect(rows().map(({ result }) => result)).toEqual([null])
  expect(lines.map(({ message }) => message)).toContain('operator command')
  const clock = createManualClock()
  const log = createLogger({ level: 'info', nowMs: () => 0, sink: line => lines.push(JSON.parse(line)) })
  new Audit({ ledger: store.ledger, clock, log }).start()
  expect(rows().map(({ result, operation }) => [operation, result])).toEqual([['org.create', 'interrupted']])
  expect(lines.at(-1)).toMatchObject({ level: 'warn', operation: 'org.create', seq: 1 })
})

test('goal: refusals are recorded, a body that fits no schema without its values, and repeated ones are one row', async () => {
  const { ask, rows } = opened()
  for (let n = 0; n < 5; n += 1) await ask(asAlice, 'POST', '/organizations', { slug: 'beta' })
  await ask(asAlice, 'GET', '/instance/console?ref=x&tail=1')
  await ask({ ...asAlice, socket: 'monitor' }, 'GET', '/events')
  await ask(root, 'POST', '/organizations', { slug: 7, password: 'hunter2' })
  const { body } = await ask(root, 'GET', '/events?limit=100')
  const commands = body.commands as Record<string, unknown>[]
  expect(commands.map(row => [row.actor, row.role, row.operation, row.result, row.times, row.arguments])).toEqual([
    ['alice', 'operator', 'org.create', 'forbidden', 5, {}],
    ['alice', 'monitor', 'events', 'forbidden', 1, {}],
    ['root', 'admin', 'org.create', 'invalid_request', 1, {}],
  ])
  expect(rows().every(({ refused }) => refused)).toBe(true)
  expect(JSON.stringify(rows())).not.toContain('hunter2')
})

function recorder() {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const lines: string[] = []
  const log = createLogger({ level: 'info', nowMs: () => 0, sink: line => lines.push(line) })
  const audit = new Audit({ ledger: store.ledger, clock, log })
  const refuse = (uid: number, operation = 'connect') => {
    const by = knownCaller({ uid, gid: uid, pid: 1, socket: 'admin' }, { administrators: [alice], ownerUid: 0 })
    audit.refuse({ by, operation, arguments: {} }, 'forbidden')
  }
  const times = () => audit.list(all).map(row => [row.uid, row.times])
  return { store, clock, audit, refuse, lines, times }
}

test('goal: a flood of refusals costs a row and a line a minute, counts them all, and is bounded over all users', async () => {
  const { clock, refuse, lines, times } = recorder()
  for (let n = 0; n < 20_000; n += 1) refuse(4242)
  expect(lines).toHaveLength(1)
  expect(times()).toEqual([[4242, 20_000]])
  await clock.advance(60_000)
  refuse(4242)
  expect(times()).toEqual([
    [4242, 20_000],
    [4242, 1],
  ])
  for (let uid = 100_000; uid < 105_000; uid += 1) refuse(uid)
  expect(times().length).toBeLessThanOrEqual(122)
  await clock.advance(60_000)
  refuse(4242)
  expect(lines.some(line => line.includes('"dropped":'))).toBe(true)
})

test('goal: refusals never push commands out, and each kind keeps its newest', () => {
  const { store } = recorder()
  const { db } = store.ledger
  const row = { uid: 0, gid: 0, pid: 1, actor: 'root', role: 'admin', socket: 'admin', arguments: {} } as const
  for (let n = 0; n < 5; n += 1) appendAudit(db, { ...row, atMs: n, operation: `c${n}`, result: 'ok', refused: false })
  for (let n = 0; n < 50; n += 1) {
    appendAudit(db, { ...row, atMs: 10 + n, operation: `r${n}`, result: 'forbidden', refused: true })
  }
  prune(db, { commandsMax: 3, refusedMax: 2 })
  expect(listAudit(db, all).map(({ operation }) => operation)).toEqual(['c2', 'c3', 'c4', 'r48', 'r49'])
  expect(deleteExpiredAudit(db, { beforeMs: 4, limit: 10 })).toBe(2)
  expect(listAudit(db, all).map(({ operation }) => operation)).toEqual(['c4', 'r48', 'r49'])
})

test('goal: what is asked for is what is shown: after a number, since a time, of one actor, the newest so many', () => {
  const { store } = recorder()
  const { db } = store.ledger
  const row = { gid: 0, pid: 1, role: 'admin', socket: 'admin', arguments: {}, refused: false, result: 'ok' } as const
  for (const [at, actor] of ['root', 'alice', 'root', 'alice', 'root'].entries()) {
    appendAudit(db, { ...row, uid: 0, actor, atMs: at * 1_000, operation: `c${at}` })
  }
  const names = (asked: Partial<AuditFilter>) => listAudit(db, { ...all, ...asked }).map(({ operation }) => operation)
  expect(names({ limit: 2 })).toEqual(['c3', 'c4'])
  expect(names({ after: 1, limit: 2 })).toEqual(['c1', 'c2'])
  expect(names({ actor: 'alice' })).toEqual(['c1', 'c3'])
  expect(names({ sinceMs: 3_000 })).toEqual(['c3', 'c4'])
  expect(names({ after: 5 })).toEqual([])
})

test('goal: refusals of two persons of the identity provider, who share a user id, stay apart', () => {
  const { store } = egressAdmin()
  const log = createLogger({ level: 'error', nowMs: () => 0, sink: () => {} })
  const audit = new Audit({ ledger: store.ledger, clock: createManualClock(), log })
  for (const subject of ['a', 'b', 'a']) {
    const by = { uid: -1, gid: -1, pid: 0, socket: 'console', actor: `oidc:${subject}`, role: 'auditor' } as const
    audit.refuse({ by, operation: 'org.create', arguments: {} }, 'forbidden')
  }
  expect(audit.list(all).map(({ actor, times }) => [actor, times])).toEqual([
    ['oidc:a', 2],
    ['oidc:b', 1],
  ])
})
