// Goal: `strongroom console` opens the console by a link, shows and ends its sessions and passkeys, and says what is
// missing where the console is off.

import { expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import { listenAdmin } from '../../../src/operator/access/socket.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertPasskey } from '../../../src/store/ledger/passkey.query.ts'
import { logIn, pageHeaders, startConsole } from '../../rigs/console/console.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'
import { runWith } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

const administrators = [{ uid: 1001, user: 'alice', role: 'operator' as const }]

test('goal: a link logs in, sessions are shown and ended, passkeys are shown and removed', async () => {
  await using rig = await startConsole({ administrators, names: ['console.example.org', '2001:db8::7'] })
  const socket = await listenAdmin(join(rig.stateDir, 'admin.sock'), rig.admin)
  const run = (...argv: string[]) => runWith({ STRONGROOM_STATE_DIR: rig.stateDir }, ['console', ...argv])
  const opened = await run('open', '--as', 'alice', '--role', 'auditor')
  expect(opened.code).toBe(0)
  const [first = '', second, third] = opened.stdout.split('\n')
  const token = new URL(first).hash.slice('#token='.length)
  const at = (name: string) => `https://${name}:${rig.port}/#token=${token}`
  expect([first, second, third]).toEqual(['console.example.org', '[2001:db8::7]', 'localhost'].map(at))
  expect(opened.stdout).toContain('alice (auditor); one browser, once, within a minute')
  const body = JSON.stringify({ token })
  const response = await rig.send('/api/session', { method: 'POST', headers: pageHeaders(rig.origin), body })
  expect(await response.json()).toMatchObject({ actor: 'alice', role: 'auditor' })

  const own = await logIn(rig)
  expect((await run('sessions')).stdout).toMatch(/alice +auditor +link.*\n.*root +admin +link/)
  expect((await run('close', '--as', 'alice')).stdout).toBe('1 ended\n')
  expect((await rig.send('/api/session', { headers: { cookie: own } })).status).toBe(200)
  expect((await run('close', '--all')).stdout).toBe('1 ended\n')
  expect((await rig.send('/api/session', { headers: { cookie: own } })).status).toBe(401)

  const passkey = { id: 'abc', actor: 'alice', role: 'operator' as const, rpId: 'localhost', name: 'a\u001b[31mb' }
  const made = { publicKey: Buffer.alloc(1), counter: 0, createdAtMs: Date.parse('2026-11-26T00:00:00Z') }
  insertPasskey(rig.store.ledger.db, { ...passkey, ...made })
  const listed = (await run('passkey', 'list')).stdout
  expect(listed).toMatch(/abc +alice +operator .* +localhost /)
  expect(listed).not.toContain('\u001b[31m')
  expect((await run('passkey', 'remove', 'abc')).code).toBe(0)
  expect(await run('passkey', 'remove', 'abc')).toMatchObject({ code: 4, stdout: '' })
  const events = await runWith({ STRONGROOM_STATE_DIR: rig.stateDir }, ['events'])
  expect(events.stdout).toMatch(/alice \(console\) +auditor +console\.login +ok/)
  expect(events.stdout).not.toContain(token)
  await socket.stop()
})

test('goal: where the console is off, the field is named', async () => {
  await using rig = await startConsole()
  const { admin } = egressAdmin({}, openStore(':memory:'))
  const socket = await listenAdmin(join(rig.stateDir, 'admin.sock'), admin)
  const off = await runWith({ STRONGROOM_STATE_DIR: rig.stateDir }, ['console', 'open'])
  expect(off.stderr).toContain('the console is off: set listen.console, such as "127.0.0.1:8444"')
  expect(off.code).not.toBe(0)
  await socket.stop()
})
