// Snapshots of instances, from configuration. Effects: reads their directory; the rest is of its parts.

import { join } from 'node:path'
import type { Runtime } from '../../base/runtime.ts'
import { sweep } from '../../base/work/sweep.ts'
import { snapshotAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { snapshotsDirectory } from '../../host/state-files.ts'
import { retentionIntervalMs } from '../../instances/retention.ts'
import { SnapshotFiles } from '../../instances/snapshots/files.ts'
import { Snapshots } from '../../instances/snapshots/snapshots.ts'
import { Transfers } from '../../instances/snapshots/transfers.ts'
import { diskSpace } from '../../linux/files/disk-space.ts'
import type { Store } from '../../store/db.ts'
import type { Engine } from '../engine.ts'

const gib = 2 ** 30

export type ComposedSnapshots = {
  readonly snapshots: Snapshots
  /** Removes what has lost its instance, until the signal is aborted; then ends what is under way. */
  readonly run: (signal: AbortSignal) => Promise<void>
}

type SnapshotsParts = Runtime & {
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly engine: Pick<Engine, 'reconciler'>
}

export function composeSnapshots(parts: SnapshotsParts): ComposedSnapshots {
  const { config, stateDir, store, engine, clock, random } = parts
  const { snapshots: settings } = config
  const log = parts.log.unit('snapshots')
  // Without an address no transfer begins.
  const transfers = new Transfers({ hostname: '', ...(snapshotAddress(config) ?? { port: settings.port }), log })
  const snapshots = new Snapshots({
    directory: store.directory,
    hostId: store.hostId,
    engine: engine.reconciler,
    files: new SnapshotFiles(join(stateDir, snapshotsDirectory), log),
    transfers,
    freeBytes: () => diskSpace(stateDir).freeBytes,
    settings: {
      keptPerInstance: settings.kept_per_instance,
      bytesPerOrganization: settings.gib_per_organization * gib,
      bytesMax: settings.gib_max * gib,
      freeBytesMin: settings.gib_free_min * gib,
      port: settings.port,
    },
    clock,
    random,
    log,
  })
  const run = async (signal: AbortSignal) => {
    await sweep({ clock, intervalMs: retentionIntervalMs, signal }, () => {
      try {
        snapshots.removeOrphans()
      } catch (error) {
        log.error('snapshots of ended instances were not removed', { error })
      }
    })
    await snapshots.stop()
    transfers.stop()
  }
  return { snapshots, run }
}
