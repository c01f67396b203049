// Paths of the gateway's VM: those of every guest, except for files that change after boot. Its root is read-only.
// Pure.

import { type GuestPaths, guestPaths } from '../guest/paths.ts'

export type EnclavePaths = GuestPaths & {
  /** A second mount of the measured root, without the mounts over it: the root of the worker's sandbox. */
  readonly workerRoot: string
  /** SHA-256 of strongroom-enclave, in the measured root. */
  readonly programFile: string
}

/** Paths below `root`, '' in the VM. In the image `/etc/hosts` and `/etc/resolv.conf` link to those below `runDir`. */
export function enclavePaths(root: string): EnclavePaths {
  const paths = guestPaths(root)
  return {
    ...paths,
    hosts: `${paths.runDir}/hosts`,
    resolvConf: `${paths.runDir}/resolv.conf`,
    workerRoot: `${paths.runDir}/root`,
    programFile: `${root}/usr/lib/strongroom/gateway.json`,
  }
}
