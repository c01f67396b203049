// The list of problems as metrics. Pure except for reading the list.

import { family, metricsText } from '../../base/prometheus.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import { PROBLEM_NAMES } from '../../contract/admin/problems.ts'

/** Characters of a subject in a label. */
const labelCharsMax = 128

export function renderProblems({ ready, problems }: Pick<AdminStatus, 'ready' | 'problems'>): string {
  const counts = PROBLEM_NAMES.map(
    name => [{ name }, problems.filter(problem => problem.name === name).length] as const,
  )
  const since = problems.map(
    ({ name, subject, severity, since }) =>
      [
        { name, subject: (subject ?? '').slice(0, labelCharsMax), severity },
        Math.floor(Date.parse(since) / 1000),
      ] as const,
  )
  return metricsText([
    family('strongroom_ready', 'Whether no problem of this host is critical.', 'gauge', [[{}, ready ? 1 : 0]]),
    family('strongroom_problem', 'Problems of this host by name, as `strongroom status` lists them.', 'gauge', counts),
    family(
      'strongroom_problem_since_timestamp_seconds',
      'When a problem of this host began, seconds since 1970.',
      'gauge',
      since,
    ),
  ])
}
