// Goal: by default a gateway has a process per four cores and GiB; small gateways are one process.

import { expect, test } from 'bun:test'
import { processCount } from '../../../src/inference/relay/serve.ts'

const gib = 2 ** 30

// Goal: the count is what was asked for, else what cores and memory give.
test.each([
  [undefined, 2, 4 * gib, 1],
  [undefined, 7, 64 * gib, 1],
  [undefined, 8, 64 * gib, 2],
  [undefined, 64, 64 * gib, 16],
  [undefined, 64, 4 * gib, 4],
  [undefined, 64, 0.5 * gib, 1],
  [undefined, 512, 512 * gib, 32],
  [1, 512, 512 * gib, 1],
  [5, 2, gib, 5],
])('goal: asked for %p, with %p cores and %p bytes: %p', (asked, cores, memoryBytes, count) => {
  expect(processCount(asked, { cores, memoryBytes })).toBe(count)
})
