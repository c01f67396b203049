// Goal: the kernel says who asks. One user is never taken for another, on connections that begin and end by the
// hundred, whatever is sent over them; and the read-only socket changes nothing, for root neither.

import { afterAll, afterEach, beforeAll, beforeEach, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, copyFileSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { firstOwnUid } from '../../../scripts/rigs/launch/own-uids.ts'
import { gidOf, uidOf } from '../../../src/host/peer.ts'
import type { AdminSocket } from '../../../src/operator/access/caller.ts'
import { type AdminServer, type AskedAdmin, listenAdmin } from '../../../src/operator/access/socket.ts'
import { listOrganizations } from '../../../src/store/directory/organization.query.ts'
import { listAudit } from '../../../src/store/ledger/audit.query.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'

setDefaultTimeout(60_000)

const firstUid = firstOwnUid()
const alice = { uid: firstUid, user: 'alice', role: 'operator' } as const
const [stranger, monitors] = [firstUid + 1, firstUid + 2]

/** A copy of this runtime, which may lie where other users cannot read. */
let runtime: string
beforeAll(() => {
  const readable = mkdtempSync(join(tmpdir(), 'strongroom-runtime-'))
  chmodSync(readable, 0o755)
  runtime = join(readable, 'bun')
  copyFileSync(process.execPath, runtime)
  chmodSync(runtime, 0o755)
})
afterAll(() => rmSync(join(runtime, '..'), { recursive: true, force: true }))

let dir: string
const servers: AdminServer[] = []
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-peers-'))
  chmodSync(dir, 0o711)
})
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop()
  rmSync(dir, { recursive: true, force: true })
})

async function listen(admin: AskedAdmin, name: string, mode: number, socket: AdminSocket = 'admin', gid = 0) {
  const server = await listenAdmin(join(dir, name), admin, { socket, mode, gid })
  servers.push(server)
  return server.path
}

/** Runs one of the programs below as another user. */
function start(uid: number, gid: number, program: string, ...argv: string[]) {
  const file = join(runtime, '..', `${Bun.hash(program)}.mjs`)
  writeFileSync(file, program, { mode: 0o644 })
  chmodSync(file, 0o644)
  const user = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--', runtime, file]
  return Bun.spawn([...user, ...argv], { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe', cwd: '/' })
}

async function asUser(...of: Parameters<typeof start>) {
  const child = start(...of)
  const [code, stdout, stderr] = await Promise.all([child.exited, child.stdout.text(), child.stderr.text()])
  return { code, stdout, stderr }
}

/** Sends its second argument as it is, and prints all that comes until the other side closes, or for its third. */
const sender = `
import net from 'node:net'
const [path, text, forMs = 20_000] = process.argv.slice(2)
const socket = net.connect(path)
socket.on('connect', () => socket.write(text))
socket.on('data', data => process.stdout.write(data))
socket.on('error', error => console.error(error.code))
socket.on('close', () => process.exit())
setTimeout(() => process.exit(), Number(forMs))
`

const close = 'Host: x\r\nConnection: close\r\n'
const post = (path: string, body: string, headers = close) =>
  `POST ${path} HTTP/1.1\r\n${headers}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`
const statusesOf = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status))

test('goal: users and groups of this host are found by name', () => {
  expect([uidOf('root'), uidOf('nobody'), uidOf('no-such-user')]).toEqual([0, 65_534, null])
  expect([gidOf('root'), gidOf('nogroup'), gidOf('no-such-group')]).toEqual([0, 65_534, null])
})

