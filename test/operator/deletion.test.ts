// Goal: an organization is deleted wholly, once, and from wherever a killed daemon left it; what must stay stays, and
// nobody ever gets its slug. Real database.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../src/instances/http/auth.ts'
import { Removal, type RemovalDeps, waitsFor } from '../../src/operator/removal.ts'
import {
  closeBuild,
  insertBuildVm,
  insertReservation,
  moveBuild,
  noteRemoved,
  removeBuildVm,
} from '../../src/store/directory/build.query.ts'
import { listBuildsWithFiles, listDeleting, remainsOf } from '../../src/store/directory/deletion.query.ts'
import { insertGatewayKey, listGoodGatewayKeys } from '../../src/store/directory/gateway-key.query.ts'
import { findIdempotency, insertIdempotency } from '../../src/store/directory/idempotency.query.ts'
import { instanceById, moveInstance } from '../../src/store/directory/instance.query.ts'
import { findKey, insertKey } from '../../src/store/directory/key.query.ts'
import { findOrganization, listOrganizations } from '../../src/store/directory/organization.query.ts'
import { prepareUsageAppend } from '../../src/store/directory/usage/usage.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { addQueuedBuild } from '../rigs/build/queued-build.ts'
import { egressAdmin, nowMs } from '../rigs/instances/egress-admin.ts'

