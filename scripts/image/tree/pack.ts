// The last steps of every image: one read-only root, kernel, initrd, command line, firmware, and what they measure to.
// Effects.

import { cp, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { writeJson } from '../checked-json.ts'
import { sha256File } from '../digest.ts'
import { downloadPath } from '../downloads.ts'
import { launchDigests, unpackFirmware } from '../firmware.ts'
import { type CacheDirs, lockCache, openCacheDirs, prune, publish, scratchDir, touch } from '../image-cache.ts'
import { type Inputs, inputsDigest, type ToolVersions } from '../inputs.ts'
import type { Kernel } from '../kernel.ts'
import { type CommonManifest, measureFiles, partNames } from '../manifest.ts'
import { type PackagesLock, packageOf } from '../packages-lock.ts'
import { type ProvenanceOf, writeProvenance } from '../provenance.ts'
import type { Recipe, RecipePaths } from '../recipe.ts'
import { buildInitrd, type InitrdOptions } from './initrd.ts'
import { packTree } from './root.ts'
import { appendVerity, verityArguments } from './verity.ts'

export type ImageBuild = {
  readonly dirs: CacheDirs
  readonly inputsSha256: string
  /** Empty; gone after the build. */
  readonly workDir: string
  /** The image's directory, which gets a manifest last. */
  readonly image: string
}

/** Contents of its provenance beside the manifest. */
export type BuiltImage = Omit<ProvenanceOf, 'dir'>

/** Directory of the finished image; `build` makes it and its manifest unless the same inputs made it before. */
export async function cachedImage(
  { name, imagesDir, inputs }: { name: string; imagesDir: string | null; inputs: Inputs },
  build: (build: ImageBuild) => Promise<BuiltImage>,
): Promise<string> {
  const dirs = await openCacheDirs(imagesDir)
  await using _held = await lockCache(dirs)
  const inputsSha256 = inputsDigest(inputs)
  const target = join(dirs.images, `${name}-${inputsSha256.slice(0, 16)}`)
  if (!(await Bun.file(join(target, 'manifest.json')).exists())) {
    await using work = await scratchDir(dirs.work)
    await using out = await scratchDir(dirs.images)
    const image = join(out.path, 'image')
    await mkdir(image, { mode: 0o755 })
    const built = await build({ dirs, inputsSha256, workDir: work.path, image })
    await writeJson(join(image, 'manifest.json'), built.manifest)
    await writeProvenance({ ...built, dir: image })
    await publish(image, target)
  }
  await touch(target, new Date())
  await prune(dirs, name)
  return target
}

export type PackOptions = {
  readonly build: ImageBuild
  readonly paths: RecipePaths
  readonly recipe: Recipe
  readonly lock: PackagesLock
  readonly tools: ToolVersions
  readonly kernel: Kernel
  /** The finished root. */
  readonly tree: string
  readonly initrd: Pick<InitrdOptions, 'tree' | 'modules'>
  readonly report: (line: string) => void
}

/** Writes the parts and gives the manifest of them. */
export async function packImage(options: PackOptions): Promise<CommonManifest> {
  const { build, paths, recipe, lock, kernel, tree, report } = options
  const { dirs, inputsSha256, workDir, image } = build
  const part = (name: keyof typeof partNames) => join(image, partNames[name])

  report('root: packing and hashing')
  await packTree(tree, inputsSha256, recipe, part('root'))
  const { rootHash, ...verity } = await appendVerity(part('root'))

  report('kernel, initrd, command line')
  await cp(kernel.path, part('kernel'))
  await buildInitrd({
    ...options.initrd,
    sourceDir: join(paths.commonDir, 'initrd'),
    kind: recipe.kind,
    mtimeSeconds: recipe.sourceDateEpoch,
    target: part('initrd'),
  })
  const cmdline = [...recipe.kernelArguments, ...verityArguments({ rootHash, ...verity })]
  await writeFile(part('cmdline'), cmdline.join(' '))

  const firmware = packageOf(lock, 'firmware')
  await unpackFirmware(downloadPath(dirs.downloads, firmware.sha256), recipe.firmware.file, workDir, part('firmware'))

  return {
    schemaVersion: 1,
    name: recipe.name,
    inputsSha256,
    rootHash,
    verity,
    files: await measureFiles(image),
    kernelVersion: `${kernel.version} (${packageOf(lock, 'kernel').version})`,
    sourceDateEpoch: recipe.sourceDateEpoch,
    packagesLockSha256: await sha256File(paths.packagesLock),
    tools: options.tools,
    firmwareVersion: firmware.version,
    launchDigests: await launchDigests(recipe, part),
  }
}
