// Checks whether the file system of the state directory has room for what the services promise. Effects: reads its
// state.

import { statfsSync } from 'node:fs'
import { messageOf } from '../base/fault.ts'

export type DiskProblem = { readonly name: 'disk'; readonly detail: string; readonly remedy: string }

/** Below this, VMs that were paused by a full disk are not resumed, and the database may refuse accepted work. */
const freeBytesMin = 268_435_456
/** A VM needs only a few. */
const freeFilesMin = 64

export function diskProblems(stateDir: string): DiskProblem[] {
  const problem = (detail: string): DiskProblem[] => [{ name: 'disk', detail, remedy: diskRemedy(stateDir) }]
  try {
    const { bavail, bsize, files, ffree } = statfsSync(stateDir)
    const freeBytes = bavail * bsize
    if (freeBytes < freeBytesMin)
      return problem(`the disk is full: ${Math.floor(freeBytes / 1_048_576)} MiB are free at ${stateDir}`)
    // A file system without a limit of files reports a total of 0.
    return files > 0 && ffree < freeFilesMin ? problem(`the disk is full: ${ffree} inodes are free at ${stateDir}`) : []
  } catch (error) {
    return problem(`${stateDir} cannot be read: ${messageOf(error)}`)
  }
}

function diskRemedy(stateDir: string): string {
  return `free ${freeBytesMin / 1_048_576} MiB and ${freeFilesMin} inodes at ${stateDir}: creates and changes are refused, and VMs that write are paused until then`
}
