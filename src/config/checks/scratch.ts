// Whether a VM's memory is enough for its scratch disk: nonce and tag of each block that it writes are in there, not on the disk. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

/** 32 bytes for each 4096, an eighth of the memory at most. guest-image/common/initrd/machine does not use what is beyond that. */
const gibPerMemoryGibMax = 16

export function scratchProblems(config: Config): CrossProblem[] {
  return (['vm', 'builds'] as const).flatMap(table => {
    const { scratch_gib, memory_mib } = config[table]
    const max = Math.floor((memory_mib / 1024) * gibPerMemoryGibMax)
    if (scratch_gib <= max) return []
    const why = `${memory_mib} MiB of memory (${table}.memory_mib) hold the authentication of ${max} GiB`
    return [{ field: `${table}.scratch_gib`, message: `${scratch_gib} is too large: ${why}; lower it, or raise that` }]
  })
}
