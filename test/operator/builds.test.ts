// Goal: the operator sees the builds of all organizations and ends them once, over the admin interface and a real
// database.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { Fault } from '../../src/base/fault.ts'
import { newUuid } from '../../src/base/ids.ts'
import { AdminBuild, AdminBuildList } from '../../src/contract/admin/admin.ts'
import { operationOf } from '../../src/contract/admin/roles.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { asRoot } from '../rigs/admin.ts'
import { addQueuedBuild, buildsAdmin, cancelQueuedBuild } from '../rigs/build/queued-build.ts'

let store: Store
let nowMs = Date.parse('2026-11-20T12:00:00.000Z')
beforeEach(() => {
  store = openStore(':memory:')
  insertOrganization(store.directory.db, { id: newUuid(), slug: 'acme', nowMs })
})
afterEach(() => store.close())

/** Later than those before it. */
function add(slug: string | null): string {
  nowMs += 1
  return addQueuedBuild(store, { slug, kind: 'archive', nowMs })
}

async function ask(
  [method, path]: [string, string],
  cancelBuild: AdminDeps['cancelBuild'] = async id => cancelQueuedBuild(store, id),
) {
  const admin = buildsAdmin(store, { cancelBuild, nowMs: () => nowMs })
  const response = await asRoot(admin)(new Request(`http://admin${path}`, { method }))
  return { status: response.status, body: await response.json() }
}

test('goal: builds of all organizations are listed, the newest first, in the documented shape', async () => {
  const [first, anybodys, last] = [add('acme'), add(null), add('acme')]
  const listed = async (query: string) => {
    const { body } = await ask(['GET', `/builds${query}`])
    return Value.Check(AdminBuildList, body) ? body.builds.map(({ id }) => id) : [...Value.Errors(AdminBuildList, body)]
  }
  expect(await listed('')).toEqual([last, anybodys, first])
  expect(await listed('?organization=acme')).toEqual([last, first])
  expect(await listed('?limit=1')).toEqual([last])
  const { body } = await ask(['GET', `/builds/${anybodys}`])
  expect([Value.Check(AdminBuild, body), body]).toMatchObject([true, { organization: null, vm_id: null }])
})

test('goal: in a fleet a build says which host has it', async () => {
  const id = add('acme')
  const hostName = (hostId: string) => (hostId === store.hostId ? 'rack-1' : null)
  const admin = buildsAdmin(store, { cancelBuild: null, hostName, nowMs: () => nowMs })
  const response = await asRoot(admin)(new Request(`http://admin/builds/${id}`))
  expect(await response.json()).toMatchObject({ id, host: 'rack-1' })
})

test('goal: a build is cancelled once, and only that is an event', async () => {
  const [first, anybodys] = [add('acme'), add(null)]
  for (const id of [first, first, anybodys]) {
    expect(await ask(['POST', `/builds/${id}/cancel`])).toMatchObject({
      status: 200,
      body: { id, state: 'cancelled', error_type: 'cancelled', vm: null },
    })
  }
  const events = listEvents(store.ledger.db, { limit: 100 }).map(({ kind, subject, detail }) => [kind, subject, detail])
  expect(events).toEqual([
    ['build.operator_cancel', anybodys, { state: 'queued', organization: null }],
    ['build.operator_cancel', first, { state: 'queued', organization: 'acme' }],
  ])
})

test('goal: where service C is off, an ended build is told, and no living one is said to be cancelled', async () => {
  const [ended, living] = [add('acme'), add('acme')]
  cancelQueuedBuild(store, ended)
  expect(await ask(['POST', `/builds/${ended}/cancel`], null)).toMatchObject({ status: 200 })
  expect(await ask(['POST', `/builds/${living}/cancel`], null)).toMatchObject({
    status: 409,
    body: { error: { code: 'conflict', message: expect.stringContaining('set listen.builds') } },
  })
  expect(await ask(['GET', `/builds/${living}`])).toMatchObject({ body: { state: 'queued' } })
})

test('goal: what there is not is not found, and a count beyond the limit is refused', async () => {
  const table: [method: string, path: string, status: number, code: string][] = [
    ['GET', '/builds?organization=nobody', 404, 'not_found'],
    ['GET', '/builds?limit=1001', 400, 'invalid_request'],
    ['GET', '/builds/nothing1', 404, 'not_found'],
    ['POST', '/builds/nothing1/cancel', 404, 'not_found'],
    ['POST', `/builds/${'a'.repeat(65)}/cancel`, 400, 'invalid_request'],
  ]
  for (const [method, path, status, code] of table) {
    expect([path, await ask([method, path])]).toMatchObject([path, { status, body: { error: { code } } }])
  }
})

test('goal: the log of a build is text for those who may see consoles; a log that is gone is a refusal', async () => {
  const id = add('acme')
  const asked: unknown[] = []
  const admin = buildsAdmin(store, {
    cancelBuild: null,
    nowMs: () => nowMs,
    buildLog: (build, { follow }) => {
      asked.push([build.id, follow])
      return (async function* () {
        if (follow) throw new Fault('not_found', 'The events of this build were removed.')
        yield Buffer.from('build: one\n')
        yield Buffer.from('complete: ok\n')
      })()
    },
  })
  const get = (path: string) => asRoot(admin)(new Request(`http://admin${path}`))
  expect(await (await get(`/builds/${id}/log`)).text()).toBe('build: one\ncomplete: ok\n')
  expect((await get(`/builds/${id}/log?follow=true`)).status).toBe(404)
  expect(asked).toEqual([
    [id, false],
    [id, true],
  ])
  expect(await ask(['GET', `/builds/${id}/log`])).toMatchObject({ status: 409, body: { error: { code: 'conflict' } } })
  expect(operationOf('GET', '/builds/:id/log')).toEqual({ name: 'builds.logs', right: 'operate' })
})
