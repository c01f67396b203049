// The cost of one key's load to another key.

import { expect, test } from 'bun:test'
import { measureNeighbours } from '../../../scripts/rigs/gateway/neighbours.ts'

// Goal: with one key holding 64 requests, another's take at most half as long again as alone, in the same organization
// and in another, at an upstream with few places and with many.
test.each([
  { places: 4, sameOrganization: true },
  { places: 4, sameOrganization: false },
  { places: 16, sameOrganization: true },
])(
  '$places places, same organization: $sameOrganization',
  async ({ places, sameOrganization }) => {
    const { aloneMs, besideMs } = await measureNeighbours({ held: 64, places, sameOrganization })
    expect(besideMs / aloneMs).toBeLessThan(1.5)
  },
  60_000,
)
