// npm and pnpm as the builder image has them, for builders without a VM. Effects: the npm client,
// files of the cache.

import * as fs from 'node:fs'
import { join, resolve } from 'node:path'
import { installNpmProgram, readNpmPrograms } from '../../image/npm-lock.ts'
import { recipePaths } from '../../image/recipe.ts'

/** Returns a directory with `bin/npm` and `bin/pnpm`, made when it is not in the cache. */
export async function nodeTools(): Promise<string> {
  const cache = process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom'
  const programs = await readNpmPrograms(recipePaths(resolve(import.meta.dir, '../../..'), 'builder').npmLock)
  const dir = join(cache, 'trees', `node-${Bun.hash(JSON.stringify(programs)).toString(16)}`)
  if (fs.existsSync(dir)) return dir
  fs.mkdirSync(join(cache, 'trees'), { recursive: true })
  const partial = fs.mkdtempSync(`${dir}.`)
  fs.chmodSync(partial, 0o755)
  fs.mkdirSync(join(partial, 'bin'))
  for (const program of programs) await installNpmProgram(join(cache, 'downloads'), program, partial)
  try {
    fs.renameSync(partial, dir)
  } catch (error) {
    fs.rmSync(partial, { recursive: true })
    // Another test was faster.
    if (!fs.existsSync(dir)) throw error
  }
  return dir
}
