// Names this boot. Effects: reads a file.

import { Fault } from '../base/fault.ts'
import { readTextOrNull } from '../linux/files.ts'
import type { GuestPaths } from './paths.ts'

/** Returns the boot id. Throws Fault internal if the kernel provides none. */
export function bootIdIn(paths: Pick<GuestPaths, 'bootId'>): string {
  const bootId = readTextOrNull(paths.bootId)?.trim()
  if (bootId === undefined) throw new Fault('internal', `read ${paths.bootId}: not there`)
  return bootId
}
