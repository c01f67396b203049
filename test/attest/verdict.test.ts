// Goal: a verdict keeps its checks in their order, and is good only if each one that counts has passed.

import { expect, test } from 'bun:test'
import { type Check, check, fail, isBroken, notChecked, pass, verdict } from '../../src/attest/verdict.ts'

test('goal: no check and no required check that was not made is good', () => {
  expect(verdict([])).toEqual({ ok: false, checks: [] })
  expect(verdict([pass('a')]).ok).toBe(true)
  expect(verdict([pass('a'), notChecked('b', 'r', false)]).ok).toBe(true)
  expect(verdict([pass('a'), notChecked('b', 'r', true)]).ok).toBe(false)
  expect(verdict([fail('a', 'r'), pass('b')]).ok).toBe(false)
  // One that failed is bad even if nobody asked for it.
  expect(verdict([pass('a'), { ...fail('b', 'r'), required: false }]).ok).toBe(false)
})

test('goal: the order is the one in which the checks were given, whatever their outcome', () => {
  const checks: Check[] = [pass('c'), fail('a', 'r'), notChecked('b', 'r', true), pass('a')]
  expect(verdict(checks).checks.map(({ name, outcome }) => `${name} ${outcome}`)).toEqual([
    'c pass',
    'a fail',
    'b not-checked',
    'a pass',
  ])
})

test('goal: what each helper says', () => {
  expect(pass('a', 'r')).toEqual({ name: 'a', outcome: 'pass', reason: 'r', required: true })
  expect(fail('a', 'r')).toEqual({ name: 'a', outcome: 'fail', reason: 'r', required: true })
  expect(notChecked('a', 'r', false)).toEqual({ name: 'a', outcome: 'not-checked', reason: 'r', required: false })
  expect([check('a', true, 'bad', 'good'), check('a', false, 'bad', 'good')]).toEqual([
    pass('a', 'good'),
    fail('a', 'bad'),
  ])
  expect([pass('a'), fail('a', 'r'), notChecked('a', 'r', true), notChecked('a', 'r', false)].map(isBroken)).toEqual([
    false,
    true,
    true,
    false,
  ])
})
