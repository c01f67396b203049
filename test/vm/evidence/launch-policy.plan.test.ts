// The policy for a report follows from the recorded launch: HOST_DATA is the workload's digest or, without one, the
// document's.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { launchDocument } from '../../../scripts/rigs/guest/attested-guest.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { launchText } from '../../../src/contract/vm/launch.ts'
import { launchPolicy } from '../../../src/vm/evidence/launch-policy.plan.ts'

test('goal: a VM with a workload has to report that one, and everything else as its launch document says', () => {
  const [document, operatorKey] = [launchText(launchDocument), new Uint8Array(48).fill(7)]
  const workload = '{"format":"strongroom/workload/v1"}'
  const digest = (text: string) => createHash('sha256').update(text).digest('hex')
  const { hostData: own, ...plain } = launchPolicy({ document, workload: null, operatorKey })
  const { hostData: bound, ...gateway } = launchPolicy({ document, workload, operatorKey })
  const hex = (value: unknown) => (value instanceof Uint8Array ? toHex(value) : value)
  expect([hex(own), hex(bound)]).toEqual([digest(document), digest(workload)])
  expect(gateway).toEqual(plain)
})
