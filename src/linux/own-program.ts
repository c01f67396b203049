// The program that this process runs, to start it again as a child with other arguments. No effects.

import { join } from 'node:path'

/** By this process's number, not by a path: an executable that was replaced meanwhile is another program. */
export function ownProgram(): string[] {
  return [`/proc/${process.pid}/exe`, ...sources()]
}

/** The program's file where this process runs from sources, nothing where it is compiled. */
function sources(): string[] {
  return import.meta.path.startsWith('/$bunfs/') ? [] : [join(import.meta.dir, '..', 'main.ts')]
}
