// Goal: the image of the gateway's VM is the same bytes from the same inputs, and holds what is listed here and
// nothing else: no shell among it.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { sha256File } from '../../../scripts/image/digest.ts'
import { buildEnclave } from '../../../scripts/image/enclave-build.ts'
import { ImageFault } from '../../../scripts/image/image-fault.ts'
import { EnclaveManifest } from '../../../scripts/image/manifest.ts'
import { readPackagesLock } from '../../../scripts/image/packages-lock.ts'
import { type EnclaveRecipe, readEnclaveRecipe, recipePaths } from '../../../scripts/image/recipe.ts'
import { buildCachedImage, buildTestImage, repo, run } from '../../../scripts/rigs/build/image-build.ts'
import { ImageManifest, WorkerImageManifest } from '../../../src/contract/vm/image.ts'

const enclave = join(repo, 'dist/strongroom-enclave')
let dir = ''
/** Directory of the image that this machine has, and files of its root. */
let image = ''
let tree = ''
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'enclave-image-'))
  image = await buildCachedImage('inference')
  tree = join(dir, 'tree')
  await run(['fsck.erofs', `--extract=${tree}`, join(image, 'root.img')], {})
}, 900_000)
afterAll(() => rm(dir, { recursive: true, force: true }))

// Goal: anyone who rebuilds from the same inputs gets the same bytes, whatever their machine is set to: those of the
// image that this machine has built for itself, with its own settings.
test('two builds under differing conditions have equal digests throughout', async () => {
  const second = await buildTestImage({
    recipe: 'inference',
    cacheDir: join(dir, 'a-rather-longer-name-for-the-second'),
    executable: enclave,
    shared: ['downloads'],
    umask: '077',
    env: { TZ: 'America/St_Johns', LC_ALL: 'POSIX', LANG: 'de_DE.UTF-8', SOURCE_DATE_EPOCH: '1' },
  })
  expect(second).not.toBe(image)
  expect(basename(second)).toBe(basename(image))
  const manifests = await Promise.all([image, second].map(path => Bun.file(join(path, 'manifest.json')).text()))
  expect(manifests[1]).toBe(manifests[0] ?? '')
  expect(Value.Check(EnclaveManifest, JSON.parse(manifests[0] ?? ''))).toBe(true)
}, 600_000)

// Goal: who looks for a way in finds what is listed here, and none of it takes commands.
test('the root verifies and holds nothing but what is listed', async () => {
  const manifest = Value.Decode(EnclaveManifest, await Bun.file(join(image, 'manifest.json')).json())
  const root = join(image, manifest.files.root.path)
  await run(['veritysetup', 'verify', `--hash-offset=${manifest.verity.hashOffset}`, root, root, manifest.rootHash], {})
  const listed = async (argv: string[]) =>
    (await run(['find', tree, ...argv, '-printf', '%P\\n'], {})).trimEnd().split('\n').filter(Boolean).sort()
  expect(await listed(['-perm', '/6000'])).toEqual([])
  expect(await listed(['-not', '-user', '0'])).toEqual([])
  expect(await listed(['-perm', '/022', '-not', '-type', 'l'])).toEqual([])
  const files = await listed(['-type', 'f'])
  const isProgram = (path: string) => /^usr\/s?bin\//.test(path)
  const isLibrary = (path: string) => /^usr\/lib\/x86_64-linux-gnu\/.*\.so(\.[0-9.]+)?$/.test(path)
  expect(files.filter(isProgram)).toEqual([
    'usr/bin/bwrap',
    'usr/bin/choom',
    'usr/bin/ip',
    'usr/bin/llama-server',
    'usr/bin/prlimit',
    'usr/bin/setpriv',
    'usr/bin/strongroom-enclave',
    'usr/sbin/veritysetup',
  ])
  const rest = files.filter(path => !isProgram(path) && !isLibrary(path))
  expect(rest.filter(path => !/^usr\/share\/doc\/[^/]+\/copyright$/.test(path))).toEqual([
    'etc/group',
    'etc/hostname',
    'etc/nsswitch.conf',
    'etc/passwd',
    'usr/lib/strongroom/gateway.json',
    'usr/lib/strongroom/image.json',
  ])
  const executables = await listed(['-type', 'f', '-perm', '/111'])
  expect(executables.filter(path => !isProgram(path) && !isLibrary(path))).toEqual([])
  const links = await listed(['-type', 'l', '-not', '-name', '*.so*'])
  expect(links).toEqual(['bin', 'etc/hosts', 'etc/resolv.conf', 'lib', 'lib64', 'sbin'])
}, 300_000)

// Goal: the host boots the image by its manifest, takes its worker root, and allows the gateway inside.
test('the manifest serves both placements and names the gateway in the root', async () => {
  const manifest = await Bun.file(join(image, 'manifest.json')).json()
  expect(Value.Check(WorkerImageManifest, manifest)).toBe(true)
  const { gateway, launchDigests } = Value.Decode(ImageManifest, manifest)
  expect(gateway?.command).toEqual(['/usr/bin/strongroom-enclave', 'serve'])
  expect(await sha256File(join(tree, gateway?.command[0] ?? ''))).toBe(gateway?.sha256 ?? 'none')
  const { launch } = await readEnclaveRecipe(recipePaths(repo, 'inference'))
  expect(Object.keys(launchDigests)).toHaveLength(2 * launch.vcpuTypes.length * launch.vcpus.length)
}, 300_000)

// Goal: the build finds a forgotten package, or a file that moved to another package.
test.each([
  {
    what: 'library',
    change: (recipe: EnclaveRecipe) => ({ packages: recipe.packages.filter(pkg => pkg !== 'libgomp1') }),
    code: 'library_missing',
    says: 'libgomp.so.1',
  },
  {
    what: 'file',
    change: (recipe: EnclaveRecipe) => ({ files: [...recipe.files, 'usr/bin/llama-swap'] }),
    code: 'recipe_invalid',
    says: 'usr/bin/llama-swap',
  },
])(
  'a missing $what fails the build by name',
  async ({ what, change, code, says }) => {
    const copy = join(dir, `copy without a ${what}`)
    for (const part of ['guest-image', 'scripts/image', 'src/attest']) {
      await cp(join(repo, part), join(copy, part), { recursive: true })
    }
    const paths = recipePaths(copy, 'inference')
    const recipe = await readEnclaveRecipe(paths)
    const lock = await readPackagesLock(paths.packagesLock)
    const changed = { ...recipe, ...change(recipe) }
    const kept = lock.packages.filter(pkg => pkg.role !== 'root' || changed.packages.includes(pkg.name))
    await writeFile(paths.recipe, JSON.stringify(changed))
    await writeFile(paths.packagesLock, JSON.stringify({ ...lock, packages: kept }))
    const imagesDir = join(dir, `images without a ${what}`)
    await mkdir(imagesDir)
    const failure = await buildEnclave({ paths, executable: enclave, imagesDir, report: () => {} }).then(
      () => null,
      (error: unknown) => error,
    )
    expect(failure).toBeInstanceOf(ImageFault)
    expect(failure).toMatchObject({ code })
    expect(failure instanceof Error ? failure.message : '').toContain(says)
  },
  300_000,
)
