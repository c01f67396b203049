// strongroom measure igvm: the launch digest of an IGVM file, or of a rebuilt file of an image. Effects: the named
// files.

import { join } from 'node:path'
import { Option } from 'commander'
import { igvmBytesMax } from '../../attest/igvm/file.ts'
import { buildImageIgvm } from '../../attest/igvm/image.ts'
import { IGVM_PROFILES, type IgvmProfile, measureIgvm } from '../../attest/igvm/measure.ts'
import { launchProfile } from '../../attest/launch/guest.ts'
import { cmdlineBytes } from '../../attest/launch/kernel-hashes.ts'
import { launchDigestBytes } from '../../attest/launch/page-info.ts'
import { VCPU_SIGNATURES } from '../../attest/launch/vcpu-types.ts'
import { type Check, check, fail } from '../../attest/verdict.ts'
import { present } from '../../base/assert.ts'
import { fromHex, toHex } from '../../base/bytes.ts'
import type { Command, Run } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { MIB, readInput, readingInput } from '../../terminal/input-file.ts'
import { countOption, hexOption, required } from '../../terminal/options.ts'
import { writeOutput } from '../../terminal/output-file.ts'
import { readExpectedImage } from '../../verifier/launch.ts'
import { digestCheck } from './digest-render.ts'
import { shownFile } from './igvm-render.ts'
import { firmwareBytesMax, initrdBytesMax, kernelBytesMax } from './launch-options.ts'
import { nativeSha256, nativeSha384 } from './native.ts'
import { showCompared, showDigest } from './show-digest.ts'

/** The limit in launch documents. */
const vcpusMax = 255
const manifestBytesMax = MIB
const cmdlineBytesMax = 65_536

type Options = {
  profile?: IgvmProfile
  image?: string
  vcpus?: number
  vcpuType?: string
  out?: string
  expect?: Uint8Array
}

export function addMeasureIgvm(measure: Command): void {
  measure
    .command('igvm')
    .description(
      'print the launch digest of an IGVM file; --profile names the loader, because loaders differ. With --image, makes the file of an image and compares it with its manifest',
    )
    .argument('[file]', 'IGVM file')
    .addOption(
      new Option(
        '--profile <name>',
        'qemu-kvm: as QEMU 10.1 and later loads it; directive-order: in the order of the directives in the file',
      ).choices(IGVM_PROFILES),
    )
    .option('--image <directory>', 'instead of a file: the directory of an image, with its manifest.json')
    .option('--vcpus <count>', 'with --image: virtual CPUs', countOption(1, vcpusMax))
    .addOption(
      new Option('--vcpu-type <model>', 'with --image: QEMU CPU model like EPYC-v4').choices(
        Object.keys(VCPU_SIGNATURES),
      ),
    )
    .option('--out <file>', 'with --image: write the IGVM file; an existing file is replaced')
    .option('--expect <hex>', 'compare; exit code 1 when the digest differs', hexOption(launchDigestBytes))
    .examples(
      'strongroom measure igvm image.igvm --profile qemu-kvm',
      'strongroom measure igvm --image /var/lib/strongroom/image --vcpus 2 --vcpu-type EPYC-v4 --out image.igvm',
    )
    .runs(async (run, file: string | undefined, options: Options) => {
      if (options.image === undefined) await measureFile(run, file, options)
      else await measureImage(run, options.image, file, options)
    })
}

async function measureFile(run: Run, file: string | undefined, options: Options): Promise<void> {
  if (file === undefined) {
    throw new InputFault("missing required argument 'file'", {
      param: 'file',
      remedy: 'name an IGVM file, or an image by --image',
    })
  }
  for (const param of ['vcpus', 'vcpuType', 'out'] as const) {
    if (options[param] === undefined) continue
    const name = param === 'vcpuType' ? 'vcpu-type' : param
    throw new InputFault(`--${name} needs --image`, { param: name, remedy: `add --image, or leave out --${name}` })
  }
  const profile = required('profile', options.profile)
  const bytes = readInput({ path: file, param: 'file', bytesMax: igvmBytesMax })
  const measured = await readingInput(file, () => measureIgvm(bytes, { profile, sha384: nativeSha384 }))
  await showDigest(run, measured, options.expect)
}

async function measureImage(run: Run, directory: string, file: string | undefined, options: Options): Promise<void> {
  if (file !== undefined) {
    const remedy = 'leave out the file or --image'
    throw new InputFault('a file and --image exclude each other', { param: 'image', remedy })
  }
  if (options.profile === 'directive-order') {
    const remedy = `leave out --profile, or measure the file that --out writes`
    throw new InputFault(`manifests have digests of profile ${launchProfile} alone`, { param: 'profile', remedy })
  }
  const vcpus = required('vcpus', options.vcpus)
  const vcpuType = required('vcpu-type', options.vcpuType)
  const { bytes, checks, expected } = await rebuild(directory, { vcpus, vcpuType })
  const { digest } = await measureIgvm(bytes, { profile: launchProfile, sha384: nativeSha384 })
  const shape = `${launchProfile}/igvm/${vcpuType}/${vcpus}`
  const wanted = options.expect ?? expected
  const compared =
    digestCheck(digest, wanted ?? undefined) ?? fail('launch-digest', `the manifest has no launch digest for ${shape}`)
  if (options.out !== undefined) writeOutput(options.out, bytes)
  const made = { file: options.out ?? null, bytes, digest, profile: launchProfile }
  await showCompared(run, shownFile(made, run.paint), [...checks, compared])
}

type Rebuilt = { readonly bytes: Uint8Array; readonly checks: readonly Check[]; readonly expected: Uint8Array | null }

/** Rebuilds an image's file, comparing its parts with the manifest. Needs no root. */
async function rebuild(
  directory: string,
  { vcpus, vcpuType }: { readonly vcpus: number; readonly vcpuType: string },
): Promise<Rebuilt> {
  const read = (name: string, bytesMax: number) => readInput({ path: join(directory, name), param: 'image', bytesMax })
  const manifestName = join(directory, 'manifest.json')
  const manifest = await readingInput(manifestName, () => readExpectedImage(read('manifest.json', manifestBytesMax)))
  const { files, launchDigests } = manifest
  const parts = {
    firmware: read(files.firmware.path, firmwareBytesMax),
    kernel: read(files.kernel.path, kernelBytesMax),
    initrd: read(files.initrd.path, initrdBytesMax),
    cmdline: read(files.cmdline.path, cmdlineBytesMax),
  }
  const checks = (['firmware', 'kernel', 'initrd', 'cmdline'] as const).map(name => {
    const found = toHex(nativeSha256(parts[name]))
    return check(name, found === files[name].sha256, `SHA-256 is ${found}, the manifest has ${files[name].sha256}`)
  })
  const bytes = await readingInput(directory, () => {
    const cmdline = nativeSha256(cmdlineBytes(new TextDecoder().decode(parts.cmdline)))
    const kernelHashes = { kernel: nativeSha256(parts.kernel), initrd: nativeSha256(parts.initrd), cmdline }
    return buildImageIgvm({ firmware: parts.firmware, kernelHashes, vcpuType, vcpus }, { sha384: nativeSha384 })
  })
  const key = `${launchProfile}/igvm/${vcpuType}/${vcpus}`
  const digest = Object.hasOwn(launchDigests, key) ? launchDigests[key] : undefined
  return {
    bytes,
    checks,
    expected: digest === undefined ? null : present(fromHex(digest), 'the schema requires hexadecimal'),
  }
}
