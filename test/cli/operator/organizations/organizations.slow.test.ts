// Goal: quotas and instance-hours on the command line: each option reaches its field, and people, spreadsheets and
// programs can read what is printed.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { type AdminServer, listenAdmin } from '../../../../src/operator/access/socket.ts'
import { createAdmin } from '../../../../src/operator/api.ts'
import type { AdminDeps } from '../../../../src/operator/deps.ts'
import { openStore, type Store } from '../../../../src/store/db.ts'
import { insertOrganization } from '../../../../src/store/directory/organization.query.ts'
import { NO_ADMINISTRATORS } from '../../../rigs/admin.ts'
import { runWith } from '../../../rigs/program.ts'

setDefaultTimeout(120_000)

const hours = (ready_ms: number, instance_hours: string) => ({ ready_ms, instance_hours })

let dir: string
let store: Store
let server: AdminServer

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-cli-organizations-'))
  store = openStore(join(dir, 'strongroom.db'))
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: 1 })
  const deps: Partial<AdminDeps> = {
    ...NO_ADMINISTRATORS,
    ...{ store, clock: systemClock, random: systemRandom, log: silentLogger, gateway: 'off', collectors: [] },
    instanceHours: async ({ days, by }) => ({
      ...{ from: days.from, to: days.to, counted_to: days.to, by: [...by], total: hours(5_400_000, '1.500000') },
      rows: [
        { organization: 'acme', instance: 'aaaaaaa1', instance_id: 'i', day: null, ...hours(5_400_000, '1.500000') },
      ],
    }),
  }
  server = await listenAdmin(join(dir, 'admin.sock'), createAdmin(deps as AdminDeps))
})
afterAll(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

const run = (argv: readonly string[]) => runWith({ STRONGROOM_STATE_DIR: dir }, argv)

async function runJson(...argv: string[]): Promise<{ code: number; document: unknown }> {
  const { code, stdout, stderr } = await run([...argv, '--json'])
  expect([argv, stderr]).toEqual([argv, ''])
  return { code, document: JSON.parse(stdout) }
}

test('goal: instance-hours as a table, as CSV and as JSON', async () => {
  const days = ['--from', '2026-11-01', '--to', '2026-11-30']
  expect((await run(['billing', ...days])).stdout).toBe(
    'ORGANIZATION  INSTANCE  HOURS\nacme          aaaaaaa1  1.500000\ntotal                   1.500000\n',
  )
  expect((await run(['billing', ...days, '--format', 'csv'])).stdout).toBe(
    'organization,instance,instance_id,ready_ms,instance_hours\r\nacme,aaaaaaa1,i,5400000,1.500000\r\n',
  )
  expect(await runJson('billing', ...days)).toMatchObject({ code: 0, document: { total: { ready_ms: 5_400_000 } } })
  expect(await runJson('billing', 'nobody', ...days)).toMatchObject({ code: 4 })
  expect(await runJson('billing', '--from', '2026-11-31', '--to', '2026-12-01')).toMatchObject({
    code: 2,
    document: { error: { param: 'from' } },
  })
})

test('goal: quotas are set, shown and given back to the configuration', async () => {
  const quota = await run(['org', 'quota', 'acme', '--instances', '5', '--memory-mib', '16384'])
  expect([quota.code, quota.stdout]).toEqual([
    0,
    expect.stringContaining('keys:              0\ninstances at most: 5\nmemory at most:    16384 MiB\ncost this'),
  ])
  expect(await runJson('org', 'quota', 'acme', '--instances', 'default', '--memory-mib', 'default')).toMatchObject({
    code: 0,
    document: { quotas: { instances: null, memory_mib: null } },
  })
  expect(await runJson('org', 'quota', 'acme', '--creates-per-day', '0')).toMatchObject({ code: 2 })
})

test('goal: the name of a key that a shell would read as an option is refused before it is sent', async () => {
  expect(await runJson('key', 'create', 'acme', '--name=-rf')).toMatchObject({
    code: 2,
    document: { error: { message: expect.stringContaining('begins with a letter or digit') } },
  })
})
