// Goal: a host takes builds, and has its builds taken over, exactly in the states that are written here.

import { expect, test } from 'bun:test'
import { isWithinReach, mayTake } from '../../src/builds/fleet.ts'
import type { DirectoryHost } from '../../src/store/db.ts'

const host: DirectoryHost = { hasLease: true, isDraining: false, answersHosts: true, isLost: false }
const hostsOf = (state: DirectoryHost | null) => ({ find: (id: string) => (id === 'h1' ? state : null) })

test('goal: only a host with a lease that is not drained takes builds', () => {
  const taken = (changes: Partial<DirectoryHost>) => mayTake(hostsOf({ ...host, ...changes }), 'h1')
  expect(taken({})).toBe(true)
  expect(taken({ hasLease: false })).toBe(false)
  expect(taken({ isDraining: true })).toBe(false)
  expect(mayTake(hostsOf(null), 'h1')).toBe(false)
})

test('goal: a build is in reach while its host can be asked, or when it is a repository of a host that is lost', () => {
  const reach = (sourceKind: 'archive' | 'git', state: DirectoryHost | null) =>
    isWithinReach(hostsOf(state), { hostId: 'h1', sourceKind })
  const cases = [
    ['up', host],
    ['drained', { ...host, isDraining: true }],
    ['no lease', { ...host, hasLease: false }],
    ['no address', { ...host, answersHosts: false }],
    ['lost', { ...host, hasLease: false, isLost: true }],
    ['unknown', null],
  ] as const
  expect(cases.map(([name, state]) => [name, reach('archive', state), reach('git', state)])).toEqual([
    ['up', true, true],
    ['drained', true, true],
    ['no lease', false, false],
    ['no address', false, false],
    ['lost', false, true],
    ['unknown', false, true],
  ])
})
