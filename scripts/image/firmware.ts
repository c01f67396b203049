// The firmware of an image, and what SEV-SNP hardware will measure when the image is launched with it. Effects: files.

import { cp, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { launchDigest } from '../../src/attest/launch/digest.ts'
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

/** SEV_FEATURES of a plain SEV-SNP guest: bit 0, SNP itself. */
const features = 1n

/** Digests for every vCPU type and count of the recipe, by `<profile>/<vehicle>/<vCPU type>/<vCPUs>`. */
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
  const digests: Record<string, string> = {}
  for (const vcpuType of recipe.launch.vcpuTypes) {
    for (const vcpus of recipe.launch.vcpus) {
      const cpus = { vcpus, vcpuType, features, profile: 'qemu-kvm' } as const
      const { digest } = await launchDigest({ firmware, kernel, initrd, cmdline, ...cpus })
      digests[`qemu-kvm/bios/${vcpuType}/${vcpus}`] = toHex(digest)
    }
  }
  return digests
}
