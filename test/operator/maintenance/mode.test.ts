// Goal: maintenance refuses what is new in words for tenants, tells of itself in a header, survives a restart, and ends
// by the operator's word alone.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { AdminMaintenance } from '../../../src/contract/admin/maintenance.ts'
import { retryAfterOf } from '../../../src/http/limited.ts'
import { createAdmin } from '../../../src/operator/api.ts'
import type { AdminDeps } from '../../../src/operator/deps.ts'
import { MaintenanceMode } from '../../../src/operator/maintenance/mode.ts'
import { openStore } from '../../../src/store/db.ts'
import { listEvents } from '../../../src/store/ledger/event.query.ts'
import { swapMeta } from '../../../src/store/ledger/meta.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../../rigs/admin.ts'

const clock = createManualClock(Date.parse('2026-11-30T12:00:00Z'))

function opened(path = ':memory:', fleet: { name: string } | null = null) {
  const store = openStore(path)
  const mode = new MaintenanceMode(store, { clock, log: silentLogger })
  const deps = { ...NO_ADMINISTRATORS, store, clock, log: silentLogger, random: systemRandom, maintenance: mode }
  const status = () => ({ fleet })
  const admin = asRoot(createAdmin({ ...deps, status, gateway: 'off', collectors: [] } as unknown as AdminDeps))
  const ask = async (method: string, path: string, body?: unknown) => {
    const headers = { 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const response = await admin(new Request(`http://admin/maintenance${path}`, { method, headers, ...sent }))
    return { status: response.status, body: (await response.json()) as AdminMaintenance }
  }
  return { store, mode, ask, [Symbol.dispose]: () => store.close() }
}

function refusal(mode: MaintenanceMode): [string, number | null] | null {
  try {
    mode.admitNew('builds')
    return null
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    return [error.message, retryAfterOf(error)]
  }
}

test('goal: begun, changed and ended, each on record, with what tenants read while it lasts', async () => {
  using the = opened()
  const header = async () => {
    const respond = the.mode.noticed(() => new Response('body'))
    return (await respond()).headers.get('x-strongroom-maintenance')
  }
  expect([refusal(the.mode), await header(), (await the.ask('GET', '')).body]).toEqual([
    null,
    null,
    { maintenance: null },
  ])
  const since = '2026-11-30T12:00:00.000Z'
  expect(await the.ask('POST', '/begin', { until: '2026-11-30T12:05Z', message: 'a "new" disk\\' })).toEqual({
    status: 200,
    body: { maintenance: { since, until: '2026-11-30T12:05:00.000Z', message: 'a "new" disk\\' } },
  })
  expect(refusal(the.mode)).toEqual([
    'This appliance is in maintenance until about 2026-11-30T12:05:00.000Z and accepts no new builds. Nothing was created; send the request again after the time in Retry-After. Message of the operator: a "new" disk\\',
    300,
  ])
  expect(await header()).toBe(
    'since="2026-11-30T12:00:00.000Z", until="2026-11-30T12:05:00.000Z", message="a \\"new\\" disk\\\\"',
  )
  expect((await the.ask('POST', '/begin', { until: null, message: '' })).body).toEqual({
    maintenance: { since, until: null, message: '' },
  })
  expect(refusal(the.mode)?.[1]).toBe(600)
  expect(await header()).toBe('since="2026-11-30T12:00:00.000Z"')
  for (let n = 0; n < 2; n += 1) expect((await the.ask('POST', '/end')).body).toEqual({ maintenance: null })
  expect([refusal(the.mode), await header()]).toEqual([null, null])
  const noted = listEvents(the.store.ledger.db, { limit: 10 }).map(({ kind }) => kind)
  expect(noted.toReversed()).toEqual(['maintenance.begun', 'maintenance.begun', 'maintenance.ended'])
})

test('goal: a restart keeps the mode, and a row that cannot be read keeps it on rather than off', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-maintenance-'))
  try {
    const path = join(directory, 'strongroom.db')
    {
      using first = opened(path)
      await first.ask('POST', '/begin', { until: null, message: 'disk' })
    }
    {
      using second = opened(path)
      expect(second.mode.view()).toEqual({ since: '2026-11-30T12:00:00.000Z', until: null, message: 'disk' })
      swapMeta(second.store.ledger.db, 'maintenance', '{"since":')
    }
    {
      using third = opened(path)
      expect(refusal(third.mode)).not.toBeNull()
      await third.ask('POST', '/end')
    }
    using fourth = opened(path)
    expect(fourth.mode.view()).toBeNull()
  } finally {
    rmSync(directory, { recursive: true })
  }
})

test('goal: a bad end or message is refused by its field, and a host of a fleet is drained instead', async () => {
  using the = opened()
  for (const [body, param] of [
    [{ until: 'tomorrow', message: '' }, 'until'],
    [{ until: '2026-11-30T12:00:00Z', message: '' }, 'until'],
    [{ until: '2026-13-30T12:00:00Z', message: '' }, 'until'],
    [{ until: null, message: 'a\r\nSet-Cookie: b' }, 'message'],
    [{ until: null, message: 'ü' }, 'message'],
    [{ until: null, message: 'x'.repeat(201) }, 'message'],
    [{ message: '' }, 'until'],
  ] as const) {
    const refused = await the.ask('POST', '/begin', body)
    expect([body, refused]).toMatchObject([body, { status: 400, body: { error: { param } } }])
  }
  expect(the.mode.view()).toBeNull()
  using member = opened(':memory:', { name: 'rack-1' })
  const message =
    'this host is in a fleet, which places what is new on its other hosts: use `strongroom fleet drain rack-1`'
  expect(await member.ask('POST', '/begin', { until: null, message: '' })).toEqual({
    status: 409,
    body: { error: { code: 'conflict', message } },
  } as never)
})
