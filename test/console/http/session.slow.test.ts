// Goal: a link logs one browser in once; a session asks the operator's interface with its person's rights, under its
// name in the record of commands, until it ends.

import { expect, test } from 'bun:test'
import { listAudit } from '../../../src/store/ledger/audit.query.ts'
import { cookieOf, linkToken, logIn, pageHeaders, startConsole } from '../../rigs/console/console.ts'

const administrators = [
  { uid: 1001, user: 'alice', role: 'operator' as const },
  { uid: 1002, user: 'bob', role: 'auditor' as const },
]

test('goal: a link logs in once, by a cookie that no script and no other site has', async () => {
  await using rig = await startConsole()
  const token = await linkToken(rig)
  const ask = () =>
    rig.send('/api/session', { method: 'POST', headers: pageHeaders(rig.origin), body: JSON.stringify({ token }) })
  const first = await ask()
  expect(first.status).toBe(201)
  expect(first.headers.get('set-cookie')).toMatch(
    /^__Host-strongroom=[\w-]{43}; Path=\/; Max-Age=43200; Secure; HttpOnly; SameSite=Strict$/,
  )
  expect(await first.json()).toMatchObject({ actor: 'root', role: 'admin', by: 'link', fleet: false })
  const again = await ask()
  expect(again.status).toBe(403)
  expect(await again.json()).toMatchObject({ error: { code: 'forbidden', param: 'token' } })
})

test('goal: the operator interface answers a session as it answers the socket', async () => {
  await using rig = await startConsole()
  const cookie = await logIn(rig)
  const list = await rig.send('/api/operator/organizations', { headers: { cookie } })
  expect(await list.json()).toEqual(await (await rig.asRoot('GET', '/organizations')).json())
  const wrong = { method: 'POST', headers: pageHeaders(rig.origin, cookie), body: '{"slug":"-"}' }
  const [byConsole, bySocket] = [
    await rig.send('/api/operator/organizations', wrong),
    await rig.asRoot('POST', '/organizations', { slug: '-' }),
  ]
  expect(byConsole.status).toBe(bySocket.status)
  expect(await byConsole.json()).toEqual(await bySocket.json())
})

test('goal: a change by the console is recorded with its person, and a refused one too', async () => {
  await using rig = await startConsole({ administrators })
  const cookie = await logIn(rig, { as: 'alice' })
  const headers = pageHeaders(rig.origin, cookie)
  await rig.send('/api/operator/organizations/acme/suspend', { method: 'POST', headers, body: '{}' })
  const made = await rig.send('/api/operator/organizations', { method: 'POST', headers, body: '{"slug":"new"}' })
  expect(made.status).toBe(403)
  const rows = listAudit(rig.store.ledger.db, { after: null, sinceMs: null, actor: 'alice', limit: 10 })
  expect(rows.map(({ operation, socket, uid, role, result }) => [operation, socket, uid, role, result])).toEqual([
    ['console.login', 'console', 1001, 'operator', 'ok'],
    ['org.suspend', 'console', 1001, 'operator', 'ok'],
    ['org.create', 'console', 1001, 'operator', 'forbidden'],
  ])
})

test('goal: a log-in ends the session that the browser had, and a log-out its own', async () => {
  await using rig = await startConsole()
  const first = await logIn(rig)
  const body = JSON.stringify({ token: await linkToken(rig) })
  const response = await rig.send('/api/session', { method: 'POST', headers: pageHeaders(rig.origin, first), body })
  const second = cookieOf(response)
  const status = async (cookie: string) => (await rig.send('/api/session', { headers: { cookie } })).status
  expect([await status(first), await status(second)]).toEqual([401, 200])
  const out = await rig.send('/api/session', { method: 'DELETE', headers: pageHeaders(rig.origin, second) })
  expect([out.status, cookieOf(out)]).toEqual([204, '__Host-strongroom='])
  expect(await status(second)).toBe(401)
})

test('goal: nobody gets a link with more rights than it has, or as somebody else unless it is admin', async () => {
  await using rig = await startConsole({ administrators })
  const ask = async (uid: number, asked: object) => {
    const caller = { uid, gid: uid, pid: 9, socket: 'admin' as const }
    const response = await rig.asRoot('POST', '/console/links', asked, caller)
    const { actor, role, error } = (await response.json()) as Record<string, unknown>
    return [response.status, actor ?? Reflect.get(Object(error), 'param'), role ?? null]
  }
  expect(await ask(0, {})).toEqual([200, 'root', 'admin'])
  expect(await ask(0, { as: 'alice' })).toEqual([200, 'alice', 'operator'])
  expect(await ask(0, { as: 'alice', role: 'auditor' })).toEqual([200, 'alice', 'auditor'])
  expect(await ask(0, { as: 'alice', role: 'admin' })).toEqual([403, 'role', null])
  expect(await ask(0, { as: 'carol' })).toEqual([400, 'as', null])
  expect(await ask(1001, {})).toEqual([200, 'alice', 'operator'])
  expect(await ask(1001, { as: 'bob' })).toEqual([403, 'as', null])
  expect(await ask(1001, { role: 'admin' })).toEqual([403, 'role', null])
  expect(await ask(1002, { role: 'auditor' })).toEqual([200, 'bob', 'auditor'])
  expect(await ask(4242, {})).toEqual([403, undefined, null])
  const cookie = await logIn(rig, { as: 'alice' })
  const byConsole = await rig.send('/api/operator/console/links', {
    method: 'POST',
    headers: pageHeaders(rig.origin, cookie),
    body: '{}',
  })
  expect(byConsole.status).toBe(403)
})

test('goal: every path of the page is the one document, its parts never change, and nothing inline runs', async () => {
  await using rig = await startConsole()
  const page = await rig.send('/instances/some.name')
  const text = await page.text()
  expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
  expect(page.headers.get('content-security-policy')).toContain("default-src 'none'; script-src 'self'")
  const parts = [...text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path]) => path ?? '')
  expect(parts).toHaveLength(2)
  for (const path of parts) {
    const part = await rig.send(path)
    expect([part.status, part.headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable'])
  }
  expect((await rig.send('/assets/none.js')).status).toBe(404)
})
