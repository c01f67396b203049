// Goal: amounts add up, and a spender has those of its own keys alone.

import { expect, test } from 'bun:test'
import { amountsIn, amountsOf, NO_AMOUNTS, negative, plus } from '../../../../src/inference/metering/shares/amounts.ts'

test('goal: tokens of both directions count, money as it is', () => {
  expect(amountsOf({ promptTokens: 3, completionTokens: 4, costNanoUsd: 50 } as never)).toEqual({
    nanoUsd: 50,
    tokens: 7,
  })
  expect(NO_AMOUNTS).toEqual({ nanoUsd: 0, tokens: 0 })
  expect(plus({ nanoUsd: 1, tokens: 2 }, { nanoUsd: 10, tokens: 20 })).toEqual({ nanoUsd: 11, tokens: 22 })
  expect(negative({ nanoUsd: 1, tokens: 2 })).toEqual({ nanoUsd: -1, tokens: -2 })
})

test('goal: a key has its own amounts, an organization those of all its keys, and neither those of another', () => {
  const all = [
    { organizationId: 'a', keyPrefix: 'k1', nanoUsd: 1, tokens: 10 },
    { organizationId: 'a', keyPrefix: 'k2', nanoUsd: 2, tokens: 20 },
    { organizationId: 'b', keyPrefix: 'k1', nanoUsd: 4, tokens: 40 },
  ]
  const of = (organizationId: string, keyPrefix: string) => amountsIn({ organizationId, keyPrefix }, all)
  expect(of('a', 'k1')).toEqual({ nanoUsd: 1, tokens: 10 })
  expect(of('a', '')).toEqual({ nanoUsd: 3, tokens: 30 })
  expect(of('b', '')).toEqual({ nanoUsd: 4, tokens: 40 })
  expect(of('b', 'k2')).toEqual(NO_AMOUNTS)
})
