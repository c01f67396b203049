// Launch digests against real hardware, a reference tool's digests, and what must change them.

import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { ovmfFirmware } from '../../../scripts/rigs/launch/igvm-firmware.ts'
import { guidBytes, guidText } from '../../../src/attest/encoding/guid.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import {
  firmwareLaunchDigest,
  firmwareRegion,
  type LaunchInput,
  type LaunchRegion,
  launchDigest,
  launchPages,
  precomputedLaunchDigest,
} from '../../../src/attest/launch/digest.ts'
import {
  kernelHashesOf,
  kernelHashPage,
  readKernelHashPage,
  writeKernelHashes,
} from '../../../src/attest/launch/kernel-hashes.ts'
import { OVMF_GUIDS, type OvmfSection, readOvmf, sectionKind } from '../../../src/attest/launch/ovmf.ts'
import { PAGE_INFO } from '../../../src/attest/launch/page-info.ts'
import { VCPU_SIGNATURES, vcpuSignature } from '../../../src/attest/launch/vcpu-types.ts'
import { qemuVmsas } from '../../../src/attest/launch/vmsa.ts'
import {
  readVmsa,
  sevFeatureNames,
  sevFeatures,
  VMSA_FIELDS,
  VMSA_SEGMENTS,
  writeVmsa,
} from '../../../src/attest/launch/vmsa-layout.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const vector = (name: string) => new Uint8Array(readFileSync(`${import.meta.dir}/../../vectors/${name}`))
const json = (name: string) => JSON.parse(new TextDecoder().decode(vector(name)))
const bytes = (hex: string) => fromHex(hex) ?? new Uint8Array(0)

type Expected = {
  vcpus: number
  vcpu_sig: string
  ovmf: string
  kernel: string | null
  cmdline: string | null
  guest_features: number
  expected: string
}
const reference: Expected[] = json('launch-digest/expected-digests.json')

function inputOf(expected: Expected): LaunchInput {
  const empty = new Uint8Array(0)
  return {
    firmware: vector(`ovmf/${expected.ovmf}`),
    ...(expected.kernel === null ? {} : { kernel: empty, initrd: empty, cmdline: expected.cmdline ?? '' }),
    vcpus: expected.vcpus,
    vcpuType: Number(expected.vcpu_sig),
    features: BigInt(expected.guest_features),
    profile: 'qemu-kvm',
  }
}

const amdSev = reference.filter(({ ovmf }) => ovmf.includes('AmdSev')).map(inputOf)
const sample: LaunchInput = {
  ...inputOf(reference[2] as Expected),
  kernel: utf8('a kernel'),
  initrd: utf8('an initrd'),
  cmdline: 'console=ttyS0',
}
const hexOf = async (input: LaunchInput) => toHex((await launchDigest(input)).digest)

// Goal: every digest of the reference tool comes out, through WebCrypto and through an injected hash alike.
test('the digests of a reference tool', async () => {
  expect(reference).toHaveLength(8)
  const native = (input: Uint8Array) => new Uint8Array(new Bun.CryptoHasher('sha384').update(input).digest())
  for (const item of reference) {
    const launched = await launchDigest(inputOf(item))
    expect(toHex(launched.digest)).toBe(item.expected)
    expect(launched.profile).toBe('qemu-kvm')
    expect(launched.parts.at(-1)?.digest).toEqual(launched.digest)
    expect(await hexOf({ ...inputOf(item), sha384: native })).toBe(item.expected)
  }
})

type Inputs = {
  measurement_doc: {
    cmdline: string
    ovmf_hash: string
    kernel_hash: string
    initrd_hash: string
    hashes_table_gpa: number
    reset_eip: number
    ovmf_sections: { gpa: number; size: number; type: number }[]
  }
  vcpus: number
  vcpu_type: string
  guest_features: number
  expected_launch_digest: string
  mr_config: string
  host_data: string
}

