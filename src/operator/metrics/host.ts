// Metrics of the host as a whole: version, backups, disk, failed instances. They exist in every configuration. Effects:
// reads the store and the state of the file system for each scrape.

import { statfsSync } from 'node:fs'
import { type Family, family, metricsText } from '../../base/prometheus.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import { INSTANCE_FAILURES } from '../../contract/http/instance.ts'
import type { InstanceFailures } from '../../store/directory/instance-failures.query.ts'

export type HostMetricsDeps = {
  readonly status: () => AdminStatus
  readonly failures: () => InstanceFailures
  readonly stateDir: string
}

export function createHostMetrics(deps: HostMetricsDeps): { readonly render: () => string } {
  return {
    render: () => {
      const status = deps.status()
      return metricsText([
        ...infoFamilies(status),
        ...backupFamilies(status),
        ...diskFamilies(deps.stateDir),
        ...failureFamilies(deps.failures()),
      ])
    },
  }
}

function infoFamilies({ version, platform, started_at, capacity }: AdminStatus): Family[] {
  return [
    family('strongroom_info', 'Version and platform of this appliance.', 'gauge', [[{ version, platform }, 1]]),
    family('strongroom_start_timestamp_seconds', 'When the daemon started, seconds since 1970.', 'gauge', [
      [{}, seconds(started_at)],
    ]),
    family('strongroom_pool_addresses_resting', 'Addresses of the pool that rest after their VM ended.', 'gauge', [
      [{}, capacity.addresses_resting],
    ]),
  ]
}

function backupFamilies({ backups: { last, failure, nightly, state } }: AdminStatus): Family[] {
  return [
    family(
      'strongroom_backup_last_success_timestamp_seconds',
      'When the newest successful backup was made, seconds since 1970; 0 if none is known.',
      'gauge',
      [[{}, seconds(last?.at)]],
    ),
    family(
      'strongroom_backup_last_failure_timestamp_seconds',
      'When the newest backup failed, seconds since 1970; 0 if the newest did not fail.',
      'gauge',
      [[{}, seconds(failure?.at)]],
    ),
    family('strongroom_backup_last_bytes', 'Size of the newest successful backup.', 'gauge', [[{}, last?.bytes ?? 0]]),
    family('strongroom_backup_good', 'Whether the newest backup succeeded and is young enough.', 'gauge', [
      [{}, state === 'good' ? 1 : 0],
    ]),
    family('strongroom_backup_nightly', 'Whether a timer makes a backup each night.', 'gauge', [[{}, nightly ? 1 : 0]]),
  ]
}

/** Empty if the file system cannot be read; the problem `disk` has the reason. */
function diskFamilies(stateDir: string): Family[] {
  try {
    const { bavail, blocks, bsize, files, ffree } = statfsSync(stateDir)
    const gauge = (name: string, help: string, value: number) => family(name, help, 'gauge', [[{}, value]])
    return [
      gauge('strongroom_disk_free_bytes', 'Free space at the state directory.', bavail * bsize),
      gauge('strongroom_disk_size_bytes', 'Size of the file system with the state directory.', blocks * bsize),
      gauge('strongroom_disk_free_inodes', 'Free inodes at the state directory.', ffree),
      gauge('strongroom_disk_inodes', 'Inodes of that file system; 0 means no limit.', files),
    ]
  } catch {
    return []
  }
}

/** A code that this release does not know counts as `internal`. */
function failureFamilies({ byCode }: InstanceFailures): Family[] {
  const counts = new Map<string, number>(Object.keys(INSTANCE_FAILURES).map(code => [code, 0]))
  for (const { code, count } of byCode) {
    const known = counts.has(code) ? code : 'internal'
    counts.set(known, (counts.get(known) ?? 0) + count)
  }
  const samples = [...counts].map(([code, count]) => [{ code }, count] as const)
  return [family('strongroom_instances_failed', 'Instances that are failed now, by failure code.', 'gauge', samples)]
}

function seconds(at: string | undefined): number {
  return at === undefined ? 0 : Math.floor(Date.parse(at) / 1000)
}
