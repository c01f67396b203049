// Snapshots of a service whose VMs take none: everything up to the VM is real.

import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { SnapshotFiles } from '../../../src/instances/snapshots/files.ts'
import { Snapshots, type SnapshotsDeps } from '../../../src/instances/snapshots/snapshots.ts'

export const snapshotSettings = {
  keptPerInstance: 3,
  bytesPerOrganization: 2 ** 30,
  bytesMax: 2 ** 31,
  freeBytesMin: 0,
  port: 8446,
} as const

export type SnapshotParts = Pick<SnapshotsDeps, 'directory' | 'hostId' | 'clock'>

export function noSnapshots(deps: SnapshotParts): Snapshots {
  const never = () => Promise.reject(new Error('no VM is here'))
  return new Snapshots({
    ...deps,
    engine: {
      view: () => null,
      guest: () => {
        throw new Error('no VM is here')
      },
    },
    files: new SnapshotFiles('/nowhere/snapshots', silentLogger),
    transfers: { problem: null, receive: never, send: never },
    freeBytes: () => 2 ** 40,
    settings: snapshotSettings,
    random: systemRandom,
    log: silentLogger,
  })
}
