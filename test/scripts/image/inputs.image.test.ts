// Goal: an image's name changes when anything that can change its bytes does, and only then.

import { expect, test } from 'bun:test'
import { appendFile, chmod, cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { filesBelow, sha256File } from '../../../scripts/image/digest.ts'
import { baseInputs, gatherInputs, inputsDigest } from '../../../scripts/image/inputs.ts'
import { readMachineRecipe, recipePaths } from '../../../scripts/image/recipe.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { repo } from '../../../scripts/rigs/build/image-build.ts'

/** Every so many files one is changed, because each change digests all of them again. */
const sampled = 25
const tools = { bun: '1', mmdebstrap: '1', 'dpkg-deb': '1' }

// Goal: no input of the image can change without its cache key changing.
test.each(['instance', 'inference'])(
  'every file of %s, its executable and every tool count',
  async name => {
    const copy = await mkdtemp(join(tmpdir(), 'guest-image-inputs-'))
    try {
      await cp(join(repo, 'guest-image'), join(copy, 'guest-image'), { recursive: true })
      for (const sources of [join('scripts', 'image'), join('src', 'attest')]) {
        await cp(join(repo, sources), join(copy, sources), { recursive: true })
      }
      const executable = join(copy, 'executable')
      await writeFile(executable, 'executable')
      const paths = recipePaths(copy, name)
      const digest = async (versions = tools) => inputsDigest((await gatherInputs(paths, executable, versions)).inputs)
      const { inputs } = await gatherInputs(paths, executable, tools)
      const seen = new Set([inputsDigest(inputs)])

      const counted = [paths.recipeDir, paths.commonDir, join(copy, 'scripts', 'image'), join(copy, 'src', 'attest')]
      const files = (await Promise.all(counted.map(filesBelow))).flat()
      for (const file of files)
        expect([file, inputs[relative(copy, file)]]).toEqual([file, expect.stringContaining(await sha256File(file))])
      const changed = [...files.filter((_, at) => runsAll || at % sampled === 0), executable]
      for (const file of changed) {
        await appendFile(file, ' ')
        const after = await digest()
        expect({ file, changed: !seen.has(after) }).toEqual({ file, changed: true })
        seen.add(after)
      }
      for (const name of Object.keys(tools)) seen.add(await digest({ ...tools, [name]: '2' }))
      await chmod(join(paths.commonDir, 'root', 'etc', 'hosts'), 0o755)
      seen.add(await digest())
      expect(seen.size).toBe(1 + changed.length + Object.keys(tools).length + 1)

      await chmod(join(paths.commonDir, 'root', 'etc', 'hosts'), 0o644)
      await writeFile(join(copy, 'guest-image', 'README.md'), 'other words')
      expect(seen.has(await digest())).toBe(true)
    } finally {
      await rm(copy, { recursive: true, force: true })
    }
  },
  300_000,
)

// Goal: a new guest executable does not lay the Debian tree again; a new lock does.
test('the Debian part hangs on the lock, not on the guest', async () => {
  const paths = recipePaths(repo, 'instance')
  const recipe = await readMachineRecipe(paths)
  const base = inputsDigest(await baseInputs(paths, recipe, tools))
  expect(inputsDigest(await baseInputs({ ...paths, commonDir: '/nonexistent' }, recipe, tools))).toBe(base)
  const otherLock = { ...paths, packagesLock: recipePaths(repo, 'builder').packagesLock }
  expect(inputsDigest(await baseInputs(otherLock, recipe, tools))).not.toBe(base)
  const other = { ...recipe, sourceDateEpoch: recipe.sourceDateEpoch + 1 }
  expect(inputsDigest(await baseInputs(paths, other, tools))).not.toBe(base)
  for (const name of ['mmdebstrap', 'dpkg-deb']) {
    expect(inputsDigest(await baseInputs(paths, recipe, { ...tools, [name]: '2' }))).not.toBe(base)
  }
})
