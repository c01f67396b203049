// Goal: a check that only the daemon's list of problems has is marked, so that an upgrade is not judged by what its
// daemon on trial reports about itself; a problem that doctor looks at too is not.

import { expect, test } from 'bun:test'
import { withProblems } from '../../../src/cli/doctor/problems.plan.ts'
import type { HostProblem } from '../../../src/contract/admin/problems.ts'

const problem = (name: HostProblem['name']): HostProblem => ({
  ...{ name, subject: null, severity: 'critical', since: '2026-11-30T12:00:00.000Z', affects: 'all' },
  ...{ detail: 'd', remedy: 'r' },
})

test('goal: problems of the daemon alone are marked', () => {
  const own = [{ name: 'firewalls', result: 'PASS', detail: '', remedy: null }] as const
  const checks = withProblems(own, [problem('upgrade'), problem('models'), problem('firewall')])
  expect(checks.map(({ name, result, isOfDaemon }) => [name, result, isOfDaemon])).toEqual([
    ['upgrade', 'FAIL', true],
    ['models', 'FAIL', true],
    ['firewalls', 'FAIL', undefined],
  ])
})
