// A host's copy of the directory and its outbox, without PostgreSQL. Real SQLite.

import { expect, test } from 'bun:test'
import { Outbox } from '../../../src/fleet/replica/outbox.ts'
import { Replica } from '../../../src/fleet/replica/replica.ts'
import { SampleLines } from '../../../src/fleet/replica/samples.ts'
import type { RowChange, WireRow } from '../../../src/fleet/replica/tables.ts'
import { openStore } from '../../../src/store/db.ts'
import { buildById, moveBuild, setBuild } from '../../../src/store/directory/build.query.ts'
import {
  insertInstance,
  instanceById,
  listChangesOverlapping,
  moveInstance,
  setInstanceEgress,
} from '../../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'

const fleetId = 'f'
const at = (version: number) => ({ version, timeline: 1, change: '' })

function opened() {
  const store = openStore(':memory:')
  const adopted: string[] = []
  const deps = {
    directory: store.directory,
    hostId: store.hostId,
    adopt: (_tx: unknown, id: string) => {
      adopted.push(id)
      return { vmId: `vm-${id}` }
    },
  }
  const replica = new Replica(deps)
  replica.begin(fleetId)
  const outbox = new Outbox(store.directory, replica)
  const { db } = store.directory
  const instance = (id: string) => instanceById(db, id)
  return { store, db, replica, outbox, adopted, instance }
}

const organization: RowChange = change('organizations', { id: 'o', slug: 'acme', status: 'active', created_at_ms: 1 })

function change(table: string, row: WireRow, key: readonly string[] = ['id']): RowChange {
  return { table, key: Object.fromEntries(key.map(name => [name, row[name] ?? null])), row }
}

function instanceRow(id: string, hostId: string, more: WireRow = {}): RowChange {
  return change('instances', {
    ...{ id, host_id: hostId, organization_id: 'o', name: id, hostname: `${id}.acme.x`, desired: 'present' },
    ...{ status: 'provisioning', agent: 'a', public_key: 'k', inference_mode: 'm', inference_model: 'm' },
    ...{ egress_bytes: 0, created_at_ms: 1, changed_at_ms: 1, ...more },
  })
}

// Goal: rows and columns of tables that only a later executable knows were not taken over, so it copies everything
// anew; the same executable does not.
test('tables of another executable', () => {
  const { db, replica } = opened()
  replica.apply([organization], at(5))
  replica.begin(fleetId)
  expect(replica.mark()).toMatchObject({ version: 5, timeline: 1 })
  const [{ sql } = { sql: '' }] = db.all<{ sql: string }>(
    "SELECT sql FROM sqlite_schema WHERE name = 'outbox_keys_update'",
  )
  db.run('DROP TRIGGER outbox_keys_update')
  db.run(sql.replace(' OR NEW.scope IS NOT OLD.scope', ''))
  replica.begin(fleetId)
  expect(replica.mark()).toMatchObject({ version: 5, timeline: 0 })
  replica.setMark(at(6))
  for (const event of ['insert', 'update', 'delete']) db.run(`DROP TRIGGER outbox_build_nonces_${event}`)
  replica.begin(fleetId)
  expect(replica.mark()).toMatchObject({ version: 6, timeline: 0 })
})

// Goal: a change that a failover lost does not live on in a copy: a copy of everything has another host's instance as
// the directory has it. News alone, and what this host says of its own, only move on.
test('an instance in a copy of everything', () => {
  const { store, replica, instance } = opened()
  const ended: WireRow = { desired: 'absent', status: 'terminating', terminated_reason: 'deleted_via_api' }
  const rows = (more: WireRow) => [instanceRow('i1', store.hostId, more), instanceRow('i2', 'other', more)]
  const shown = (id: string) => {
    const { desired, status, terminatedReason } = instance(id) ?? {}
    return [desired, status, terminatedReason]
  }
  const [living, ending] = [
    ['present', 'ready', null],
    ['absent', 'terminating', 'deleted_via_api'],
  ]
  replica.apply([organization, ...rows(ended)], at(1))
  replica.apply(rows({ status: 'ready' }), at(2))
  expect([shown('i1'), shown('i2')]).toEqual([ending, ending])
  replica.applyPart(rows({ status: 'ready' }))
  expect([shown('i1'), shown('i2')]).toEqual([ending, living])
})

