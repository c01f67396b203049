// A small image whose launch can be measured: firmware with OVMF's tables, a kernel, an initrd, a command line, and
// their manifest.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildIgvm } from '../../../src/attest/igvm/build.ts'
import { launchDigest } from '../../../src/attest/launch/digest.ts'
import { kernelHashesOf } from '../../../src/attest/launch/kernel-hashes.ts'
import { imageManifestName, imageProvenance, imageProvenanceName } from '../../../src/attest/provenance/image.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import type { ImageManifest } from '../../../src/contract/vm/image.ts'
import { ovmfFirmware } from './igvm-firmware.ts'

const metadata = {
  sections: [
    { kind: 'secMemory', gpa: 0x800000, sizeBytes: 0x9000 },
    { kind: 'secrets', gpa: 0x80d000, sizeBytes: 0x1000 },
    { kind: 'cpuid', gpa: 0x80e000, sizeBytes: 0x1000 },
    { kind: 'kernelHashes', gpa: 0x810000, sizeBytes: 0x1000 },
  ],
  kernelHashes: { gpa: 0x810c00, sizeBytes: 1024 },
  resetEip: 0x80b004,
} as const

export type LaunchImageParts = {
  readonly name: string
  readonly cmdline: string
  readonly rootHash: string
  readonly root: Uint8Array
  readonly kernel: Uint8Array
  /** Pages of the firmware. QEMU loads only multiples of 64 KiB. */
  readonly firmwarePages: number
}

export const sampleParts: LaunchImageParts = {
  name: 'instance',
  cmdline: `console=ttyS0 roothash=${'ab'.repeat(32)}`,
  rootHash: 'ab'.repeat(32),
  root: utf8('a root'),
  kernel: utf8('a kernel'.repeat(1000)),
  firmwarePages: 4,
}
const features = 1n
export const imageVcpuType = 'EPYC-v4'
/** Shapes that the manifest has digests for: 1 and 2 vCPUs, from firmware and from an IGVM file. */
export const imageVcpus = [1, 2] as const

/** Writes the image into an empty directory, with an IGVM file for two vCPUs beside it. */
export async function writeLaunchImage(
  directory: string,
  parts: Partial<LaunchImageParts> = {},
): Promise<{ manifest: ImageManifest; igvm: string }> {
  const { name, cmdline, rootHash, root, kernel, firmwarePages } = { ...sampleParts, ...parts }
  const firmware = ovmfFirmware(metadata, firmwarePages, at => at & 0xff)
  const initrd = utf8('an initrd'.repeat(1000))
  const contents = { firmware, root, kernel, initrd, cmdline: utf8(cmdline) }
  const files = Object.fromEntries(
    Object.entries(contents).map(([path, bytes]) => {
      writeFileSync(join(directory, path), bytes)
      const sha256 = new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
      return [path, { path, sha256, sizeBytes: bytes.length }]
    }),
  ) as ImageManifest['files']
  const digests: Record<string, string> = {}
  for (const vehicle of ['bios', 'igvm'] as const) {
    for (const vcpus of imageVcpus) {
      const cpus = { vcpus, vcpuType: imageVcpuType, features, profile: 'qemu-kvm', vehicle } as const
      const { digest } = await launchDigest({ firmware, kernel, initrd, cmdline, ...cpus })
      digests[`qemu-kvm/${vehicle}/${imageVcpuType}/${vcpus}`] = toHex(digest)
    }
  }
  const manifest: ImageManifest = {
    schemaVersion: 1,
    name,
    inputsSha256: 'cd'.repeat(32),
    rootHash,
    files,
    agent: { name: 'opencode', version: '1' },
    kernelVersion: '6.12',
    launchDigests: digests,
  }
  writeFileSync(join(directory, imageManifestName), JSON.stringify(manifest))
  writeImageProvenance(directory, manifest)
  const igvm = join(directory, `${name}.igvm`)
  const kernelHashes = await kernelHashesOf({ kernel, initrd, cmdline })
  const build = { firmware, kernelHashes, vcpus: 2, vcpuType: imageVcpuType, features, policy: 0x30000n }
  writeFileSync(igvm, await buildIgvm(build))
  return { manifest, igvm }
}

/** As scripts/build-image.ts leaves it, of the manifest that is there. */
export function writeImageProvenance(directory: string, { name, inputsSha256, rootHash, files }: ImageManifest): void {
  const manifest = readFileSync(join(directory, imageManifestName))
  const bytes = imageProvenance({
    recipe: name,
    variant: null,
    inputsSha256,
    sourceDateEpoch: 1,
    tools: { bun: '1' },
    npmPackages: [],
    executable: { name: 'strongroom-guest', sha256: 'ab'.repeat(32), madeOf: null },
    packagesLockSha256: 'ee'.repeat(32),
    packages: [samplePackage],
    output: {
      manifestSha256: new Bun.CryptoHasher('sha256').update(manifest).digest('hex'),
      files: Object.values(files),
      root: files.root.path,
      rootHash,
    },
  })
  writeFileSync(join(directory, imageProvenanceName), bytes)
}

const samplePackage = {
  name: 'base-files',
  version: '13.8+deb13u7',
  role: 'root',
  archive: 'debian',
  file: 'pool/main/b/base-files/base-files_13.8+deb13u7_amd64.deb',
  sha256: 'fc'.repeat(32),
}
