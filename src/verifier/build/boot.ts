// The boot chain of a build VM: the launch digest computed from an IGVM file or from the image's own files, the command
// line that the digest covers, the dm-verity root hash in the command line, and the disk that must hash to it. Pure.

import { describeIgvm, type IgvmDescription } from '../../attest/igvm/describe.ts'
import { IGVM_PROFILES } from '../../attest/igvm/measure.ts'
import { firmwareLaunchDigest, type LaunchVehicle, precomputedLaunchDigest } from '../../attest/launch/digest.ts'
import { kernelHashesOf } from '../../attest/launch/kernel-hashes.ts'
import { readOvmf } from '../../attest/launch/ovmf.ts'
import { VCPU_SIGNATURES } from '../../attest/launch/vcpu-types.ts'
import { Malformed, parsed, reasonOf, wellFormed } from '../../attest/malformed.ts'
import { type Check, check, fail, notChecked, pass, verdict } from '../../attest/verdict.ts'
import type { VerityParameters } from '../../attest/verity/superblock.ts'
import { checkVerity } from '../../attest/verity/verify.ts'
import { fromHex, fromUtf8, toHex } from '../../base/bytes.ts'
import type { BootImage, BootParts, BuildQuestion } from './question.ts'

export type ExpectedLaunch = {
  /** Null if neither file is given, or it cannot be measured; `problem` then explains why. */
  readonly measurements: readonly Uint8Array[] | null
  /** For each digest in hexadecimal, the shape of the image that produces it. */
  readonly shapes: ReadonlyMap<string, string>
  readonly source: string
  readonly problem: string | null
  readonly igvm: IgvmDescription | null
}

/** Returns the digests with which the given files can be launched. Never throws. */
export async function expectedLaunch(
  question: Pick<BuildQuestion, 'igvm' | 'image' | 'hashes'>,
): Promise<ExpectedLaunch> {
  const { igvm, image, hashes } = question
  const nothing: ExpectedLaunch = { measurements: null, shapes: new Map(), source: 'none', problem: null, igvm: null }
  try {
    if (igvm !== 'any') return await ofIgvm(igvm, question)
    if (image === 'any' || image.boot === null) return nothing
    const shapes = await shapesOf(image.boot, image.cmdline, hashes?.sha384)
    return { ...nothing, measurements: digestsOf(shapes), shapes, source: 'the image' }
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    return { ...nothing, problem: reasonOf(error) }
  }
}

async function ofIgvm(
  igvm: Uint8Array,
  { image, hashes }: Pick<BuildQuestion, 'image' | 'hashes'>,
): Promise<ExpectedLaunch> {
  const boot = image === 'any' ? null : image.boot
  const described = await describeIgvm(igvm, {
    expected: {
      kernel: boot?.kernel ?? 'any',
      initrd: boot?.initrd ?? 'any',
      cmdline: image === 'any' ? { any: true } : decodeCommandLine(image.cmdline),
    },
    sha384: hashes?.sha384,
  })
  const shapes = new Map(
    IGVM_PROFILES.flatMap(profile => {
      const found = described.digests[profile]
      return found.kind === 'digest' ? [[toHex(found.digest), `the IGVM file, loaded as by ${profile}`] as const] : []
    }),
  )
  const source = 'the IGVM file'
  return { measurements: digestsOf(shapes), shapes, source, problem: null, igvm: described }
}

function digestsOf(shapes: ReadonlyMap<string, string>): Uint8Array[] {
  return [...shapes.keys()].flatMap(hex => fromHex(hex) ?? [])
}

const shapePattern = /^qemu-kvm\/(bios|igvm)\/([A-Za-z0-9-]{1,32})\/([1-9][0-9]{0,2})$/
const shapeCountMax = 256
/** SEV_FEATURES of all our launches: SNP active. */
const launchFeatures = 1n

/** Computes the digest of each shape, ignoring the digests in the manifest. */
async function shapesOf(boot: BootParts, cmdline: Uint8Array, sha384: BootHash): Promise<Map<string, string>> {
  const named = boot.shapes.slice(0, shapeCountMax)
  wellFormed(named.length > 0, 'image: its manifest names no VM that it can be launched as')
  const { firmware, kernel, initrd } = boot
  const shared = {
    firmwareDigest: await firmwareLaunchDigest(firmware, { sha384 }),
    metadata: readOvmf(firmware),
    kernelHashes: await kernelHashesOf({ kernel, initrd, cmdline: decodeCommandLine(cmdline) }),
    features: launchFeatures,
    profile: 'qemu-kvm',
  } as const
  const found = new Map<string, string>()
  for (const shape of named) {
    const [, vehicle, vcpuType = '', vcpus] = shapePattern.exec(shape) ?? []
    if (vehicle === undefined || !Object.hasOwn(VCPU_SIGNATURES, vcpuType)) continue
    const cpus = { vehicle: vehicle as LaunchVehicle, vcpuType, vcpus: Number(vcpus) }
    const { digest } = await precomputedLaunchDigest({ ...shared, ...cpus, sha384 })
    found.set(toHex(digest), `the image, launched as ${shape}`)
  }
  return found
}

type BootHash = NonNullable<BuildQuestion['hashes']>['sha384'] | undefined

