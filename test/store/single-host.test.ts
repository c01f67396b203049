// Goal: a single host's directory is of the same kind as a fleet's: its changes carry the time, one host and placement
// on it, all or nothing, and its reads wait for no other host.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import { openStore } from '../../src/store/db.ts'
import { findOrganization, insertOrganization } from '../../src/store/directory/organization.query.ts'

function open() {
  const clock = createManualClock()
  const store = openStore(':memory:', { clock })
  return { clock, ...store, [Symbol.dispose]: () => store.close() }
}

test('goal: a change finds its own host alone, which takes every instance but one that is to go elsewhere', async () => {
  using rig = open()
  const { directory, hostId, clock } = rig
  clock.advance(5)
  await directory.change(({ nowMs, hosts }) => {
    expect(nowMs).toBe(clock.nowMs())
    expect(hosts.find(hostId)).toEqual({ hasLease: true, isDraining: false, answersHosts: false, isLost: false })
    expect(hosts.find('other')).toBeNull()
    expect(hosts.place({ platform: 'snp' })).toEqual({ kind: 'placed', hostId })
    expect(hosts.place({ platform: 'snp', except: hostId }).kind).toBe('refused')
    expect(hosts.place({ platform: 'snp', except: 'other' })).toEqual({ kind: 'placed', hostId })
  })
})

test('goal: a change is whole once it resolves, and one that fails leaves nothing', async () => {
  using rig = open()
  const { directory } = rig
  const insert = (slug: string) => directory.change(tx => insertOrganization(tx, { id: slug, slug, nowMs: tx.nowMs }))
  expect(await insert('acme')).toBe(true)
  const failing = directory.change(tx => {
    insertOrganization(tx, { id: 'globex', slug: 'globex', nowMs: tx.nowMs })
    throw new Fault('conflict', 'no')
  })
  expect(await failing.catch((error: Fault) => error.code)).toBe('conflict')
  const found = ['acme', 'globex'].map(slug => findOrganization(directory.db, slug)?.createdAtMs ?? null)
  expect(found).toEqual([rig.clock.nowMs(), null])
})

test('goal: no caller is checked again and no key looked up again, as nothing comes from other hosts', async () => {
  using rig = open()
  const { directory } = rig
  let count = 0
  const assertAllowed = () => {
    count += 1
  }
  expect(await directory.read({ assertAllowed }, db => db === directory.db)).toBe(true)
  const unknown = directory.retryUnknownKey(() => {
    count += 1
    throw new Fault('unauthenticated', 'no such key')
  })
  expect(await unknown.catch((error: Fault) => error.code)).toBe('unauthenticated')
  expect(count).toBe(1)
  directory.admit()
})