describe('a launch that real hardware has signed', () => {
  const inputs: Inputs = json('launch-digest/bare-metal-milan.inputs.json')
  const report = vector('launch-digest/bare-metal-milan.report.bin')
  const doc = inputs.measurement_doc
  const compute = (change: object = {}) =>
    precomputedLaunchDigest({
      firmwareDigest: bytes(doc.ovmf_hash),
      metadata: {
        sections: doc.ovmf_sections.map(
          ({ gpa, size, type }): OvmfSection => ({ kind: sectionKind(type), gpa, sizeBytes: size }),
        ),
        kernelHashes: { gpa: doc.hashes_table_gpa, sizeBytes: 1024 },
        resetEip: doc.reset_eip,
      },
      kernelHashes: {
        kernel: bytes(doc.kernel_hash),
        initrd: bytes(doc.initrd_hash),
        cmdline: sha256(concat(utf8(doc.cmdline), new Uint8Array(1))),
      },
      vcpus: inputs.vcpus,
      vcpuType: inputs.vcpu_type,
      features: BigInt(inputs.guest_features),
      profile: 'qemu-kvm',
      ...change,
    })

  // Goal: our prediction is what the processor measured.
  test('its measurement', async () => {
    const { digest } = await compute()
    expect(toHex(digest)).toBe(inputs.expected_launch_digest)
    expect(toHex(digest)).toStartWith('7f51e17f')
    expect(digest).toEqual(report.slice(0x90, 0xc0))
  })

  // Goal: another vCPU model, count, feature or vehicle is another launch.
  test('what changes it', async () => {
    for (const change of [
      { vcpuType: 'EPYC-Milan' },
      { vcpus: 1 },
      { features: 0x21n },
      { kernelHashes: null },
      { vehicle: 'igvm' },
    ])
      expect(toHex((await compute(change)).digest)).not.toBe(inputs.expected_launch_digest)
  })

  // Goal: HOST_DATA of the same report is the hash of its configuration, with the separator inside.
  test('its host data', () => {
    const hash = sha256(concat(utf8('dstack-mr-config-v3:'), new Uint8Array(1), utf8(inputs.mr_config)))
    expect(toHex(hash)).toBe(inputs.host_data)
    expect(hash).toEqual(report.slice(0xc0, 0xe0))
  })
})

// Goal: what boots is measured: kernel, initrd, command line and firmware, each by a single changed byte; and whole
// inputs do not collide.
test('every input changes the digest', async () => {
  const changed = sample.firmware.slice()
  changed[0] = (changed[0] ?? 0) ^ 1
  const digests = await Promise.all(
    [
      sample,
      { ...sample, kernel: utf8('a kernem') },
      { ...sample, initrd: utf8('an initre') },
      { ...sample, cmdline: 'console=ttyS1' },
      { ...sample, cmdline: 'console=ttyS0 ' },
      { ...sample, firmware: changed },
      { ...sample, firmware: concat(new Uint8Array(4096), sample.firmware) },
      { ...sample, vcpus: 2 },
      { ...sample, vcpuType: 'EPYC-Rome' },
      { ...sample, features: 0x201n },
      { ...sample, vehicle: 'igvm' as const },
    ].map(hexOf),
  )
  expect(new Set(digests).size).toBe(digests.length)
})

// Goal: absent and empty initrd or command line are the same launch, as they are to QEMU; absent kernel is another.
test('what is absent', async () => {
  const { kernel, initrd: _, cmdline: __, ...rest } = sample
  const bare = { ...rest, kernel: kernel ?? new Uint8Array(0) }
  expect(await hexOf(bare)).toBe(await hexOf({ ...bare, initrd: new Uint8Array(0), cmdline: '' }))
  expect(await hexOf(rest)).not.toBe(await hexOf(bare))
})

