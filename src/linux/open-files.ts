// The processes that have a file open. Effects: reads /proc.

import { readdirSync, readlinkSync, realpathSync } from 'node:fs'
import { systemErrorCode } from '../base/fault.ts'

/** Ids of processes with a descriptor of this file, in any order; root sees all. Empty if there is no such file. */
export function processesWithOpen(path: string): number[] {
  const real = orNull(() => realpathSync(path))
  if (real === null) return []
  return readdirSync('/proc').flatMap(name => {
    const fds = `/proc/${name}/fd`
    if (!/^[0-9]+$/.test(name)) return []
    const has = (orNull(() => readdirSync(fds)) ?? []).some(fd => orNull(() => readlinkSync(`${fds}/${fd}`)) === real)
    return has ? [Number(name)] : []
  })
}

/** Processes and descriptors come and go while we look, and some belong to others. */
function orNull<T>(read: () => T): T | null {
  try {
    return read()
  } catch (error) {
    if (['ENOENT', 'ESRCH', 'EACCES', 'EPERM', 'ENOTDIR', 'EINVAL'].includes(systemErrorCode(error) ?? '')) return null
    throw error
  }
}
