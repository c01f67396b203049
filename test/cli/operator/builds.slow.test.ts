// Goal: `strongroom builds` prints what operators rely on, and nothing that a source could do to their terminal.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { newUuid } from '../../../src/base/ids.ts'
import { adminSocketName } from '../../../src/contract/admin/sockets.ts'
import { type AdminServer, listenAdmin } from '../../../src/operator/access/socket.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { addQueuedBuild, buildsAdmin, cancelQueuedBuild } from '../../rigs/build/queued-build.ts'
import { programArgv } from '../../rigs/program.ts'

setDefaultTimeout(120_000)

const nowMs = Date.parse('2026-11-20T12:00:00.000Z')
let dir: string
let store: Store
let server: AdminServer
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-builds-cli-'))
  store = openStore(join(dir, 'strongroom.db'))
  insertOrganization(store.directory.db, { id: newUuid(), slug: 'builders', nowMs })
  const admin = buildsAdmin(store, { cancelBuild: async id => cancelQueuedBuild(store, id), nowMs: () => nowMs })
  server = await listenAdmin(join(dir, adminSocketName), admin)
})
afterAll(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

async function run(argv: readonly string[]) {
  const child = Bun.spawn([...programArgv, ...argv], {
    env: { PATH: process.env.PATH ?? '', STRONGROOM_STATE_DIR: dir },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}

test('goal: the operator lists, shows and cancels builds of all organizations', async () => {
  const owned = addQueuedBuild(store, { slug: 'builders', kind: 'git', nowMs })
  const anybodys = addQueuedBuild(store, { slug: null, kind: 'archive', nowMs })
  const list = await run(['builds', 'list'])
  expect(list.stdout).toMatch(/^ID +ORGANIZATION +STATE +SOURCE +CREATED +FINISHED +ERROR\n/)
  expect(list.stdout).toContain('https://git.example/demo.git main\\x1b]0;owned\\x07')
  expect(list.stdout).toMatch(new RegExp(`${owned} +builders +queued`))
  expect(list.stdout).toMatch(new RegExp(`${anybodys} +- +queued +a\\\\x1b`))
  expect(list.stdout).not.toContain('\u001b')
  const ofOne = await run(['builds', 'list', '--org', 'builders', '--json'])
  expect(JSON.parse(ofOne.stdout)).toMatchObject({ builds: [{ id: owned, vm: null }] })
  // Where as many are printed as were asked for, the next command stands below.
  expect((await run(['builds', 'list', '--limit', '1'])).stderr).toContain('--limit 10')
  const shown = await run(['builds', 'show', owned])
  expect([shown.code, shown.stdout]).toEqual([0, expect.stringMatching(/state: +queued\n/)])
  expect(shown.stdout).not.toContain('\u001b')
  for (const _ of [1, 2]) {
    const cancelled = await run(['builds', 'cancel', owned])
    expect([cancelled.code, cancelled.stdout]).toEqual([0, expect.stringMatching(/state: +cancelled\n/)])
  }
  expect((await run(['builds', 'show', owned])).stdout).toMatch(/error: +cancelled: The build was cancelled\.\n/)
  expect((await run(['builds', 'show', newUuid()])).code).toBe(4)
  expect((await run(['builds', 'cancel', '../status'])).code).toBe(4)
})