// Goal: what cannot be launched has no digest: each bound on both sides.
test('refusals', async () => {
  const { kernel: _, initrd: __, cmdline: ___, ...bare } = sample
  const plain = vector('ovmf/ovmf_OvmfX64_suffix.bin')
  for (const bad of [
    { ...sample, vcpus: 0 },
    { ...sample, vcpus: 1025 },
    { ...sample, vcpus: 1.5 },
    { ...sample, vcpuType: 'EPYC-Naples' },
    { ...sample, vcpuType: 'toString' },
    { ...sample, vcpuType: 0 },
    { ...sample, features: 0n },
    { ...sample, features: 0x3n },
    { ...sample, features: 1n | (1n << 40n) },
    { ...sample, cmdline: 'a\0b' },
    { ...sample, firmware: plain },
    { ...sample, firmware: new Uint8Array(0) },
    { ...sample, firmware: new Uint8Array(4096) },
    { ...sample, firmware: sample.firmware.subarray(1) },
    { ...sample, firmware: concat(new Uint8Array(64 * 1024 * 1024), sample.firmware) },
    { ...bare, cmdline: 'console=ttyS0' },
  ])
    await expect(launchDigest(bad)).rejects.toBeInstanceOf(Malformed)
  const many = await launchDigest({ ...sample, vcpus: 1024 })
  expect(many.parts.filter(({ type }) => type === 'vmsa')).toHaveLength(1024)
  const whole = concat(new Uint8Array(64 * 1024 * 1024 - 4096), sample.firmware)
  expect(readOvmf(whole)).toEqual(readOvmf(sample.firmware))
})

// Goal: the digest after the firmware is a starting point that gives the same end.
test('precomputed inputs', async () => {
  const { firmware, kernel, initrd, cmdline, ...cpus } = sample
  const kernelHashes = await kernelHashesOf({ kernel: kernel ?? new Uint8Array(0), initrd, cmdline })
  const firmwareDigest = await firmwareLaunchDigest(firmware)
  const metadata = readOvmf(firmware)
  const { digest } = await precomputedLaunchDigest({ ...cpus, firmwareDigest, metadata, kernelHashes })
  expect(toHex(digest)).toBe(await hexOf(sample))
  const short = { ...cpus, firmwareDigest: firmwareDigest.subarray(1), metadata, kernelHashes }
  await expect(precomputedLaunchDigest(short)).rejects.toBeInstanceOf(Malformed)
})

describe('the tables', () => {
  // Goal: PAGE_INFO has no gap and no overlap, and is 112 bytes.
  test('PAGE_INFO', () => {
    let end = 0
    for (const [offset, sizeBytes] of Object.values<readonly [number, number]>(PAGE_INFO)) {
      expect(offset).toBe(end)
      end += sizeBytes
    }
    expect(end).toBe(0x70)
  })

  // Goal: no two registers of the save area overlap, and a written state reads as itself.
  test('the VMSA', () => {
    const taken = new Set<number>()
    const ranges = [...Object.values(VMSA_FIELDS), ...Object.values(VMSA_SEGMENTS).map(offset => [offset, 16] as const)]
    for (const [offset, sizeBytes] of ranges)
      for (let at = offset; at < offset + sizeBytes; at += 1) {
        expect(taken.has(at)).toBe(false)
        taken.add(at)
      }
    const { first, other } = qemuVmsas({ resetEip: 0x80b004 }, { signature: 0xa00f11, features: 1n })
    for (const page of [first, other]) expect(writeVmsa(readVmsa(page))).toEqual(page)
    expect(readVmsa(first).segments.cs.base + readVmsa(first).fields.rip).toBe(0xfffffff0n)
    expect(readVmsa(other).segments.cs.base + readVmsa(other).fields.rip).toBe(0x80b004n)
    expect(readVmsa(other).fields).toMatchObject({ rdx: 0xa00f11n, sevFeatures: 1n, cr4: 0x40n, rflags: 2n })
  })

  /** CPUID Fn0000_0001_EAX; family and model include their extended parts. */
  function cpuidSignature(family: number, model: number, stepping: number): number {
    const low = Math.min(family, 0xf)
    return (((family - low) << 20) | ((model >> 4) << 16) | (low << 8) | ((model & 0xf) << 4) | stepping) >>> 0
  }

  // Goal: signatures are what family, model and stepping say; versions of a model share its signature.
  test('vCPU signatures', () => {
    const models = { EPYC: [23, 1, 2], 'EPYC-Rome': [23, 49, 0], 'EPYC-Milan': [25, 1, 1] } as const
    const newer = { 'EPYC-Genoa': [25, 17, 0], 'EPYC-Turin': [26, 0, 0] } as const
    for (const [name, [family, model, stepping]] of Object.entries({ ...models, ...newer }))
      expect(vcpuSignature(name)).toBe(cpuidSignature(family, model, stepping))
    for (const [name, signature] of Object.entries<number>(VCPU_SIGNATURES))
      expect(signature).toBe(vcpuSignature(name.replace(/-(?:v\d|IBPB)$/, '')))
  })

  // Goal: feature bits have one name each, and a bit without a name is refused.
  test('SEV_FEATURES', () => {
    expect(sevFeatures('snpActive', 'debugSwap')).toBe(33n)
    expect(sevFeatureNames(33n)).toEqual(['snpActive', 'debugSwap'])
    expect(() => sevFeatureNames(1n << 63n)).toThrow(Malformed)
  })

  // Goal: a GUID is its bytes in both directions, the first three groups turned around.
  test('GUIDs', () => {
    const text = '00112233-4455-6677-8899-aabbccddeeff'
    expect(toHex(guidBytes(text))).toBe('33221100554477668899aabbccddeeff')
    expect(guidText(guidBytes(text))).toBe(text)
  })
})

