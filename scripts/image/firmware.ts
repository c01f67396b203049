// The firmware of an image, and what SEV-SNP hardware will measure when the image is launched with it. Effects: files.

import { cp, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { buildImageIgvm } from '../../src/attest/igvm/image.ts'
import { measureIgvm } from '../../src/attest/igvm/measure.ts'
import { launchDigest } from '../../src/attest/launch/digest.ts'
import { guestFeatures as features, launchProfile as profile } from '../../src/attest/launch/guest.ts'
import { kernelHashesOf } from '../../src/attest/launch/kernel-hashes.ts'
import { hasKernelHashTable } from '../../src/attest/launch/ovmf.ts'
import { toHex } from '../../src/base/bytes.ts'
import { ImageFault } from './image-fault.ts'
import type { partNames } from './manifest.ts'
import type { Recipe } from './recipe.ts'
import { runTool } from './tool.ts'

/** Takes one file out of the firmware package. Throws recipe_invalid when it would not check kernel hashes. */
export async function unpackFirmware(debPath: string, file: string, workDir: string, target: string): Promise<void> {
  const unpacked = join(workDir, 'firmware')
  await mkdir(unpacked, { recursive: true })
  await runTool(['dpkg-deb', '--extract', debPath, unpacked], { timeoutMs: 60_000 })
  await cp(join(unpacked, file), target)
  if (!hasKernelHashTable(await readFile(target))) {
    throw new ImageFault('recipe_invalid', `${file} does not check kernel hashes: it would boot anything`)
  }
}

/** Digests by `<profile>/<vehicle>/<vCPU type>/<vCPUs>`, for both vehicles and all shapes of the recipe. */
export async function launchDigests(
  recipe: Recipe,
  part: (name: keyof typeof partNames) => string,
): Promise<Record<string, string>> {
  const [firmware, kernel, initrd] = await Promise.all(
    (['firmware', 'kernel', 'initrd'] as const).map(async name => new Uint8Array(await readFile(part(name)))),
  )
  if (firmware === undefined || kernel === undefined || initrd === undefined)
    throw new Error('invariant broken: three parts')
  const cmdline = await readFile(part('cmdline'), 'utf8')
  const kernelHashes = await kernelHashesOf({ kernel, initrd, cmdline })
  const digests: Record<string, string> = {}
  for (const vcpuType of recipe.launch.vcpuTypes) {
    for (const vcpus of recipe.launch.vcpus) {
      const bios = await launchDigest({ firmware, kernel, initrd, cmdline, vcpus, vcpuType, features, profile })
      digests[`${profile}/bios/${vcpuType}/${vcpus}`] = toHex(bios.digest)
      // Measures the IGVM file that a host makes of these parts.
      const igvm = await measureIgvm(await buildImageIgvm({ firmware, kernelHashes, vcpus, vcpuType }), { profile })
      digests[`${profile}/igvm/${vcpuType}/${vcpus}`] = toHex(igvm.digest)
    }
  }
  return digests
}
