// A sample of the fault suite: `scripts/test --all` tries more points, `bun run faults --points all` every one.

import { expect, test } from 'bun:test'
import { instancesScenario } from '../../../scripts/faults/instances.ts'
import type { Scenario } from '../../../scripts/faults/scenario.ts'
import { startScenario } from '../../../scripts/faults/start.ts'
import { type PointResult, runScenario } from '../../../scripts/faults/suite.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'

const timeoutMs = 900_000
const seed = 13

async function sample(scenario: Scenario, points: number): Promise<PointResult[]> {
  const results: PointResult[] = []
  const endMs = performance.now() + timeoutMs / 2
  await runScenario(scenario, {
    points,
    seed,
    only: null,
    isOver: () => performance.now() > endMs,
    onTotal: () => {},
    // VMs of other tests run beside it.
    convergeMsMax: 30_000,
    onResult: result => results.push(result),
  })
  return results
}

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: crash safety at places that nobody has chosen by hand.
    test.each([
      [instancesScenario, runsAll ? 12 : 3],
      [startScenario, runsAll ? 6 : 2],
    ] as const)(
      'killed before any of its effects on the host, the daemon converges, and nothing is lost, double or left: $name',
      async (scenario, points) => {
        const results = await sample(scenario, points)
        expect(results.filter(result => result.findings.length > 0)).toEqual([])
        expect(results.filter(result => result.injected !== null).length).toBeGreaterThanOrEqual(points / 2)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
