// Metrics of builds. Pure except for the reads of each scrape.

import { family, metricsText } from '../base/prometheus.ts'
import type { DirectoryDb } from '../store/db.ts'
import { buildDiskBytes, countBuildsByState } from '../store/directory/build.query.ts'
import type { Builds } from './builds.ts'

export function createBuildMetrics(
  { db, hostId }: { readonly db: DirectoryDb; readonly hostId: string },
  { vms, reconciler }: Pick<Builds, 'vms' | 'reconciler'>,
): { readonly render: () => string } {
  return {
    render: () => {
      const { queued = 0, starting = 0, running = 0 } = countBuildsByState(db, hostId)
      const { warm, booting, reserved, wanted } = vms.status()
      const counts = reconciler.counts()
      return metricsText([
        family('strongroom_builds', 'Unfinished builds of this host, by state.', 'gauge', [
          [{ state: 'queued' }, queued],
          [{ state: 'starting' }, starting],
          [{ state: 'running' }, running],
        ]),
        family('strongroom_builds_ended_total', 'Finished builds, by outcome.', 'counter', [
          [{ state: 'ok' }, counts.ok],
          [{ state: 'failed' }, counts.failed],
          [{ state: 'cancelled' }, counts.cancelled],
        ]),
        family('strongroom_build_vms', 'Build VMs without a build, by state.', 'gauge', [
          [{ state: 'warm' }, warm],
          [{ state: 'booting' }, booting],
          [{ state: 'reserved' }, reserved],
        ]),
        family('strongroom_build_vms_wanted', 'Number of build VMs to keep warm.', 'gauge', [[{}, wanted]]),
        family('strongroom_build_files_bytes', 'Disk space that the files of all builds take up.', 'gauge', [
          [{}, buildDiskBytes(db, hostId)],
        ]),
      ])
    },
  }
}