// Goal: nor does a revoked key, an organization that is deleted, or the end of another host's build; a host's own word
// about its build, the key of its instance and a key's last use stays.
test('other rows in a copy of everything', () => {
  const { db, store, replica } = opened()
  const secret = `\\x${'00'.repeat(32)}`
  const key = (more: WireRow) =>
    change('keys', { prefix: 'p', organization_id: 'o', secret_sha256: secret, scope: 'write', ...more }, ['prefix'])
  const gatewayKey = (prefix: string, more: WireRow) =>
    change('gateway_keys', { prefix, organization_id: 'o', secret_sha256: secret, created_at_ms: 1, ...more }, [
      'prefix',
    ])
  const build = (id: string, hostId: string, more: WireRow) =>
    change('builds', {
      ...{ id, host_id: hostId, source_host_id: hostId, claims: 1, organization_id: 'o', nonce: id, created_at_ms: 1 },
      ...{ source_kind: 'git', reproduce: 0, simulated: 0, network: 'unused', disk_bytes: 0, ...more },
    })
  const rows = (at: number | null, state: string) => [
    change('organizations', { id: 'o', slug: 'acme', status: 'active', created_at_ms: 1, deleting_at_ms: at }),
    key({ created_at_ms: 1, revoked_at_ms: at, last_used_at_ms: at }),
    instanceRow('mine', store.hostId),
    gatewayKey('g1', { revoked_at_ms: at }),
    gatewayKey('g2', { revoked_at_ms: at, instance_id: 'mine' }),
    build('b1', 'other', { state }),
    build('b2', store.hostId, { state }),
  ]
  const shown = () => ({
    deleting: db.all('SELECT deleting_at_ms AS at FROM organizations'),
    keys: db.all('SELECT revoked_at_ms AS at, last_used_at_ms AS used FROM keys'),
    gatewayKeys: db.all('SELECT revoked_at_ms AS at FROM gateway_keys ORDER BY prefix'),
    builds: db.all('SELECT state FROM builds ORDER BY id'),
  })
  replica.apply(rows(5, 'failed'), at(1))
  const ended = shown()
  replica.apply(rows(null, 'running'), at(2))
  expect(shown()).toEqual(ended)
  replica.applyPart(rows(null, 'running'))
  expect(shown()).toEqual({
    deleting: [{ at: null }],
    keys: [{ at: null, used: 5 }],
    gatewayKeys: [{ at: null }, { at: 5 }],
    builds: [{ state: 'running' }, { state: 'failed' }],
  })
})

// Goal: a host that got an instance by a change that a failover lost ends its VM, and the host that has it makes one.
test('a second attempt that a failover lost', () => {
  const { replica, adopted, instance, store, db } = opened()
  replica.apply([organization, instanceRow('i1', 'other', { attempt: 1 }), instanceRow('i2', store.hostId)], at(1))
  const mine = instance('i2')?.vmId ?? ''
  const given = [instanceRow('i1', store.hostId, { attempt: 2 }), instanceRow('i2', 'other', { attempt: 2 })]
  replica.apply(given, at(2))
  expect(adopted).toEqual(['i2', 'i1'])
  const lost = instance('i1')?.vmId ?? ''
  replica.applyPart([instanceRow('i1', 'other', { attempt: 1 }), instanceRow('i2', store.hostId, { attempt: 1 })])
  expect(db.all('SELECT vm_id FROM left_vms ORDER BY vm_id')).toEqual([lost, mine].toSorted().map(vm_id => ({ vm_id })))
  expect(adopted).toEqual(['i2', 'i1', 'i2'])
  expect([instance('i1')?.hostId, instance('i2')?.hostId]).toEqual(['other', store.hostId])
})

// Goal: a new instance of this host gets its VM with its row, once; one of another host gets none here.
test('adoption', () => {
  const { store, replica, adopted, instance } = opened()
  const applied = replica.apply([organization, instanceRow('i1', store.hostId), instanceRow('i2', 'other')], at(1))
  expect(adopted).toEqual(['i1'])
  expect([instance('i1')?.vmId, instance('i2')?.vmId]).toEqual(['vm-i1', null])
  expect(applied.instances.map(({ id, isOwn, isNew }) => [id, isOwn, isNew])).toEqual([
    ['i1', true, true],
    ['i2', false, true],
  ])
  replica.apply([instanceRow('i1', store.hostId)], at(1))
  replica.apply([instanceRow('i1', store.hostId, { changed_at_ms: 2 })], at(2))
  expect(adopted).toEqual(['i1'])
  expect(instance('i1')?.vmId).toBe('vm-i1')
})

