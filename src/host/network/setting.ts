// Writes one kernel setting of networking (Documentation/networking/ip-sysctl.rst). Effects: writes /proc/sys, of the
// network namespace that the caller is in.

import { writeFileSync } from 'node:fs'
import { Fault, messageOf, systemErrorCode } from '../../base/fault.ts'

/** Writes a setting. Throws Fault host.command_failed. */
export function writeSetting(path: string, value: string): void {
  try {
    writeFileSync(path, value)
  } catch (error) {
    // A kernel without IPv6 has nothing to switch off.
    if (path.startsWith('/proc/sys/net/ipv6/') && systemErrorCode(error) === 'ENOENT') return
    throw new Fault('host.command_failed', `write ${path}: ${messageOf(error)}`, { cause: error })
  }
}
