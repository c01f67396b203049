// The program that this process runs, to start it again as a child with other arguments. No effects.

import { join } from 'node:path'

/** By this process's number: after an upgrade the path names another program. */
export function ownProgram(): string[] {
  return [`/proc/${process.pid}/exe`, ...sources()]
}

/** The program's file when run from sources; nothing when compiled. */
function sources(): string[] {
  return import.meta.path.startsWith('/$bunfs/') ? [] : [join(import.meta.dir, '..', 'main.ts')]
}
