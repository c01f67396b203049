// How full a file system is. Effects: one system call.

import { statfsSync } from 'node:fs'
import { wrapFault } from '../../base/fault.ts'

type DiskSpace = { readonly freeBytes: number; readonly totalBytes: number }

/** For the file system of `path`; `free` is for users other than root. Fault internal. */
export function diskSpace(path: string): DiskSpace {
  try {
    const { bavail, blocks, bsize } = statfsSync(path)
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize }
  } catch (error) {
    throw wrapFault(error, `disk space of ${path}`)
  }
}
