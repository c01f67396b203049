// `rigs/enclave/process.ts` as an executable, compiled as strongroom-enclave is: it starts in a tenth of the time that
// the sources take, and so do its children. Effects: builds it below `dist` where sources have changed.

import { join, resolve } from 'node:path'
import { buildExecutable, type Recipe } from '../../build/executable.ts'
import { enclaveRecipe } from '../../build/recipes.ts'
import { type BuiltOnce, builtOnce, makeOnce } from './once.ts'

const repo = resolve(import.meta.dir, '../../..')
const outDir = join(repo, 'dist/tested-enclave')

const recipe: Recipe = {
  ...enclaveRecipe,
  name: 'enclave-process',
  entry: 'scripts/rigs/enclave/process.ts',
  threadsFrom: 'src',
  sources: [...enclaveRecipe.sources, 'scripts/rigs'],
}

const built: BuiltOnce = {
  program: import.meta.path,
  path: join(outDir, recipe.name),
  moreInputs: 'scripts/rigs/**/*.ts',
}

/** Returns the path of the executable. */
export async function builtEnclaveProcess(): Promise<string> {
  await builtOnce(built)
  return built.path
}

if (import.meta.main) await makeOnce(built, () => buildExecutable(recipe, { repo, outDir, force: false }))