describe('the kernel-hash page', () => {
  const hashes = { kernel: sha256(utf8('k')), initrd: sha256(utf8('i')), cmdline: sha256(utf8('c')) }

  // Goal: it reads as what was written, at any place; a byte changed anywhere else than in a hash is refused.
  test('round trip and damage', () => {
    expect(writeKernelHashes(hashes)).toHaveLength(176)
    for (const offset of [0, 0xc00, 4096 - 176]) {
      expect(readKernelHashPage(kernelHashPage(hashes, offset), offset)).toEqual(hashes)
    }
    expect(() => kernelHashPage(hashes, 4096 - 175)).toThrow(Malformed)
    const page = kernelHashPage(hashes, 0xc00)
    let refused = 0
    for (let at = 0; at < page.length; at += 1) {
      const changed = page.slice()
      changed[at] = (changed[at] ?? 0) ^ 1
      try {
        expect(readKernelHashPage(changed, 0xc00)).not.toEqual(hashes)
      } catch (error) {
        expect(error).toBeInstanceOf(Malformed)
        refused += 1
      }
    }
    expect(refused).toBe(4096 - 96)
  })
})

// Goal: firmware made elsewhere reads as it was made.
test('the tables of made firmware', () => {
  const metadata = {
    sections: [
      { kind: 'secMemory', gpa: 0x800000, sizeBytes: 0x9000 },
      { kind: 'cpuid', gpa: 0x80e000, sizeBytes: 0x1000 },
    ],
    kernelHashes: { gpa: 0x810c00, sizeBytes: 1024 },
    resetEip: 0x80b004,
  } as const
  expect(readOvmf(ovmfFirmware(metadata, 2, at => at & 0xff))).toEqual(metadata)
  const none = { ...metadata, kernelHashes: null }
  expect(readOvmf(ovmfFirmware(none, 1, () => 0))).toEqual(none)
  const unaligned = { ...metadata, sections: [{ kind: 'cpuid', gpa: 0x80e001, sizeBytes: 0x1000 }] } as const
  expect(() => readOvmf(ovmfFirmware(unaligned, 1, () => 0))).toThrow(Malformed)
  const huge = { ...metadata, sections: [{ kind: 'secMemory', gpa: 0, sizeBytes: 0xfffff000 }] } as const
  expect(() => readOvmf(ovmfFirmware(huge, 1, () => 0))).toThrow(Malformed)
  // Two entries of one GUID: QEMU and the firmware might each read another.
  const twice = ovmfFirmware(metadata, 1, () => 0)
  const at = toHex(twice).indexOf(toHex(guidBytes(OVMF_GUIDS.kernelHashes))) / 2
  twice.set(guidBytes(OVMF_GUIDS.sevMetadata), at)
  expect(() => readOvmf(twice)).toThrow('two sevMetadata entries')
})

