// How long a client waits for the build of an empty crate, stage by stage, on a host that has nothing else to do. The
// VM is booted for the build.

import type { Figures } from './bench-report.ts'
import { measureEmptyBuilds } from './builds/empty.ts'
import type { BenchContext } from './main.ts'

export function run(context: BenchContext): Promise<Figures> {
  return measureEmptyBuilds(context)
}