// Goal: nothing that came from others is reported back; all that this host did is, each row once, as it is by then.
test('the outbox', () => {
  const { store, db, replica, outbox } = opened()
  replica.apply([organization, instanceRow('i1', store.hostId)], at(1))
  expect(outbox.next()).toBeNull()
  moveInstance(db, { id: 'i1', from: 'provisioning', to: 'ready', nowMs: 5, readyAtMs: 5 })
  moveInstance(db, { id: 'i1', from: 'ready', to: 'failed', nowMs: 6, failureCode: 'boot_failed' })
  const batch = outbox.next()
  const number = batch?.number ?? 0
  expect(number).toBeGreaterThan(0)
  expect(batch?.changes.map(({ table, row }) => [table, row?.status])).toEqual([
    ['instance_changes', 'ready'],
    ['instances', 'failed'],
    ['instance_changes', 'failed'],
  ])
  // Not taken yet, as after a lost answer: the same again, and what came meanwhile behind it.
  moveInstance(db, { id: 'i1', from: 'failed', to: 'terminating', nowMs: 7 })
  expect(outbox.next()?.changes.map(({ row }) => row?.status)).toEqual(['ready', 'failed'])
  outbox.taken({ number: batch?.number ?? 0, throughSeq: batch?.throughSeq ?? 0 })
  expect(outbox.next()).toMatchObject({ number: number + 1 })
  outbox.renumber(number + 9)
  expect(outbox.next()).toMatchObject({ number: number + 10 })
})

// Goal: a sample of egress is no change of the directory. It is reported if a minute has passed or bytes have, with the
// values of that moment; one that is newer than what was sent is reported again, and a line of no row goes.
test('samples', () => {
  const { store, db, replica, outbox } = opened()
  replica.apply([organization, instanceRow('i1', store.hostId, { egress_observed_at_ms: 60_000 })], at(1))
  const sample = { id: 'i1', egressBytes: 0, egressBlockAppliedAtMs: null }
  const lines = new SampleLines(store.directory, store.hostId)
  const sampleAt = (ms: number) => setInstanceEgress(db, [{ ...sample, egressObservedAtMs: ms }])
  const sent = () => lines.next({ isFirst: true })?.instance_egress.map(line => line.sample)
  sampleAt(119_000)
  expect(lines.next({ isFirst: true })).toBeNull()
  sampleAt(120_000)
  const batch = lines.next({ isFirst: true })
  expect(sent()).toEqual(['{"id":"i1","bytes":0,"at_ms":120000}'])
  expect([outbox.next(), outbox.count(), outbox.held()]).toEqual([null, 0, null])
  expect(outbox.release(Number.MAX_SAFE_INTEGER)).toBe(false)
  sampleAt(121_000)
  if (batch !== null) lines.taken(batch)
  expect(sent()).toEqual(['{"id":"i1","bytes":0,"at_ms":121000}'])
  replica.apply([{ table: 'instances', key: { id: 'i1' }, row: null }], at(2))
  const gone = lines.next({ isFirst: true })
  expect(gone?.instance_egress.map(line => line.sample)).toEqual([null])
  if (gone !== null) lines.taken(gone)
  expect(lines.next({ isFirst: true })).toBeNull()
})

// Goal: whichever comes first, a status only moves up, the first reason stays, and a host's own count of bytes stays.
test('what crosses', () => {
  const { store, db, replica, instance } = opened()
  replica.apply([organization, instanceRow('i1', store.hostId)], at(1))
  moveInstance(db, { id: 'i1', from: 'provisioning', to: 'ready', nowMs: 5, readyAtMs: 5 })
  setInstanceEgress(db, [{ id: 'i1', egressBytes: 70, egressObservedAtMs: 6, egressBlockAppliedAtMs: null }])
  replica.apply([instanceRow('i1', store.hostId, { egress_bytes: 30 })], at(2))
  expect(instance('i1')).toMatchObject({ status: 'ready', egressBytes: 70 })
  const deleted = { status: 'terminating', desired: 'absent', terminated_reason: 'deleted_via_api' }
  const log = { instance_id: 'i1', status: 'terminating', at_ms: 4 }
  const applied = replica.apply(
    [instanceRow('i1', store.hostId, deleted), change('instance_changes', log, ['instance_id', 'status'])],
    at(3),
  )
  expect(instance('i1')).toMatchObject({ status: 'terminating', readyAtMs: 5, desired: 'absent', egressBytes: 70 })
  expect(applied.instances).toMatchObject([{ id: 'i1', isOwn: true, isDismissed: true }])
  replica.apply([instanceRow('i1', store.hostId, { status: 'ready' })], at(4))
  expect(instance('i1')).toMatchObject({ status: 'terminating', desired: 'absent' })
  const statuses = listChangesOverlapping(db, { organizationId: 'o', fromMs: 0 }).map(({ status }) => status)
  expect(statuses).toEqual(['ready', 'terminating'])
  // Goal: the directory's time of a state counts, as for an instance that was given up while its host ended it.
  moveInstance(db, { id: 'i1', from: 'terminating', to: 'terminated', nowMs: 20, terminatedAtMs: 20 })
  const ended = { instance_id: 'i1', status: 'terminated', at_ms: 9 }
  const terminated = { status: 'terminated', desired: 'absent', terminated_at_ms: 9, changed_at_ms: 9 }
  replica.apply(
    [instanceRow('i1', store.hostId, terminated), change('instance_changes', ended, ['instance_id', 'status'])],
    at(5),
  )
  const times = listChangesOverlapping(db, { organizationId: 'o', fromMs: 0 }).map(({ status, atMs }) => [status, atMs])
  expect(times).toEqual([
    ['ready', 5],
    ['terminating', 4],
    ['terminated', 9],
  ])
  expect(instance('i1')?.terminatedAtMs).toBe(9)
})

