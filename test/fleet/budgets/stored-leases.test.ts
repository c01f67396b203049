// Goal: what a host was granted of budgets outlives a restart, and is in memory never more than in the database.

import { expect, test } from 'bun:test'
import { StoredLeases, scopeName } from '../../../src/fleet/budgets/stored-leases.ts'
import { openStore } from '../../../src/store/db.ts'

const scope = (keyPrefix: string, month = '2026-11') => ({ organizationId: 'o', keyPrefix, month })

test('goal: grants are set, replaced and removed, of a key, of an organization and of each month by itself', () => {
  using undo = new DisposableStack()
  const store = undo.adopt(openStore(':memory:'), opened => opened.close())
  const held = new StoredLeases(store.directory)
  held.set(scope('k'), { nanoUsd: 5, tokens: 7 })
  held.set(scope(''), { nanoUsd: 1, tokens: 2 })
  held.set(scope('k', '2026-12'), { nanoUsd: 3, tokens: 4 })
  expect([held.size, held.find(scope('k')), held.find(scope('x'))]).toEqual([
    3,
    { ...scope('k'), nanoUsd: 5, tokens: 7 },
    null,
  ])
  held.set(scope('k'), { nanoUsd: 6, tokens: 0 })
  held.remove(scope('', '2026-11'))
  held.remove(scope('x'))
  const kept = [
    { ...scope('k'), nanoUsd: 6, tokens: 0 },
    { ...scope('k', '2026-12'), nanoUsd: 3, tokens: 4 },
  ]
  expect([held.size, held.all()]).toEqual([2, kept])
  // As after a restart.
  expect(new StoredLeases(store.directory).all()).toEqual(kept)
})

test('goal: what the database refuses is not held', () => {
  using undo = new DisposableStack()
  const store = undo.adopt(openStore(':memory:'), opened => opened.close())
  const held = new StoredLeases(store.directory)
  held.set(scope('k'), { nanoUsd: 5, tokens: 7 })
  store.directory.db.run('DROP TABLE allowances')
  expect(() => held.set(scope('k'), { nanoUsd: 9, tokens: 9 })).toThrow()
  expect(held.find(scope('k'))).toEqual({ ...scope('k'), nanoUsd: 5, tokens: 7 })
})

test('goal: no two scopes have one name', () => {
  const names = [scope('k'), scope(''), scope('k', '2026-12'), { ...scope(''), organizationId: 'ok' }].map(scopeName)
  expect(new Set(names).size).toBe(4)
})
