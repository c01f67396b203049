// Goal: at every (phase, event) there is one thing to do, and no interruption leads to half an upgrade.

import { expect, test } from 'bun:test'
import { EVENTS, isAccepted, PHASES, type Phase, UPGRADE_TABLE } from '../../src/upgrade/upgrade.machine.ts'

const text = (phase: Phase, event: (typeof EVENTS)[number]) => {
  const next = UPGRADE_TABLE[phase][event]
  if (next === null) return 'again'
  return 'end' in next ? `end ${next.end}` : next.phase
}

test('goal: every phase and event', () => {
  const rows = PHASES.flatMap(phase => EVENTS.map(event => `${phase}+${event}: ${text(phase, event)}`))
  expect(rows).toEqual([
    'prepared+done: switching',
    'prepared+failed: end abandoned',
    'prepared+interrupted: end abandoned',
    'switching+done: trial',
    'switching+failed: returned',
    'switching+interrupted: returned',
    'trial+done: accepted',
    'trial+failed: returning',
    'trial+interrupted: returning',
    'accepted+done: end upgraded',
    'accepted+failed: again',
    'accepted+interrupted: accepted',
    'returning+done: returned',
    'returning+failed: again',
    'returning+interrupted: returning',
    'returned+done: end returned',
    'returned+failed: again',
    'returned+interrupted: returned',
  ])
})

/** All phases that can follow. */
function after(phase: Phase): Set<Phase> {
  const seen = new Set<Phase>()
  const open = [phase]
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    for (const event of EVENTS) {
      const next = UPGRADE_TABLE[at][event]
      if (next === null || 'end' in next || seen.has(next.phase)) continue
      seen.add(next.phase)
      open.push(next.phase)
    }
  }
  return seen
}

test('goal: what was accepted is never taken back, and what goes back is never accepted', () => {
  expect(PHASES.filter(isAccepted)).toEqual(['accepted'])
  expect([...after('accepted')]).toEqual(['accepted'])
  expect(after('returning').has('accepted')).toBe(false)
  expect(after('returned').has('accepted')).toBe(false)
  // A database is put back only where the copy is whole and the gate was shut.
  const before = PHASES.filter(phase => EVENTS.some(event => text(phase, event) === 'returning'))
  expect(before).toEqual(['trial', 'returning'])
})

test('goal: an interruption goes back before the acceptance, and only forward after it', () => {
  const ends = Object.fromEntries(PHASES.map(phase => [phase, text(phase, 'interrupted')]))
  expect(ends).toEqual({
    prepared: 'end abandoned',
    switching: 'returned',
    trial: 'returning',
    accepted: 'accepted',
    returning: 'returning',
    returned: 'returned',
  })
})