// Goal: changes that are tried leave nothing behind, see each other, and fail one by one.
test('trying out', () => {
  const { store, db, replica, outbox } = opened()
  replica.apply([organization], at(1))
  const add = (id: string) => (tx: typeof db) => {
    const fixed = { agent: 'a', publicKey: 'k', inferenceMode: 'm', inferenceModel: 'm', vmId: null, nowMs: 1 }
    insertInstance(tx, { ...fixed, id, hostId: store.hostId, organizationId: 'o', name: id, hostname: `${id}.x` })
    if (id === 'bad') throw new Error('refused')
    return instanceById(tx, 'i1')?.id
  }
  const { outcomes, changes } = replica.dryRun([add('i1'), add('bad'), add('i2')])
  expect(outcomes.map(outcome => (outcome.ok ? outcome.value : 'refused'))).toEqual(['i1', 'refused', 'i1'])
  expect(changes.filter(({ table }) => table === 'instances').map(({ key }) => key.id)).toEqual(['i1', 'i2'])
  expect([instanceById(db, 'i1'), outbox.next()]).toEqual([null, null])
})

// Goal: while parts of a copy are of different moments a row whose instance has gone, or is not here yet, ends nothing.
test('rows that refer to what is not here', () => {
  const { replica, store, instance } = opened()
  const orphan = change('instance_changes', { instance_id: 'gone', status: 'ready', at_ms: 1 }, [
    'instance_id',
    'status',
  ])
  replica.apply([organization], at(1))
  expect(() => replica.apply([orphan], at(2))).toThrow('FOREIGN KEY')
  const of = { timeline: 1, fromVersion: 1, change: '', toVersion: 4, isFirst: false, isClean: false }
  replica.progress.write({ ...of, table: 'instances', after: { id: 'i' }, rowCount: 7 })
  expect(replica.progress.read()).toEqual({ ...of, table: 'instances', after: { id: 'i' }, rowCount: 7 })
  replica.apply([orphan, instanceRow('i1', store.hostId)], at(3))
  expect([instance('gone'), instance('i1')?.id]).toEqual([null, 'i1'])
  replica.apply([], at(4))
  expect(replica.progress.read()).toBeNull()
  expect(() => replica.apply([orphan], at(5))).toThrow('FOREIGN KEY')
})

// Goal: records of a single host are neither replaced nor watched by accident.
test('records of its own', () => {
  const store = openStore(':memory:')
  insertOrganization(store.directory.db, { id: 'o', slug: 'acme', nowMs: 1 })
  const replica = new Replica({ directory: store.directory, hostId: store.hostId, adopt: () => ({ vmId: 'v' }) })
  expect(() => replica.begin(fleetId)).toThrow('organizations of its own')
  expect(
    store.directory.db.all("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'outbox%'"),
  ).toEqual([])
  replica.begin(fleetId, { isSeeding: true })
  expect(() => replica.begin('another')).toThrow('not of another')
})

// Goal: a build goes forwards alone: its host keeps what it knows first, others' ends hold, and only a change of hands
// takes it back.
test('builds that change hands', () => {
  const { store, db, replica } = opened()
  const build = (more: WireRow): RowChange =>
    change('builds', {
      ...{ id: 'b', host_id: store.hostId, claims: 1, state: 'starting', nonce: '00', source_kind: 'git' },
      ...{ reproduce: 0, network: 'unused', disk_bytes: 0, created_at_ms: 1, ...more },
    })
  const seen = () => {
    const row = buildById(db, 'b')
    return [row?.hostId === store.hostId, row?.state, row?.vmId]
  }
  expect(replica.apply([build({ host_id: 'other', claims: 0, state: 'queued' })], at(1)).builds).toEqual(['b'])
  replica.apply([build({})], at(2))
  setBuild(db, { id: 'b', state: 'starting', vmId: 'v' })
  moveBuild(db, { id: 'b', from: 'starting', to: 'running' })
  replica.apply([build({})], at(3))
  expect(seen()).toEqual([true, 'running', 'v'])
  replica.apply([build({ host_id: 'other', claims: 0, state: 'queued' })], at(4))
  expect(seen()).toEqual([true, 'running', 'v'])
  replica.apply([build({ state: 'failed', error_type: 'internal', finished_at_ms: 5 })], at(5))
  expect(seen()).toEqual([true, 'failed', 'v'])
  replica.apply([build({ host_id: 'other', claims: 2, state: 'queued' })], at(6))
  expect(seen()).toEqual([false, 'queued', null])
})
