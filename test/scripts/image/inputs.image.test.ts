// Goal: an image's name changes when anything that can change its bytes does, and only then.

import { expect, test } from 'bun:test'
import { appendFile, chmod, cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { filesBelow } from '../../../scripts/image/digest.ts'
import { gatherInputs, inputsDigest } from '../../../scripts/image/inputs.ts'
import { recipePaths } from '../../../scripts/image/recipe.ts'
import { repo } from '../../rigs/image-build.ts'

const tools = { bun: '1', mmdebstrap: '1', 'dpkg-deb': '1' }

// Goal: no input of the image can change without its cache key changing.
test('every file, the guest and every tool count', async () => {
  const copy = await mkdtemp(join(tmpdir(), 'guest-image-inputs-'))
  try {
    await cp(join(repo, 'guest-image'), join(copy, 'guest-image'), { recursive: true })
    for (const sources of [join('scripts', 'image'), join('src', 'attest')]) {
      await cp(join(repo, sources), join(copy, sources), { recursive: true })
    }
    const guest = join(copy, 'guest')
    await writeFile(guest, 'guest')
    const paths = recipePaths(copy, 'instance')
    const digest = async (versions = tools) => inputsDigest((await gatherInputs(paths, guest, versions)).image)
    const seen = new Set([await digest()])

    const counted = [paths.recipeDir, paths.commonDir, join(copy, 'scripts', 'image'), join(copy, 'src', 'attest')]
    const files = (await Promise.all(counted.map(filesBelow))).flat()
    for (const file of [...files, guest]) {
      await appendFile(file, ' ')
      const after = await digest()
      expect({ file, changed: !seen.has(after) }).toEqual({ file, changed: true })
      seen.add(after)
    }
    for (const name of Object.keys(tools)) seen.add(await digest({ ...tools, [name]: '2' }))
    await chmod(join(paths.commonDir, 'root', 'etc', 'hosts'), 0o755)
    seen.add(await digest())
    expect(seen.size).toBe(1 + files.length + 1 + Object.keys(tools).length + 1)

    await chmod(join(paths.commonDir, 'root', 'etc', 'hosts'), 0o644)
    await writeFile(join(copy, 'guest-image', 'README.md'), 'other words')
    expect(seen.has(await digest())).toBe(true)
  } finally {
    await rm(copy, { recursive: true, force: true })
  }
}, 60_000)

// Goal: a new guest executable does not lay the Debian tree again; a new lock does.
test('the Debian part hangs on the lock, not on the guest', async () => {
  const paths = recipePaths(repo, 'instance')
  const a = await gatherInputs(paths, paths.recipe, tools)
  const b = await gatherInputs(paths, paths.modules, tools)
  expect(inputsDigest(a.base)).toBe(inputsDigest(b.base))
  expect(inputsDigest(a.image)).not.toBe(inputsDigest(b.image))
})
