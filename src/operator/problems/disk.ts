// Checks whether the file system of the state directory has room for what the services promise. Effects: reads its
// state.

import { statfsSync } from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'

/** Below this, VMs that were paused by a full disk are not resumed, and the database may refuse accepted work. */
const freeBytesMin = 268_435_456
/** Below this, the operator has to make room soon. */
export const freeBytesLow = 1_073_741_824
/** A VM needs only a few. */
const freeFilesMin = 64

/** Never throws. */
export function diskProblems(stateDir: string): FoundProblem[] {
  const problem = (severity: FoundProblem['severity'], detail: string, remedy: string): FoundProblem[] => [
    { name: 'disk', subject: null, severity, detail, remedy, sinceMs: null },
  ]
  const full = (detail: string) => problem('critical', detail, fullRemedy(stateDir))
  try {
    const { bavail, bsize, files, ffree } = statfsSync(stateDir)
    const freeBytes = bavail * bsize
    const freeText = `${mib(freeBytes)} MiB are free at ${stateDir}`
    if (freeBytes < freeBytesMin) return full(`the disk is full: ${freeText}`)
    // A file system without a limit of files reports a total of 0.
    if (files > 0 && ffree < freeFilesMin) return full(`the disk is full: ${ffree} inodes are free at ${stateDir}`)
    if (freeBytes >= freeBytesLow) return []
    const remedy = `free some space at ${stateDir} until ${mib(freeBytesLow)} MiB are free: below ${mib(freeBytesMin)} MiB creates and changes are refused, and VMs that write are paused`
    return problem('warning', `the disk is nearly full: ${freeText}`, remedy)
  } catch (error) {
    return full(`${stateDir} cannot be read: ${messageOf(error)}`)
  }
}

function fullRemedy(stateDir: string): string {
  return `free ${mib(freeBytesMin)} MiB and ${freeFilesMin} inodes at ${stateDir}: creates and changes are refused, and VMs that write are paused until then`
}

function mib(bytes: number): number {
  return Math.floor(bytes / 1_048_576)
}
