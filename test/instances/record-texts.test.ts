// The first list of many records takes turns with everybody else, and shows what is when it is done.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { publicKey } from '../../scripts/rigs/instances/instances-service.ts'
import { newUuid } from '../../src/base/ids.ts'
import { RecordLists } from '../../src/instances/record-texts.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { deleteExpired, insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'

const recordCount = 200
const textsPerTurn = 25
let store: Store
beforeAll(() => {
  store = openStore(':memory:')
})
afterAll(() => store.close())

/** An organization of its own with so many records; `change` moves, adds and removes. */
function organization(count = recordCount) {
  const { db, transact } = store.directory
  const id = newUuid()
  const slug = `o-${id.slice(0, 8)}`
  insertOrganization(db, { id, slug, nowMs: 1 })
  const names: string[] = []
  const ids = new Map<string, string>()
  const add = () => {
    const instanceId = newUuid()
    const name = (10_000 + names.length).toString(36).padStart(8, '0')
    const made = transact(tx =>
      insertInstance(tx, {
        id: instanceId,
        hostId: 'h',
        organizationId: id,
        name,
        hostname: `${name}.${slug}.agents.example`,
        agent: 'opencode',
        inferenceMode: 'default_gateway',
        inferenceModel: 'tiny',
        publicKey,
        vmId: newUuid(),
        platform: 'tcg' as const,
        nowMs: names.length,
      }),
    )
    expect(made).not.toBeNull()
    names.push(name)
    ids.set(name, instanceId)
  }
  for (let at = 0; at < count; at += 1) add()
  const terminate = (name: string) => {
    const of = { id: ids.get(name) ?? '', nowMs: 5 }
    transact(tx => {
      moveInstance(tx, { ...of, from: 'provisioning', to: 'terminating', terminatedReason: 'deleted_via_api' })
      moveInstance(tx, { ...of, from: 'terminating', to: 'terminated', terminatedAtMs: 5 })
    })
  }
  return { id, names, add, terminate }
}

const shown = (list: Uint8Array) =>
  (JSON.parse(Buffer.from(list).toString()) as { name: string; status: string }[]).map(
    ({ name, status }) => `${name} ${status}`,
  )

test('a first list takes a turn for every few records, and a second one none', async () => {
  // Goal: what is done in one go does not grow with the number of records.
  const { id, names } = organization()
  let turns = 0
  const lists = new RecordLists(store.directory.db, async () => {
    turns += 1
  })
  const first = await lists.of(id)
  expect(shown(first.list)).toEqual(names.map(name => `${name} provisioning`))
  expect(first.platforms).toEqual(['tcg'])
  expect(turns).toBe(recordCount / textsPerTurn)
  expect(await lists.of(id)).toEqual(first)
  expect(turns).toBe(recordCount / textsPerTurn)
})

test('what changes while others have their turn is in the list, and what goes is not', async () => {
  // Goal: turns cost no correctness: the list is that of the moment at which it is done.
  const { id, names, add, terminate } = organization()
  const [early = '', gone = ''] = names
  const late = names.at(-1) ?? ''
  let turns = 0
  const lists = new RecordLists(store.directory.db, async () => {
    turns += 1
    if (turns === 2) {
      terminate(gone)
      expect(deleteExpired(store.directory.db, { terminatedBeforeMs: 6, limit: 10 })).toBe(1)
    }
    if (turns === 5) {
      terminate(early)
      terminate(late)
      add()
    }
  })
  const { list } = await lists.of(id)
  expect(turns).toBeGreaterThan(5)
  expect(shown(list).toSorted()).toEqual(shown((await new RecordLists(store.directory.db).of(id)).list).toSorted())
  expect(shown(list)).toContain(`${late} terminated`)
  expect(shown(list)).toContain(`${names.at(-1)} provisioning`)
  expect(shown(list).length).toBe(names.length - 1)
})

test('callers who ask at the same time share the work, and short lists do not wait for long ones', async () => {
  // Goal: many callers after a start cost one of them.
  const long = organization()
  const short = organization(3)
  let turns = 0
  const gate = Promise.withResolvers<void>()
  const lists = new RecordLists(store.directory.db, async () => {
    turns += 1
    await gate.promise
  })
  const waiting = [lists.of(long.id), lists.of(long.id), lists.of(long.id)]
  expect(shown((await lists.of(short.id)).list).length).toBe(3)
  gate.resolve()
  const made = await Promise.all(waiting)
  expect(made.map(({ list }) => list === made[0]?.list)).toEqual([true, true, true])
  expect(turns).toBe(recordCount / textsPerTurn)
})

test('records that change in every turn do not keep a list for ever', async () => {
  // Goal: everything has a bound.
  const { id, add, names } = organization(textsPerTurn + 5)
  const lists = new RecordLists(store.directory.db, async () => {
    for (let at = 0; at < textsPerTurn + 1; at += 1) add()
  })
  expect(shown((await lists.of(id)).list).length).toBe(names.length)
})

test('a kept list is that of the moment, whoever changes what', async () => {
  // Goal: what is kept as bytes is never older than the records: after each change of either organization, one that
  // goes and one that comes at once among them, kept lists equal fresh ones; what has not changed is not made again.
  const [own, other] = [organization(8), organization(8)]
  const lists = new RecordLists(store.directory.db)
  const steps: (() => void)[] = [
    () => {},
    () => other.terminate(other.names[0] ?? ''),
    () => own.terminate(own.names[3] ?? ''),
    () => own.add(),
    () => other.add(),
    () => {
      expect(deleteExpired(store.directory.db, { terminatedBeforeMs: 6, limit: 1 })).toBe(1)
      own.add()
    },
    () => void deleteExpired(store.directory.db, { terminatedBeforeMs: 6, limit: 10 }),
    () => own.terminate(own.names[7] ?? ''),
    () => void deleteExpired(store.directory.db, { terminatedBeforeMs: 6, limit: 10 }),
    () => own.add(),
  ]
  for (const [index, step] of steps.entries()) {
    step()
    for (const { id } of [own, other]) {
      const kept = await lists.of(id)
      const fresh = await new RecordLists(store.directory.db).of(id)
      expect([index, kept.platforms, shown(kept.list)]).toEqual([index, fresh.platforms, shown(fresh.list)])
      expect((await lists.of(id)).list).toBe(kept.list)
    }
    const before = (await lists.of(own.id)).list
    other.add()
    expect((await lists.of(own.id)).list).toBe(before)
  }
})
