// Where the gateway's VM has its files: those of every guest, but for what changes after boot. Its root is read-only. Pure.

import { type GuestPaths, guestPaths } from '../guest/paths.ts'

export type EnclavePaths = GuestPaths & {
  /** The measured root once more, without what is mounted over it: the root of the worker's sandbox. */
  readonly workerRoot: string
  /** Of the measured root: SHA-256 of strongroom-enclave. */
  readonly programFile: string
}

/** Paths below `root`, which is '' in the VM. In the image `/etc/hosts` and `/etc/resolv.conf` are links to the two below `runDir`. */
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