function decodeCommandLine(cmdline: Uint8Array): string {
  try {
    return fromUtf8(cmdline)
  } catch {
    throw new Malformed('command line: not UTF-8')
  }
}

/** Returns checks in the order of the chain. Those after a broken link are not-checked. `found`: all reports. */
export async function bootChecks(
  { image, hashes }: Pick<BuildQuestion, 'image' | 'hashes'>,
  launch: ExpectedLaunch,
  found: readonly Uint8Array[],
): Promise<Check[]> {
  const committed = [measurementCheck(launch, found), ...commitmentChecks(image, launch)]
  if (image === 'any') {
    const reason = 'no image is given; name its directory by --image'
    return [...committed, ...IMAGE_CHECKS.map(name => notChecked(name, reason, false))]
  }
  const isCommitted = verdict(committed).ok
  const parameters = parsed(() => readVerityWords(image.cmdline))
  const named = parameters.ok
    ? pass('cmdline-root-hash', toHex(parameters.value.rootHash))
    : fail('cmdline-root-hash', parameters.reason)
  if (!parameters.ok || !isCommitted) {
    const reason = 'the root hash is not known: an earlier check is not good'
    return [...committed, named, notChecked('image-root-hash', reason, true)]
  }
  return [...committed, named, await diskCheck(image, parameters.value, hashes?.sha256)]
}

const IMAGE_CHECKS = ['cmdline-root-hash', 'image-root-hash'] as const

export const measurementCheckName = 'launch-measurement'

function measurementCheck(
  { measurements, shapes, problem, source }: ExpectedLaunch,
  found: readonly Uint8Array[],
): Check {
  const name = measurementCheckName
  if (problem !== null) return fail(name, problem)
  if (measurements === null) {
    return notChecked(name, 'no IGVM file and no image is given; name one by --igvm or --image', false)
  }
  const [some] = found
  if (some === undefined) return notChecked(name, 'there is no report', true)
  const wrong = found.map(toHex).find(hex => !shapes.has(hex))
  const [first, ...more] = shapes.keys()
  const wanted = first === undefined ? 'nothing: no loader takes it' : first
  const others = more.length === 0 ? '' : `, or one of ${more.length} more`
  const shape = shapes.get(toHex(some))
  return check(name, wrong === undefined, `the report has ${wrong}, ${source} gives ${wanted}${others}`, shape)
}

/** Checks that the launch digest covers exactly this command line. */
function commitmentChecks(image: BootImage | 'any', { igvm, measurements }: ExpectedLaunch): Check[] {
  if (igvm !== null) return [...igvm.checks]
  if (image === 'any') return []
  const name = 'launch-cmdline'
  if (measurements !== null) return [pass(name, 'the launch digest was computed with it')]
  return [notChecked(name, 'nothing proves that the VM was launched with it; name --igvm, or the whole image', true)]
}

type VerityWords = VerityParameters & { readonly rootHash: Uint8Array; readonly hashStart: number }

const WORDS = {
  root_hash: /^[0-9a-f]{64}$/,
  salt: /^(?:[0-9a-f]{2}){1,256}$/,
  data_blocks: /^[1-9][0-9]{0,12}$/,
  hash_start: /^[1-9][0-9]{0,12}$/,
}
const blockBytes = 4096

/** Requires each word exactly once: with duplicates, kernel and initrd could use different ones. */
function readVerityWords(cmdline: Uint8Array): VerityWords {
  const words = decodeCommandLine(cmdline).split(/\s+/)
  const found = new Map<string, string>()
  for (const [name, pattern] of Object.entries(WORDS)) {
    const prefix = `strongroom.${name}=`
    const [value, ...more] = words.filter(word => word.startsWith(prefix)).map(word => word.slice(prefix.length))
    wellFormed(value !== undefined, `the command line has no ${prefix}`)
    wellFormed(more.length === 0, `the command line has ${prefix} twice`)
    wellFormed(pattern.test(value), `the command line has ${prefix}${value}, which is malformed`)
    found.set(name, value)
  }
  const wordOf = (name: keyof typeof WORDS) => found.get(name) ?? ''
  return {
    rootHash: fromHex(wordOf('root_hash')) ?? new Uint8Array(0),
    salt: fromHex(wordOf('salt')) ?? new Uint8Array(0),
    dataBlocks: Number(wordOf('data_blocks')),
    hashStart: Number(wordOf('hash_start')),
    dataBlockBytes: blockBytes,
    hashBlockBytes: blockBytes,
  }
}

/** Checks the disk. The guest does not read the superblock before the tree, but it must have the same parameters. */
async function diskCheck(
  { disk }: BootImage,
  words: VerityWords,
  sha256: NonNullable<BuildQuestion['hashes']>['sha256'] | undefined,
): Promise<Check> {
  const name = 'image-root-hash'
  const checks = await checkVerity(
    { data: disk, hashOffset: (words.hashStart - 1) * blockBytes },
    { rootHash: words.rootHash, uuid: 'any', parameters: words },
    sha256 === undefined ? {} : { hash: sha256 },
  )
  const bad = checks.filter(check => check.outcome !== 'pass')
  const reason = bad.map(check => `${check.name}: ${check.reason}`).join('; ')
  return check(
    name,
    bad.length === 0,
    reason,
    `${words.dataBlocks} blocks of ${blockBytes} bytes hash to ${toHex(words.rootHash)}`,
  )
}
