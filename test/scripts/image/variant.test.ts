import { expect, test } from 'bun:test'
import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { filesBelow } from '../../../scripts/image/digest.ts'
import { imagePaths, readMachineRecipe, recipeNames, recipePaths, variantNames } from '../../../scripts/image/recipe.ts'

const repo = resolve(import.meta.dir, '..', '..', '..')

// Goal: a variant is the recipe that it is of, under its own name: the same packages, kernel arguments and lock.
test('staging is the instance but for its name', async () => {
  const staging = await imagePaths(repo, 'staging')
  expect(recipePaths(repo, 'instance')).toEqual({ ...staging, variantDir: null })
  const instance = await readMachineRecipe(recipePaths(repo, 'instance'))
  expect(await readMachineRecipe(staging)).toEqual({ ...instance, name: 'staging' })
  expect(await imagePaths(repo, 'instance')).toEqual(recipePaths(repo, 'instance'))
  expect((await variantNames(repo)).filter(name => !/^[a-z-]+$/.test(name))).toEqual([])
  for (const name of await variantNames(repo)) expect(await recipeNames(repo)).not.toContain(name)
})

// Goal: staging adds one program, which init starts if present; the instance's files have none of that name.
test('staging adds the debug shell alone', async () => {
  const added = await filesBelow(resolve(repo, 'guest-image/variants/staging/root'))
  expect(added.map(path => path.slice(path.indexOf('/root/')))).toEqual(['/root/usr/lib/strongroom/debug-shell'])
  expect(statSync(added[0] ?? '').mode & 0o111).toBe(0o111)
  const common = await filesBelow(resolve(repo, 'guest-image/common/root'))
  expect(common.filter(path => path.includes('debug'))).toEqual([])
})