test('goal: a named administrator does what its role may, others are turned away before they are read, all on record', async () => {
  const { admin, store } = egressAdmin({ administrators: [alice] })
  const path = await listen(admin, 'admin.sock', 0o666)
  const suspended = await asUser(alice.uid, 100, sender, path, post('/organizations/acme/suspend', ''))
  expect([statusesOf(suspended.stdout), suspended.stderr]).toEqual([[200], ''])
  const created = await asUser(alice.uid, 100, sender, path, post('/organizations', '{"slug":"mine"}'))
  expect(statusesOf(created.stdout)).toEqual([403])
  const foreign = await asUser(stranger, 100, sender, path, post('/organizations', '{"slug":"mine"}'))
  expect(statusesOf(foreign.stdout)).toEqual([403])
  expect(foreign.stdout).toContain(`the user with id ${stranger} is no administrator here`)
  expect(listOrganizations(store.directory.db).map(({ slug }) => slug)).toEqual(['acme'])
  const rows = listAudit(store.ledger.db, { after: null, sinceMs: null, actor: null, limit: 10 })
  expect(rows.map(({ uid, gid, actor, operation, result }) => [uid, gid, actor, operation, result])).toEqual([
    [alice.uid, 100, 'alice', 'org.suspend', 'ok'],
    [alice.uid, 100, 'alice', 'org.create', 'forbidden'],
    [stranger, 100, `uid ${stranger}`, 'connect', 'forbidden'],
  ])
  expect(rows.every(({ pid }) => pid > 1 && pid !== process.pid)).toBe(true)
})

test('goal: the read-only socket is its group’s, and nobody changes anything by it, whatever is written into a connection', async () => {
  const { admin, store } = egressAdmin({ administrators: [{ ...alice, role: 'admin' }] })
  const path = await listen(admin, 'monitor.sock', 0o660, 'monitor', monitors)
  expect([statSync(path).mode & 0o777, statSync(path).gid]).toEqual([0o660, monitors])
  const outside = await asUser(stranger, 100, sender, path, `GET /organizations HTTP/1.1\r\n${close}\r\n`)
  expect(outside.stderr).toContain('EACCES')
  const inside = await asUser(stranger, monitors, sender, path, `GET /organizations HTTP/1.1\r\n${close}\r\n`)
  expect(statusesOf(inside.stdout)).toEqual([200])
  const body = '{"slug":"mine"}'
  const keep = 'Host: x\r\n'
  const attempts = [
    post('/organizations', body),
    // Claims of headers, of another method, another host, and of a path in absolute form.
    post('/organizations', body, `${close}X-Uid: 0\r\nX-Forwarded-User: root\r\nX-HTTP-Method-Override: GET\r\n`),
    `POST http://strongroom/organizations HTTP/1.1\r\n${close}Content-Length: ${body.length}\r\n\r\n${body}`,
    `POST //organizations HTTP/1.1\r\n${close}Content-Length: ${body.length}\r\n\r\n${body}`,
    // A change behind a reading request: pipelined, hidden in its body, or behind two lengths that disagree.
    `GET /organizations HTTP/1.1\r\n${keep}\r\n${post('/organizations', body)}`,
    `GET /organizations HTTP/1.1\r\n${keep}Content-Length: ${post('/organizations', body).length}\r\n\r\n${post('/organizations', body)}`,
    `GET /organizations HTTP/1.1\r\n${keep}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${post('/organizations', body)}`,
    `GET /organizations HTTP/1.1\r\n${keep}Connection: upgrade\r\nUpgrade: h2c\r\n\r\n${post('/organizations', body)}`,
    `DELETE /instance?ref=acme/abcd2345 HTTP/1.1\r\n${close}\r\n`,
    `GET /events HTTP/1.1\r\n${close}\r\n`,
  ]
  for (const attempt of attempts) {
    for (const [uid, gid] of [
      [stranger, monitors],
      [alice.uid, monitors],
      [0, 0],
    ] as const) {
      // One that asks for the connection to stay is left at last.
      const closes = attempt.split('\r\n\r\n', 1)[0]?.includes('Connection: close') === true
      const answer = await asUser(uid, gid, sender, path, attempt, closes ? '20000' : '700')
      const changed = statusesOf(answer.stdout).filter(status => status === 201)
      expect([attempt, uid, changed]).toEqual([attempt, uid, []])
    }
  }
  expect(listOrganizations(store.directory.db).map(({ slug }) => slug)).toEqual(['acme'])
  const rows = listAudit(store.ledger.db, { after: null, sinceMs: null, actor: null, limit: 1_000 })
  expect(rows.filter(({ refused }) => !refused)).toEqual([])
  expect(new Set(rows.map(({ operation }) => operation))).toEqual(new Set(['org.create', 'instance.delete', 'events']))
})