// Goal: hostile firmware and hash pages are refused with Malformed and nothing else.
test('hostile input', async () => {
  const samples = [...new Set(reference.map(({ ovmf }) => ovmf))].map(name => vector(`ovmf/${name}`))
  const tails = samples.map(sampled => sampled.slice(-1024))
  await fuzz({ samples: tails, count: 4000, sizeBytesMax: 1024 }, input => {
    const firmware = concat(new Uint8Array(4096 - (input.length % 4096)), input)
    onlyMalformed(() => readOvmf(firmware))
    onlyMalformed(() => readOvmf(input))
  })
  const { kernel = new Uint8Array(0) } = amdSev[0] ?? sample
  const page = kernelHashPage(await kernelHashesOf({ kernel }), 64)
  await fuzz({ samples: [page], count: 500 }, input => onlyMalformed(() => readKernelHashPage(input, 64)))
}, 60_000)

function onlyMalformed(run: () => unknown): void {
  try {
    run()
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
  }
}

const pageOf = (byte: number) => new Uint8Array(4096).fill(byte)
const three = new Uint8Array(3 * 4096).map((_, at) => Math.floor(at / 4096) + 1)
const region = (changes: Partial<LaunchRegion> = {}): LaunchRegion => {
  return { name: 'it', type: 'normal', gpa: 0x10_0000n, pageCount: 3, contents: three, ...changes }
}

// Goal: the pages of a launch, in their order, each with its own address and contents.
test('goal: one page after the other, region after region', () => {
  const zero = region({ type: 'zero', gpa: 0x1000n, pageCount: 2, contents: null })
  expect(launchPages([region(), zero])).toEqual([
    { type: 'normal', gpa: 0x10_0000n, contents: pageOf(1) },
    { type: 'normal', gpa: 0x10_1000n, contents: pageOf(2) },
    { type: 'normal', gpa: 0x10_2000n, contents: pageOf(3) },
    { type: 'zero', gpa: 0x1000n, contents: null },
    { type: 'zero', gpa: 0x2000n, contents: null },
  ])
  expect(launchPages([])).toEqual([])
})

test('goal: contents of exactly the types that are measured, as long as their pages', () => {
  for (const bad of [
    region({ contents: null }),
    region({ type: 'zero' }),
    region({ type: 'cpuid', contents: pageOf(0), pageCount: 1 }),
    region({ pageCount: 0, contents: new Uint8Array(0) }),
    region({ type: 'secrets', pageCount: 0, contents: null }),
  ])
    expect(() => launchPages([bad])).toThrow(new Malformed('launch: contents of it'))
  for (const size of [0, 4096, 3 * 4096 - 1, 3 * 4096 + 1, 4 * 4096])
    expect(() => launchPages([region({ contents: new Uint8Array(size) })])).toThrow(
      new Malformed('launch: length of it'),
    )
})

test('goal: 131072 pages (512 MiB) at most, all together', () => {
  const zeros = (pageCount: number) => region({ type: 'zero', pageCount, contents: null })
  expect(launchPages([zeros(131_072)]).length).toBe(131_072)
  expect(() => launchPages([zeros(131_073)])).toThrow('launch: 131073 pages, more than 131072')
  expect(() => launchPages([zeros(131_072), zeros(1)])).toThrow('launch: 131073 pages, more than 131072')
})

test('goal: firmware ends at 4 GiB', () => {
  expect(firmwareRegion(three)).toEqual({
    ...{ name: 'firmware', type: 'normal', gpa: 0xffff_d000n, pageCount: 3, contents: three },
  })
  expect(() => firmwareRegion(three.subarray(1))).toThrow('firmware: 12287 bytes')
})
