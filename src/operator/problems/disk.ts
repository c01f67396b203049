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
  const end = `the problem ends once ${mib(freeBytesLow)} MiB are free`
  try {
    const { bavail, bsize, files, ffree } = statfsSync(stateDir)
    const freeBytes = bavail * bsize
    const freeText = `${mib(freeBytes)} MiB are free at ${stateDir}`
    const looks = `run \`df --human-readable ${stateDir}\`; \`du --one-file-system --human-readable --max-depth=1 ${stateDir} | sort --human-numeric-sort\``
    const remedy = `${looks} to see what fills it. Free space until ${mib(freeBytesLow)} MiB are free. ${MAY_GO} ${withoutRoom}`
    if (freeBytes < freeBytesMin) {
      const detail = `the disk is full: ${freeText}. From ${mib(freeBytesMin)} MiB on it is a warning; ${end}`
      return problem('critical', detail, remedy)
    }
    // A file system without a limit of files reports a total of 0.
    if (files > 0 && ffree < freeFilesMin) {
      const detail = `the disk is full: ${ffree} inodes are free at ${stateDir}, and ${freeFilesMin} are needed`
      return problem('critical', detail, `delete files there until ${freeFilesMin} inodes are free. ${MAY_GO}`)
    }
    if (freeBytes >= freeBytesLow) return []
    return problem('warning', `the disk is nearly full: ${freeText}; ${end}`, remedy)
  } catch (error) {
    const remedy = `see that the file system of ${stateDir} is mounted and healthy: journalctl --dmesg`
    return problem('critical', `${stateDir} cannot be read: ${messageOf(error)}`, remedy)
  }
}

const MAY_GO = '`strongroom help problem disk` has what may be deleted.'
const withoutRoom = `With no room left, creates and changes are refused and VMs that write are paused; both end at ${mib(freeBytesMin)} MiB`

function mib(bytes: number): number {
  return Math.floor(bytes / 1_048_576)
}
