// Go's standard library in the builder image: compiled, read-only, and linked from the build cache of one program.
// Effects: reads the image, writes links to scratch.

import * as fs from 'node:fs'
import type { Bind } from '../confined/root.plan.ts'
import { type Phase, uids } from '../phase.ts'
import { makeDir } from '../workspace.ts'
import { goPlaces } from './go.plan.ts'

/** Path in the builder image. */
export const goLibraryDir = '/usr/lib/strongroom/go-library'

/**
 * Creates the build cache of one run of Go: a separate directory in which each entry of the compiled library is a link
 * into the image. A run can replace links only for itself. No bind if the image has no compiled library.
 */
export async function libraryBinds({ tools, workDir }: Phase, name: string): Promise<Bind[]> {
  if (tools.goLibrary === null || !fs.existsSync(tools.goLibrary.from)) return []
  const { from, to } = tools.goLibrary
  const own = makeDir(`${workDir}/${name}`, uids.build)
  for (const group of await fs.promises.readdir(from)) {
    makeDir(`${own}/${group}`, uids.build)
    const entries = await fs.promises.readdir(`${from}/${group}`)
    for (const entry of entries) fs.symlinkSync(`${to}/${group}/${entry}`, `${own}/${group}/${entry}`)
  }
  return [{ from: own, to: goPlaces.cache, writable: true }]
}
