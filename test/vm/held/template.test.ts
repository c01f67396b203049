// Goal: while a template cannot be used nothing is launched, the reason is known, and it is announced once.

import { expect, test } from 'bun:test'
import { Template } from '../../../src/vm/held/template.ts'

test('goal: a reason is new when it differs from the one before, or comes after a success', () => {
  let problem: string | null = null
  const announced: string[] = []
  let failures = 0
  const template = new Template({
    read: () => {
      if (problem !== null) throw new Error(problem)
      return 'digest'
    },
    onUnusable: (reason, _, isNew) => {
      failures += 1
      if (isNew) announced.push(reason)
    },
  })
  for (const next of [null, 'no manifest', 'no manifest', 'no kernel', null, 'no kernel']) {
    problem = next
    expect(template.read()).toBe(next === null ? 'digest' : null)
    expect(template.problem).toBe(next)
  }
  expect(announced).toEqual(['no manifest', 'no kernel', 'no kernel'])
  expect(failures).toBe(4)
})
