// Goal: `strongroom events` prints who did what, follows it, asks the socket that its user may ask, and writes nothing
// to a terminal that a caller chose; `strongroom org delete` says its plan first.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'
import { createClient } from '../../../src/cli/daemon-client.ts'
import { sinceMs } from '../../../src/cli/operator/events.ts'
import { AdminOrganizationList } from '../../../src/contract/admin/admin.ts'
import { AdminCommandList } from '../../../src/contract/admin/events.ts'
import { type AdminServer, listenAdmin } from '../../../src/operator/access/socket.ts'
import { listAudit } from '../../../src/store/ledger/audit.query.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'
import { programArgv, runWith } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

const { admin, store } = egressAdmin()
let dir: string
const servers: AdminServer[] = []
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-events-'))
  chmodSync(dir, 0o711)
  servers.push(await listenAdmin(join(dir, 'admin.sock'), admin))
  servers.push(await listenAdmin(join(dir, 'monitor.sock'), admin, { socket: 'monitor', mode: 0o600, gid: null }))
})
afterAll(async () => {
  for (const server of servers) await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

const run = (...argv: string[]) => runWith({ STRONGROOM_STATE_DIR: dir }, argv)

test('goal: the record is shown by time, actor and number, for people and for programs', async () => {
  expect((await run('org', 'create', 'beta')).code).toBe(0)
  expect((await run('org', 'create', 'beta')).code).toBe(5)
  const shown = await run('events')
  expect(shown).toMatchObject({ code: 0, stderr: '' })
  expect(shown.stdout).toMatch(/TIME +ACTOR +ROLE +COMMAND +RESULT +ARGUMENTS\n/)
  expect(shown.stdout).toMatch(
    /root +admin +org\.create +ok +slug=beta\n.*root +admin +org\.create +conflict +slug=beta\n/,
  )
  const { commands } = JSON.parse((await run('events', '--json', '--limit', '1', '--actor', 'root')).stdout)
  expect(commands).toMatchObject([{ operation: 'org.create', result: 'conflict', uid: process.getuid?.() }])
  expect(JSON.parse((await run('events', '--json', '--actor', 'alice')).stdout)).toEqual({ commands: [] })
  const wrong = await run('events', '--since', 'yesterday')
  expect([wrong.code, wrong.stdout]).toEqual([2, ''])
  expect(wrong.stderr).toContain('remedy: give a time in UTC')
})

test('goal: times and ages are read as they are meant', () => {
  const now = Date.parse('2026-11-25T12:00:00Z')
  expect(sinceMs('30m', now)).toBe(now - 1_800_000)
  expect(sinceMs('7d', now)).toBe(now - 7 * 86_400_000)
  expect(sinceMs('2026-11-25', now)).toBe(Date.parse('2026-11-25T00:00:00Z'))
  expect(sinceMs('2026-11-25T09:00Z', now)).toBe(Date.parse('2026-11-25T09:00:00Z'))
  for (const text of ['', '5', '1w', '2026-11-25T09:00', '-5m', '2026-13-01'])
    expect(() => sinceMs(text, now)).toThrow()
})

test('goal: followed, each command is printed once when it has ended, as a document a line', async () => {
  const env = { PATH: process.env.PATH ?? '', STRONGROOM_STATE_DIR: dir }
  const argv = [...programArgv, 'events', '--follow', '--json', '--limit', '1']
  const child = Bun.spawn(argv, { env, stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
  let text = ''
  const reading = (async () => {
    for await (const bytes of child.stdout) text += new TextDecoder().decode(bytes)
  })()
  const lines = () => text.trim().split('\n').filter(Boolean)
  await until('the newest is printed', 20_000, () => lines().length === 1)
  await run('org', 'suspend', 'beta')
  await run('org', 'suspend', 'beta')
  await until('both are followed', 20_000, () => lines().length === 3)
  child.kill()
  await reading
  const operations = lines()
    .map(line => JSON.parse(line))
    .map(({ operation, result }) => [operation, result])
  expect(operations).toEqual([
    ['org.create', 'conflict'],
    ['org.suspend', 'ok'],
    ['org.suspend', 'ok'],
  ])
})

test('goal: a deletion is refused with what runs, planned, made and repeated', async () => {
  const refused = await run('org', 'delete', 'acme')
  expect([refused.code, refused.stdout]).toEqual([5, ''])
  expect(refused.stderr).toContain('still has 1 instance (abcd2345)')
  const plan = await run('org', 'delete', 'acme', '--dry-run')
  expect(plan.stdout).toMatch(/deletion: +not asked for; this is what it would do\n/)
  expect(plan.stdout).toMatch(/slug after: +never used again/)
  const accepted = await run('org', 'delete', 'acme', '--force')
  expect([accepted.code, accepted.stderr]).toEqual([0, expect.stringContaining('It goes on by itself')])
  expect(accepted.stdout).toMatch(/accepted at .*; waits for 1 instance\n/)
  expect((await run('org', 'delete', 'acme')).code).toBe(0)
})

test('goal: a user who is not root asks the read-only socket for states, and the other for the rest', async () => {
  const before = listAudit(store.ledger.db, { after: null, sinceMs: null, actor: null, limit: 100 }).length
  const both = createClient(join(dir, 'admin.sock'), join(dir, 'monitor.sock'))
  const looked = await both.request({ path: '/organizations', response: AdminOrganizationList })
  expect(looked.organizations.length).toBe(2)
  // By the read-only socket this would be refused, and be on record.
  await both.request({ path: '/events', query: { limit: 1 }, response: AdminCommandList })
  const rows = listAudit(store.ledger.db, { after: null, sinceMs: null, actor: null, limit: 100 })
  expect(rows.length).toBe(before)
  const onlyLooks = createClient(join(dir, 'gone.sock'), join(dir, 'monitor.sock'))
  await onlyLooks.request({ path: '/organizations', response: AdminOrganizationList })
  const refused = onlyLooks.request({ path: '/events', response: AdminCommandList })
  expect(await refused.catch(({ code }: { code: string }) => code)).toBe('admin.unreachable')
  const withoutMonitor = createClient(join(dir, 'admin.sock'), join(dir, 'gone.sock'))
  await withoutMonitor.request({ path: '/organizations', response: AdminOrganizationList })
})
