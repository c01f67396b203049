// Goal: egress per second is that between two samples, and unknown where the total went down.

import { expect, test } from 'bun:test'
import { egressRates } from '../../../../../src/console/web/operator/instances/usage-rates.ts'

test('goal: bytes by seconds, null at the start, after a reset and for two samples of one time', () => {
  const at = (second: string) => `2026-11-20T12:00:${second}.000Z`
  const points = [
    { at: at('00'), egress_bytes: 100 },
    { at: at('30'), egress_bytes: 700 },
    { at: at('40'), egress_bytes: 700 },
    { at: at('50'), egress_bytes: 5 },
    { at: at('50'), egress_bytes: 50 },
  ]
  expect(egressRates(points)).toEqual([null, 20, 0, null, null])
  expect(egressRates([])).toEqual([])
})
