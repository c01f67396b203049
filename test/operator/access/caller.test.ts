// Goal: who a caller is follows from the ids of the kernel, the socket and the configuration, as written here.

import { expect, test } from 'bun:test'
import { type Caller, knownCaller, personOf, refusalOf, strangerFault } from '../../../src/operator/access/caller.ts'

const administrators = [
  { uid: 1001, user: 'alice', role: 'operator' },
  { uid: 990, user: 'daemon', role: 'auditor' },
] as const
const setting = { administrators, ownerUid: 990 }
const by = (uid: number, socket: 'admin' | 'monitor' = 'admin'): Caller => ({ uid, gid: 5, pid: 7, socket })
const known = (caller: Caller) => {
  const { actor, role } = knownCaller(caller, setting)
  return [actor, role]
}

test('goal: root and the user of the daemon are administrators, others have the role that they were given, or none', () => {
  expect(known(by(0))).toEqual(['root', 'admin'])
  expect(known(by(1))).toEqual(['uid 1', null])
  expect(known(by(990))).toEqual(['daemon', 'admin'])
  expect(known(by(1001))).toEqual(['alice', 'operator'])
  expect(known(by(4242))).toEqual(['uid 4242', null])
  expect(knownCaller(by(990), { administrators: [], ownerUid: 990 })).toMatchObject({ actor: 'uid 990', role: 'admin' })
  expect(knownCaller(by(1001), setting)).toEqual({
    uid: 1001,
    gid: 5,
    pid: 7,
    socket: 'admin',
    actor: 'alice',
    role: 'operator',
  })
})

test('goal: the read-only socket gives everybody the role monitor, and a session the role that it has', () => {
  expect([0, 990, 1001, 4242].map(uid => known(by(uid, 'monitor')))).toEqual([
    ['root', 'monitor'],
    ['daemon', 'monitor'],
    ['alice', 'monitor'],
    ['uid 4242', 'monitor'],
  ])
  const session = { uid: 0, gid: 0, pid: 7, socket: 'console', actor: 'alice', role: 'auditor' } as const
  expect(knownCaller(session, setting)).toBe(session)
})

test('goal: the person behind a name', () => {
  const of = (actor: string) => personOf(actor, setting)
  expect(of('root')).toEqual({ uid: 0, actor: 'root', role: 'admin' })
  expect(of('alice')).toEqual({ uid: 1001, actor: 'alice', role: 'operator' })
  // The configuration gives the daemon's own user fewer rights; it has all the same.
  expect(of('daemon')).toEqual({ uid: 990, actor: 'daemon', role: 'admin' })
  expect(of('uid 990')).toEqual({ uid: 990, actor: 'uid 990', role: 'admin' })
  expect([of('bob'), of('uid 1001'), of('')]).toEqual([null, null, null])
})

test('goal: a refusal says what is needed and how to get it', () => {
  const refused = (caller: Caller, method: string, route: string) =>
    refusalOf(knownCaller(caller, setting), method, route)?.message ?? null
  expect(refused(by(1001), 'POST', '/clock/confirm')).toBe(
    'alice may not use clock.confirm as operator; it needs the role admin ([[operator.admins]] in the configuration)',
  )
  expect(refused(by(0, 'monitor'), 'GET', '/events')).toBe(
    'root may not use events as monitor; this socket only reads, and it needs the role admin or operator or auditor ([[operator.admins]] in the configuration) on admin.sock',
  )
  expect(refused(by(0), 'GET', '/nothing')).toBe('GET /nothing has no role, so no user may use it')
  expect([refused(by(0), 'POST', '/clock/confirm'), refused(by(1001), 'GET', '/status')]).toEqual([null, null])
  const advice =
    'is no administrator here; be root, or let root add the user to [[operator.admins]] in the configuration'
  expect(refused(by(4242), 'GET', '/status')).toBe(`the user with id 4242 ${advice}`)
  expect(strangerFault({ actor: 'bob', uid: 1 })).toMatchObject({ code: 'forbidden', message: `bob ${advice}` })
})
