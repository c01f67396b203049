// Metrics of snapshots. Pure except for the reads of each scrape.

import { family, metricsText } from '../../base/prometheus.ts'
import type { Snapshots } from './snapshots.ts'

export function createSnapshotMetrics(snapshots: Pick<Snapshots, 'counts'>): { readonly render: () => string } {
  return {
    render: () => {
      const { count, bytes, failures } = snapshots.counts()
      return metricsText([
        family('strongroom_snapshots', 'Snapshots of instances on this host.', 'gauge', [[{}, count]]),
        family('strongroom_snapshot_bytes', 'Size of all snapshots, those under way included.', 'gauge', [[{}, bytes]]),
        family('strongroom_snapshot_failures_total', 'Snapshots that were begun and not kept.', 'counter', [
          [{}, failures],
        ]),
      ])
    },
  }
}
