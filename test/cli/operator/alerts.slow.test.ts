// Goal: `strongroom alerts test` shows the outcome of each receiver, and fails where one fails or none is configured.

import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { AdminAlertsTest } from '../../../src/contract/admin/alerts.ts'
import { listenAdmin } from '../../../src/operator/access/socket.ts'
import { openStore } from '../../../src/store/db.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'
import { runWith } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

const dir = mkdtempSync(join(tmpdir(), 'srt-alerts-cli-'))
afterAll(() => rmSync(dir, { recursive: true }))

async function testWith(results: AdminAlertsTest['results'] | null, ...options: string[]) {
  const store = openStore(':memory:')
  const testAlerts = results === null ? null : async () => results
  const socket = await listenAdmin(join(dir, 'admin.sock'), egressAdmin({ testAlerts }, store).admin)
  const result = await runWith({ STRONGROOM_STATE_DIR: dir }, ['alerts', 'test', ...options])
  await socket.stop()
  store.close()
  return result
}

const taken = { receiver: 'webhook', ok: true, detail: 'https://hook.example', remedy: null } as const
const refused = { receiver: 'email', ok: false, detail: 'mail: 535 \u001b[31mno', remedy: 'see the password' } as const

test('goal: receivers that take the test, and one that does not', async () => {
  const good = await testWith([taken])
  expect([good.code, good.stderr]).toEqual([0, ''])
  expect(good.stdout).toMatch(/^RECEIVER +RESULT +DETAIL +REMEDY\nwebhook +PASS +https:\/\/hook\.example +-\n$/)
  const bad = await testWith([taken, refused])
  expect(bad.code).toBe(1)
  expect(bad.stdout).toMatch(/\nemail +FAIL +mail: 535 \\x1b\[31mno +see the password\n$/)
  const document = await testWith([taken, refused], '--json')
  expect([document.code, JSON.parse(document.stdout)]).toEqual([1, { results: [taken, refused] }])
})

test('goal: without a receiver the fields to set are named', async () => {
  const none = await testWith(null)
  expect([none.code, none.stdout]).not.toEqual([0, ''])
  expect(none.stderr).toContain('set alerts.webhook_url, or alerts.smtp_server and alerts.email_to')
})
