// Goal: the image of a tree recipe is the same bytes from the same inputs, holds what it needs and nothing that could raise privileges.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { ImageFault } from '../../../scripts/image/image-fault.ts'
import { TreeManifest } from '../../../scripts/image/manifest.ts'
import { readPackagesLock } from '../../../scripts/image/packages-lock.ts'
import { readTreeRecipe, recipePaths } from '../../../scripts/image/recipe.ts'
import { buildTree } from '../../../scripts/image/tree-build.ts'
import { buildTestImage, buildCachedImage, repo, run } from '../../rigs/image-build.ts'

let dir = ''
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'tree-image-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))

// Goal: anyone who rebuilds from the same inputs gets the same bytes, whatever their machine is set to.
test('two builds under differing conditions have equal digests throughout', async () => {
  const first = await buildTestImage({
    recipe: 'inference',
    cacheDir: join(dir, 'first'),
    guest: join(dir, 'no guest'),
    shared: ['downloads'],
    umask: '022',
    env: { TZ: 'Pacific/Auckland', LC_ALL: 'C.UTF-8', LANG: 'C.UTF-8' },
  })
  const second = await buildTestImage({
    recipe: 'inference',
    cacheDir: join(dir, 'a-rather-longer-name-for-the-second'),
    guest: join(dir, 'no guest'),
    shared: ['downloads'],
    umask: '077',
    env: { TZ: 'America/St_Johns', LC_ALL: 'POSIX', LANG: 'de_DE.UTF-8', SOURCE_DATE_EPOCH: '1' },
  })
  expect(second).not.toBe(first)
  expect(basename(second)).toBe(basename(first))
  const manifests = await Promise.all([first, second].map(path => Bun.file(join(path, 'manifest.json')).text()))
  expect(manifests[1]).toBe(manifests[0] ?? '')
  expect(Value.Check(TreeManifest, JSON.parse(manifests[0] ?? ''))).toBe(true)
}, 300_000)

// Goal: the root hash of the manifest is what the kernel would accept, and the tree holds the program but no way to more rights.
test('the root verifies and holds no setuid program', async () => {
  const image = await buildCachedImage('inference')
  const manifest = Value.Decode(TreeManifest, await Bun.file(join(image, 'manifest.json')).json())
  const root = join(image, manifest.files.root.path)
  await run(['veritysetup', 'verify', `--hash-offset=${manifest.verity.hashOffset}`, root, root, manifest.rootHash], {})
  const tree = join(dir, 'tree')
  await run(['fsck.erofs', `--extract=${tree}`, root], {})
  const listed = (argv: string[]) => run(['find', tree, ...argv, '-printf', '%P\\n'], {}).then(text => text.trim())
  expect(await listed(['-perm', '/6000'])).toBe('')
  expect(await listed(['-not', '-user', '0'])).toBe('')
  expect(await listed(['-perm', '/022', '-not', '-type', 'l'])).toBe('')
  expect(await listed(['-path', '*/bin/*', '-type', 'f'])).toBe('usr/bin/llama-server')
}, 300_000)

// Goal: a package forgotten is found when the image is built, not when it runs.
test('a missing library fails the build by name', async () => {
  const name = 'inference'
  const copy = join(dir, 'copy')
  await cp(join(repo, 'guest-image'), join(copy, 'guest-image'), { recursive: true })
  for (const part of ['scripts/image']) await cp(join(repo, part), join(copy, part), { recursive: true })
  const paths = recipePaths(copy, name)
  const recipe = await readTreeRecipe(paths)
  const lock = await readPackagesLock(paths.packagesLock, 'tree')
  const forgotten = 'libgomp1'
  await writeFile(
    paths.recipe,
    JSON.stringify({ ...recipe, packages: recipe.packages.filter(one => one !== forgotten) }),
  )
  await writeFile(
    paths.packagesLock,
    JSON.stringify({ ...lock, packages: lock.packages.filter(one => one.name !== forgotten) }),
  )
  const imagesDir = join(dir, 'images')
  await mkdir(imagesDir)
  const failure = await buildTree({ paths, imagesDir, report: () => {} }).then(
    () => null,
    (error: unknown) => error,
  )
  expect(failure).toBeInstanceOf(ImageFault)
  expect(failure).toMatchObject({ code: 'library_missing' })
  expect(failure instanceof Error ? failure.message : '').toContain('libgomp.so.1')
}, 120_000)
