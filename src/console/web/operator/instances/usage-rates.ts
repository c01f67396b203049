// Egress per second between samples. Pure.

import type { AdminInstanceUsage } from '../../../../contract/admin/views/instance-usage.ts'

type Point = Pick<AdminInstanceUsage['points'][number], 'at' | 'egress_bytes'>

/** Returns bytes per second since the previous point; null for the first point, and if the total went down. */
export function egressRates(points: readonly Point[]): (number | null)[] {
  return points.map((point, index) => {
    const before = points[index - 1]
    if (before === undefined) return null
    const seconds = (Date.parse(point.at) - Date.parse(before.at)) / 1000
    const bytes = point.egress_bytes - before.egress_bytes
    return seconds <= 0 || bytes < 0 ? null : bytes / seconds
  })
}