test('goal: users that come and go by the hundred at once are each taken for themselves', async () => {
  const seen: [string, number][] = []
  const admin: AskedAdmin = {
    turnAway: () => null,
    handle: async (request, { uid }) => {
      seen.push([new URL(request.url).pathname, uid])
      return new Response(String(uid))
    },
  }
  const path = await listen(admin, 'admin.sock', 0o666)
  // Each user opens connections, ends most of them at once, and says on the others who it is.
  const storm = `
import net from 'node:net'
const uid = process.getuid()
const one = n => new Promise(resolve => {
  const socket = net.connect(process.argv[2])
  let data = ''
  socket.on('error', () => {})
  socket.on('close', () => {
    if (data !== '' && !data.includes('\\r\\n' + uid + '\\r\\n')) process.exitCode = 9
    resolve()
  })
  socket.on('data', part => { data += part })
  socket.on('connect', () => {
    if (n % 3 === 0) return socket.destroy()
    socket.write('GET /' + uid + ' HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')
    if (n % 3 === 1) socket.destroy()
  })
})
for (let n = 0; n < 300; n += 10) await Promise.all(Array.from({ length: 10 }, (_, at) => one(n + at)))
`
  const uids = Array.from({ length: 12 }, (_, at) => firstUid + 8 + at)
  const ends = await Promise.all(uids.map(uid => asUser(uid, uid, storm, path)))
  expect(ends.filter(({ code }) => code !== 0)).toEqual([])
  expect(seen.length).toBeGreaterThan(12 * 90)
  expect(seen.filter(([path, uid]) => path !== `/${uid}`)).toEqual([])
})

test('goal: one user holds its share of connections, all users theirs, and root finds room', async () => {
  const { admin } = egressAdmin({ administrators: [alice] })
  const path = await listen(admin, 'monitor.sock', 0o666, 'monitor')
  const holder = `
import net from 'node:net'
let held = 0
for (let n = 0; n < 60; n += 1) {
  await new Promise(resolve => {
    const socket = net.connect(process.argv[2])
    socket.on('connect', () => socket.write('GET /organizations HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'))
    socket.on('error', resolve)
    socket.on('close', resolve)
    socket.once('data', () => { held += 1; resolve() })
  })
}
console.log(held)
process.stdin.resume()
process.stdin.on('end', () => process.exit())
`
  const holders = Array.from(
    { length: 6 },
    (_, at) => () => start(firstUid + 24 + at, firstUid + 24 + at, holder, path),
  )
  const children: ReturnType<typeof start>[] = []
  const counts: number[] = []
  for (const begin of holders) {
    const child = begin()
    children.push(child)
    const { value } = await child.stdout.getReader().read()
    counts.push(Number(new TextDecoder().decode(value)))
  }
  expect(counts).toEqual([32, 32, 32, 32, 0, 0])
  const response = await fetch('http://strongroom/organizations', { unix: path })
  expect(response.status).toBe(200)
  for (const child of children) {
    child.stdin.end()
    await child.exited
  }
})

test('goal: a connection keeps the user who made it, and one that never speaks costs nothing but its place', async () => {
  const { admin } = egressAdmin()
  const path = await listen(admin, 'admin.sock', 0o600)
  const idle = connect(path)
  await new Promise<void>(resolve => idle.once('connect', () => resolve()))
  expect((await fetch('http://strongroom/organizations', { unix: path })).status).toBe(200)
  const ended = new Promise<void>(resolve => idle.once('close', () => resolve()))
  idle.resume()
  await servers.splice(0)[0]?.stop()
  await ended
})
