// `strongroom` as it is built for users: its commands start in a quarter of the time that the sources take. Effects:
// builds `dist/strongroom` where sources have changed.

import { join, resolve } from 'node:path'
import { buildExecutable } from '../../../scripts/build/executable.ts'
import { applianceRecipe } from '../../../scripts/build/recipes.ts'
import { type BuiltOnce, builtOnce, makeOnce } from '../../../scripts/rigs/built/once.ts'

const repo = resolve(import.meta.dir, '../../..')
const outDir = join(repo, 'dist')
const built: BuiltOnce = { program: import.meta.path, path: join(outDir, applianceRecipe.name) }

let once: Promise<void> | null = null

/** The path of the executable. */
export async function builtProgram(): Promise<string> {
  once ??= builtOnce(built)
  await once
  return built.path
}

if (import.meta.main) await makeOnce(built, () => buildExecutable(applianceRecipe, { repo, outDir, force: false }))