/** `acme` with an instance, a queued and a finished build, a reserved VM, both kinds of keys and a stored response. */
function opened() {
  const woken: string[] = []
  const rig = egressAdmin({ removeOrganization: id => woken.push(id) })
  const { directory } = rig.store
  const { db } = directory
  const [key, gatewayKey] = [mintKey(systemRandom), mintGatewayKey(systemRandom)]
  insertKey(db, { prefix: key.prefix, organizationId: 'o1', secretSha256: key.secretSha256, scope: 'write', nowMs })
  insertGatewayKey(db, {
    prefix: gatewayKey.prefix,
    organizationId: 'o1',
    instanceId: null,
    secretSha256: gatewayKey.secretSha256,
    requestsPerMinute: null,
    tokensPerMinute: null,
    concurrencyMax: null,
    expiresAtMs: null,
    nowMs,
  })
  const response = { bodySha256: Buffer.alloc(32), responseStatus: 202, responseData: '{}', nowMs }
  insertIdempotency(db, { organizationId: 'o1', key: 'k', ...response })
  const queued = addQueuedBuild(rig.store, { slug: 'acme', kind: 'archive', nowMs })
  const finished = addQueuedBuild(rig.store, { slug: 'acme', kind: 'archive', nowMs })
  const ended = { finishedAtMs: nowMs, errorType: 'cancelled', error: 'e' } as const
  moveBuild(db, { id: finished, from: 'queued', to: 'cancelled', ...ended })
  closeBuild(db, { id: finished, diskBytes: 4_096, nowMs })
  const reservation = { vmId: 'r1', hostId: rig.store.hostId, kind: 'reserved', organizationId: 'o1' } as const
  insertBuildVm(db, { ...reservation, imageDigest: 'd', shape: 's', expiresAtMs: nowMs + 1, nowMs })
  insertReservation(db, { vmId: 'r1', hostId: rig.store.hostId, organizationId: 'o1', expiresAtMs: nowMs + 1 })
  const ask = async (method: string, path: string, body?: unknown) => {
    const headers = { 'content-type': 'application/json' }
    const sent = body === undefined ? {} : { body: JSON.stringify(body) }
    const request = new Request(`http://strongroom${path}`, { method, headers, ...sent })
    const response = await rig.admin.handle(request, { uid: 0, gid: 0, pid: 1, socket: 'admin' })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }
  const acts: string[] = []
  const deps: RemovalDeps = {
    store: rig.store,
    clock: createManualClock(),
    log: silentLogger,
    deleteInstance: async ({ id, status }) => {
      if (status === 'terminating') return
      acts.push(`delete ${id}`)
      moveInstance(db, { id, from: status, to: 'terminating', nowMs, desired: 'absent' })
    },
    cancelBuild: async id => {
      acts.push('cancel')
      moveBuild(db, { id, from: 'queued', to: 'cancelled', ...ended })
      return null
    },
    removeBuildFiles: organizationId => {
      for (const id of listBuildsWithFiles(db, { organizationId, hostId: rig.store.hostId, limit: 10 })) {
        acts.push('files')
        noteRemoved(db, { id, nowMs })
      }
    },
  }
  /** The rest of the appliance, which ends what was dismissed. */
  const endAll = () => {
    moveInstance(db, { id: 'i1', from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
    closeBuild(db, { id: queued, diskBytes: 10, nowMs })
    removeBuildVm(db, 'r1')
  }
  const kinds = () => listEvents(rig.store.ledger.db, { limit: 100 }).map(event => event.kind)
  return { ...rig, db, ask, deps, acts, woken, endAll, kinds, key, gatewayKey, queued }
}

test('goal: without --force what runs is named and nothing changes; the plan says what would become of it', async () => {
  const { ask, db, key, queued, woken } = opened()
  const refused = await ask('DELETE', '/organizations/acme')
  expect(refused.status).toBe(409)
  expect(refused.body).toMatchObject({
    error: {
      code: 'conflict',
      message: `organization acme still has 1 instance (abcd2345), 1 build (${queued}), 1 reserved build VM; \`strongroom org delete acme --force\` ends them, --dry-run shows the plan`,
    },
  })
  expect(findKey(db, key.prefix)?.revokedAtMs).toBeNull()
  expect(findOrganization(db, 'acme')).toMatchObject({ status: 'active', deletingAtMs: null })
  expect(woken).toEqual([])
  expect((await ask('GET', '/organizations/acme/deletion')).body).toMatchObject({
    deleting_at: null,
    instances: ['abcd2345'],
    builds: [queued],
    reserved_vms: 1,
    keys_active: 1,
    gateway_keys_active: 1,
    build_file_bytes: 4_096,
  })
  expect((await ask('DELETE', '/organizations/nobody?force=true')).status).toBe(404)
})

test('goal: once accepted no key works, repeating it changes nothing, and nothing new is given', async () => {
  const { ask, db, key, kinds, woken } = opened()
  const first = await ask('DELETE', '/organizations/acme?force=true')
  expect([first.status, first.body.deleting_at]).toEqual([200, new Date(nowMs).toISOString()])
  expect(findKey(db, key.prefix)?.revokedAtMs).toBe(nowMs)
  expect(listGoodGatewayKeys(db)).toEqual([])
  expect(findIdempotency(db, { organizationId: 'o1', key: 'k' })).toBeNull()
  expect((await ask('DELETE', '/organizations/acme')).body).toEqual(first.body)
  expect(woken).toEqual(['o1', 'o1'])
  expect(kinds()).toEqual(['organization.deletion_accepted'])
  expect((await ask('GET', '/organizations/acme')).body.status).toBe('deleting')
  for (const [path, body] of [
    ['/organizations/acme/resume'],
    ['/organizations/acme/keys', { scope: 'write' }],
    ['/organizations/acme/budget', { budget_usd: '1' }],
  ] as const) {
    const answer = await ask('POST', path, body)
    expect([path, answer.status, answer.body]).toMatchObject([path, 409, { error: { code: 'conflict' } }])
  }
})

test('goal: each look goes on from what is left, and the end comes when nothing is', async () => {
  const { ask, db, deps, acts, endAll, kinds } = opened()
  await ask('DELETE', '/organizations/acme?force=true')
  // A daemon killed after each look: the next one knows only what the store says.
  await new Removal(deps).look('o1')
  expect(acts).toEqual(['delete i1', 'cancel', 'files'])
  expect(findOrganization(db, 'acme')?.deletedAtMs).toBeNull()
  await new Removal(deps).look('o1')
  expect(acts).toHaveLength(3)
  expect(waitsFor(remainsOf(db, 'o1'))).toEqual(['1 instance', '1 build', '1 reserved build VM'])
  endAll()
  await new Removal(deps).look('o1')
  expect(acts.slice(3)).toEqual(['files'])
  expect(findOrganization(db, 'acme')?.deletedAtMs).toEqual(expect.any(Number))
  expect(listDeleting(db)).toEqual([])
  await new Removal(deps).look('o1')
  expect(kinds().filter(kind => kind === 'organization.deleted')).toHaveLength(1)
})

test('goal: a daemon that starts goes on with what was accepted, and an organization that nobody deletes is left alone', async () => {
  const { ask, db, deps, endAll, acts } = opened()
  const idle = new Removal(deps)
  await idle.look('o1')
  expect(acts).toEqual([])
  await ask('DELETE', '/organizations/acme?force=true')
  const removal = new Removal(deps)
  removal.start()
  await Bun.sleep(0)
  await removal.stop()
  expect(acts).toContain('delete i1')
  endAll()
  const again = new Removal(deps)
  again.start()
  await Bun.sleep(0)
  await again.stop()
  expect(findOrganization(db, 'acme')?.deletedAtMs).not.toBeNull()
})

test('goal: in a fleet it ends once the directory has what this host says of its builds: others have their sources until then', async () => {
  const { ask, db, deps, endAll } = opened()
  await ask('DELETE', '/organizations/acme?force=true')
  await new Removal(deps).look('o1')
  endAll()
  db.run("INSERT INTO outbox (table_name, row_key) SELECT 'builds', json_object('id', id) FROM builds")
  await new Removal(deps).look('o1')
  expect(findOrganization(db, 'acme')?.deletedAtMs).toBeNull()
  expect(waitsFor(remainsOf(db, 'o1'))).toEqual(['2 builds with files'])
  db.run('DELETE FROM outbox')
  await new Removal(deps).look('o1')
  expect(findOrganization(db, 'acme')?.deletedAtMs).not.toBeNull()
})

test('goal: while service C is off, what it holds is waited for', async () => {
  const { ask, db, deps, endAll } = opened()
  await ask('DELETE', '/organizations/acme?force=true')
  const off = { ...deps, cancelBuild: null, removeBuildFiles: null }
  await new Removal(off).look('o1')
  endAll()
  await new Removal(off).look('o1')
  expect(waitsFor(remainsOf(db, 'o1'))).toEqual(['2 builds with files'])
  await new Removal(deps).look('o1')
  expect(findOrganization(db, 'acme')?.deletedAtMs).not.toBeNull()
})

test('goal: records and usage of a deleted organization stay readable, lists leave it out, and its slug is nobody’s', async () => {
  const { ask, db, deps, endAll } = opened()
  prepareUsageAppend(db)([
    {
      id: 'u1',
      atMs: nowMs,
      organizationId: 'o1',
      keyPrefix: 'p',
      instanceId: null,
      model: 'm',
      upstream: 'u',
      promptTokens: 3,
      completionTokens: 4,
      costNanoUsd: 5,
      tokensSource: 'reported',
      endUser: null,
      tags: null,
      cachedTokens: 0,
      outcome: 'completed',
    },
  ])
  await ask('DELETE', '/organizations/acme?force=true')
  await new Removal(deps).look('o1')
  endAll()
  await new Removal(deps).look('o1')
  expect(listOrganizations(db)).toEqual([])
  expect((await ask('GET', '/organizations')).body).toEqual({ organizations: [] })
  const { organizations } = (await ask('GET', '/organizations?deleted=true')).body as { organizations: object[] }
  expect(organizations).toMatchObject([{ slug: 'acme', status: 'deleted', month_tokens: 7 }])
  const { instances } = (await ask('GET', '/instances')).body as { instances: object[] }
  expect(instances).toMatchObject([{ organization: 'acme', name: 'abcd2345', status: 'terminated' }])
  expect(instanceById(db, 'i1')).not.toBeNull()
  const usage = await ask('GET', '/organizations/acme/usage?from=2026-11-01&to=2026-11-30')
  expect(usage.status).toBe(200)
  const taken = await ask('POST', '/organizations', { slug: 'acme' })
  expect(taken.status).toBe(409)
  expect(JSON.stringify(taken.body)).toContain('so no other gets its slug')
  expect((await ask('DELETE', '/organizations/acme')).status).toBe(200)
})
