// Goal: the key of a test that starts a program of ours holds all that the bundler finds for that program.

import { expect, test } from 'bun:test'
import { join, relative, resolve } from 'node:path'
import { applianceRecipe, builderRecipe, enclaveRecipe, guestRecipe } from '../../../scripts/build/recipes.ts'
import { readsOf } from '../../../scripts/lib/results/reads.ts'
import { readTree } from '../../../scripts/lib/results/tree.ts'

const root = resolve(import.meta.dir, '../../..')
const tree = readTree(root)

// Goal: every module that the bundler finds for a program is in the key of a test that starts it.
test.each([
  ['strongroom', applianceRecipe],
  ['strongroom-enclave', enclaveRecipe],
  ['strongroom-guest', guestRecipe],
  ['strongroom-builder', builderRecipe],
] as const)(
  '%s with its threads',
  async (_, { entry, threads = [], externals = [] }) => {
    const entrypoints = [entry, ...threads].map(path => join(root, path))
    const { metafile } = await Bun.build({ entrypoints, external: [...externals], target: 'bun', metafile: true, root })
    const paths = Object.keys(metafile?.inputs ?? {}).map(path => relative(root, resolve(path)))
    const own = paths.filter(path => !path.startsWith('node_modules/'))
    expect(own).toEqual(expect.arrayContaining([entry, ...threads]))
    const { files, because } = readsOf(tree, entry, false)
    expect(because).toBeNull()
    expect(own.filter(path => !files.has(path))).toEqual([])
  },
  120_000,
)

test('goal: a test that starts the executable reads its modules, threads and page', () => {
  const { files } = readsOf(tree, 'test/rigs/built/program.ts', false)
  const { files: ofMain } = readsOf(tree, applianceRecipe.entry, false)
  const wanted = [...ofMain.keys(), ...(applianceRecipe.threads ?? []), ...tree.below('src/console/web')]
  expect(wanted.filter(path => !files.has(path))).toEqual([])
})
