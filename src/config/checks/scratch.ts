// Whether a VM's memory suffices for its scratch disk: it holds a nonce and a tag for each written block. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

/**
 * 32 bytes for each 4096; at most an eighth of the memory, a limit of
 * guest-image/common/initrd/machine.
 * No share: limits each VM.
 */
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
