// IGVM files: a vector made elsewhere, files of our own, and the digests of both.

import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { ovmfFirmware } from '../../../scripts/rigs/launch/igvm-firmware.ts'
import { buildIgvm, type IgvmBuild } from '../../../src/attest/igvm/build.ts'
import { describeIgvm } from '../../../src/attest/igvm/describe.ts'
import { crc32, IGVM_FIXED_HEADER, IGVM_HEADER_PREFIX, readIgvm, writeIgvm } from '../../../src/attest/igvm/file.ts'
import { IGVM_LAYOUTS, type IgvmHeader } from '../../../src/attest/igvm/headers.ts'
import { igvmRegions, measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { launchDigest, measureRegions } from '../../../src/attest/launch/digest.ts'
import { readIdBlock, writeIdBlock } from '../../../src/attest/launch/id-block.ts'
import { signIdBlock } from '../../../src/attest/launch/id-block-sign.ts'
import { kernelHashesOf } from '../../../src/attest/launch/kernel-hashes.ts'
import type { OvmfMetadata, OvmfSection } from '../../../src/attest/launch/ovmf.ts'
import { changeVmsa } from '../../../src/attest/launch/vmsa-layout.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const read = (name: string) => new Uint8Array(readFileSync(`${import.meta.dir}/../../vectors/${name}`))
const vector = read('igvm/bz-x64-vtl0-encrypted.igvm')
const vectorDigest = fromUtf8(read('igvm/bz-x64-vtl0-encrypted.ld')).trim()
const amdSev = read('ovmf/ovmf_AmdSev_suffix.bin')
const files = { kernel: utf8('a kernel'), initrd: utf8('an initrd'), cmdline: 'root=/dev/dm-0 roothash=00ff' }
const policy = 0x30000n

const buildOf = async (change: Partial<IgvmBuild> = {}): Promise<IgvmBuild> => ({
  firmware: amdSev,
  kernelHashes: await kernelHashesOf(files),
  vcpus: 2,
  vcpuType: 'EPYC-Milan',
  features: 1n,
  policy,
  ...change,
})
const digestOf = async (bytes: Uint8Array, profile: 'qemu-kvm' | 'directive-order' = 'qemu-kvm') =>
  toHex((await measureIgvm(bytes, { profile })).digest)

describe('the vector', () => {
  // Goal: it reads, writes to the same bytes, and measures to the digest of its maker.
  test('round trip and digest', async () => {
    const file = readIgvm(vector)
    expect(writeIgvm(file)).toEqual(vector)
    expect(await digestOf(vector, 'directive-order')).toBe(vectorDigest)
    expect(vectorDigest).toStartWith('59d51108')
    const described = await describeIgvm(vector, { expected: 'any' })
    expect(described).toMatchObject({
      platforms: [{ name: 'sevSnp', compatibilityMask: 1 }],
      policy: 0x3001fn,
      vmsaCount: 1,
      headers: { pageData: 371, parameterArea: 1, parameter: 2, parameterInsert: 1, vpContext: 1, snpIdBlock: 1 },
      firmware: null,
      kernelHashes: null,
    })
    expect(toHex(described.idBlockMeasurement ?? vector)).toBe(vectorDigest)
  })

  // Goal: QEMU would refuse its VMSA address; we give no digest for a launch that cannot be.
  test('has no digest under QEMU', async () => {
    await expect(measureIgvm(vector, { profile: 'qemu-kvm' })).rejects.toThrow('where KVM keeps none')
    const { digests } = await describeIgvm(vector, { expected: 'any' })
    expect(digests['directive-order'].kind).toBe('digest')
    expect(digests['qemu-kvm']).toMatchObject({ kind: 'none', reason: expect.stringContaining('KVM') })
  })

  // Goal: the checksum covers the headers: no byte of them changes unnoticed.
  test('is protected by its checksum', () => {
    const end = 24 + new DataView(vector.buffer, vector.byteOffset).getUint32(12, true)
    for (let at = 0; at < end; at += 7) {
      const changed = vector.slice()
      changed[at] = (changed[at] ?? 0) ^ 0x10
      expect(() => readIgvm(changed)).toThrow(Malformed)
    }
    expect(crc32(utf8('123456789'))).toBe(0xcbf43926)
  })
})

describe('our own files', () => {
  // Goal: the measurer of IGVM files and the predictor of launches, which go different ways, agree on every firmware.
  test('the digest that launchDigest predicts, over made firmware', async () => {
    const kinds = ['secMemory', 'secrets', 'cpuid', 'svsmCallingArea'] as const
    const section = fc.record({ kind: fc.constantFrom(...kinds), pages: fc.integer({ min: 1, max: 5 }) })
    const property = fc.asyncProperty(
      fc.array(section, { maxLength: 6 }),
      fc.nat(6),
      fc.integer({ min: 1, max: 6 }),
      fc.integer({ min: 1, max: 3 }),
      fc.boolean(),
      fc.nat(255),
      async (parts, hashesAt, vcpus, pages, hasKernel, noise) => {
        const firmware = ovmfFirmware(metadataOf(parts, hashesAt), pages, at => (at * noise) & 0xff)
        const kernelHashes = hasKernel ? await kernelHashesOf(files) : null
        const bytes = await buildIgvm(await buildOf({ firmware, vcpus, kernelHashes }))
        const launch = { firmware, ...(hasKernel ? files : {}), vcpus, features: 1n, profile: 'qemu-kvm' } as const
        const predicted = await launchDigest({ ...launch, vcpuType: 'EPYC-Milan', vehicle: 'igvm' })
        expect(await digestOf(bytes)).toBe(toHex(predicted.digest))
        expect(await digestOf(bytes, 'directive-order')).toBe(toHex(predicted.digest))
        expect(writeIgvm(readIgvm(bytes))).toEqual(bytes)
      },
    )
    await fc.assert(property, { numRuns: 60 })
  }, 60_000)

  // Goal: what the file loads is what a reference tool measured: with its pages without data as zero pages, as by
  // -bios, the digests are those.
  test('the digests of a reference tool', async () => {
    const empty = new Uint8Array(0)
    const expected = JSON.parse(fromUtf8(read('launch-digest/expected-digests.json')))
    for (const item of expected) {
      const cmdline = item.cmdline ?? ''
      const bytes = await buildIgvm({
        firmware: read(`ovmf/${item.ovmf}`),
        kernelHashes: item.kernel === null ? null : await kernelHashesOf({ kernel: empty, initrd: empty, cmdline }),
        vcpus: item.vcpus,
        vcpuType: Number(item.vcpu_sig),
        features: BigInt(item.guest_features),
        policy,
      })
      const file = readIgvm(bytes)
      const bare = new Set(
        file.headers.flatMap(header => (header.kind === 'pageData' && header.data === null ? [header.gpa] : [])),
      )
      const regions = igvmRegions(file, 'qemu-kvm').map(region =>
        region.type === 'normal' && bare.has(region.gpa)
          ? { ...region, type: 'zero' as const, contents: null }
          : region,
      )
      expect(toHex((await measureRegions(regions)).digest)).toBe(item.expected)
      // QEMU adds such pages as normal ones, so that the same image has another digest by each way.
      expect(await digestOf(bytes)).not.toBe(item.expected)
    }
  })

  // Goal: a verifier with the files sees that the digest commits to them, and that it does not commit to others.
  test('the kernel that they commit to', async () => {
    const bytes = await buildIgvm(await buildOf())
    const described = await describeIgvm(bytes, { expected: files })
    expect(described.checks.map(({ name, outcome }) => [name, outcome])).toEqual([
      ['igvm-layout', 'pass'],
      ['igvm-kernel', 'pass'],
      ['igvm-initrd', 'pass'],
      ['igvm-cmdline', 'pass'],
    ])
    expect(described).toMatchObject({ vmsaCount: 2, policy, idBlockMeasurement: null })
    expect(described.firmware?.sizeBytes).toBe(amdSev.length)
    expect(described.kernelHashes).toEqual(await kernelHashesOf(files))
    const outcomes = async (expected: Parameters<typeof describeIgvm>[1]['expected']) =>
      (await describeIgvm(bytes, { expected })).checks.slice(1).map(({ outcome }) => outcome)
    expect(await outcomes({ ...files, cmdline: `${files.cmdline} ` })).toEqual(['pass', 'pass', 'fail'])
    expect(await outcomes({ ...files, kernel: utf8('a kernem') })).toEqual(['fail', 'pass', 'pass'])
    expect(await outcomes({ ...files, initrd: 'any' })).toEqual(['pass', 'not-checked', 'pass'])
    expect(await outcomes('any')).toEqual(['not-checked', 'not-checked', 'not-checked'])
    const without = await buildIgvm(await buildOf({ kernelHashes: null }))
    const bare = await describeIgvm(without, { expected: files })
    expect(bare.checks.map(({ outcome }) => outcome)).toEqual(['pass', 'fail', 'fail', 'fail'])
  })

  // Goal: honest firmware with honest hashes says nothing when the processors start elsewhere, or when more is loaded
  // beside it.
  test('a layout that goes around the firmware', async () => {
    const { headers } = readIgvm(await buildIgvm(await buildOf()))
    const layout = async (changed: readonly IgvmHeader[]) => {
      const { checks } = await describeIgvm(writeIgvm({ headers: changed }), { expected: files })
      return [checks[0]?.name, checks[0]?.outcome, checks.slice(1).every(({ outcome }) => outcome === 'pass')]
    }
    const mask = { compatibilityMask: 1 }
    const extra = {
      gpa: 0x1000n,
      isUnmeasured: false,
      isShared: false,
      dataType: 'normal',
      data: new Uint8Array(4096).fill(0x90),
    } as const
    const beside: IgvmHeader = { kind: 'pageData', ...mask, ...extra }
    const last = headers.findLastIndex(({ kind }) => kind === 'pageData')
    const redirected = headers.map(header =>
      header.kind === 'vpContext' && header.state !== null && header.vpIndex === 0
        ? { ...header, state: changeVmsa(header.state, { rip: 0x1000n }) }
        : header,
    )
    expect(await layout(headers)).toEqual(['igvm-layout', 'pass', true])
    for (const changed of [
      redirected,
      headers.toSpliced(last + 1, 0, beside),
      headers.toSpliced(2, 0, beside),
      headers.filter(header => header.kind !== 'pageData' || header.dataType !== 'secrets'),
      headers.filter(({ kind }) => kind !== 'vpContext'),
    ])
      expect(await layout(changed)).toEqual(['igvm-layout', 'fail', true])
  })

  // Goal: a file that shows a verifier one page and the hardware another has no digest and no description.
  test('a page twice', async () => {
    const { headers } = readIgvm(await buildIgvm(await buildOf()))
    const page = headers.find(header => header.kind === 'pageData' && header.data !== null)
    const twice = writeIgvm({ headers: [...headers, page as IgvmHeader] })
    for (const profile of ['qemu-kvm', 'directive-order'] as const)
      await expect(measureIgvm(twice, { profile })).rejects.toBeInstanceOf(Malformed)
    await expect(describeIgvm(twice, { expected: 'any' })).rejects.toBeInstanceOf(Malformed)
    const insert = headers.map(header =>
      header === page && header.kind === 'pageData' ? { ...header, isUnmeasured: true } : header,
    )
    const { firmware, kernelHashes } = await describeIgvm(writeIgvm({ headers: insert }), { expected: 'any' })
    expect([firmware, kernelHashes]).toEqual([null, null])
  })

  // Goal: an ID block goes in only when it names this digest and this policy, and what it holds is what was signed.
  test('with an ID block', async () => {
    const build = await buildOf()
    const measurement = (await measureIgvm(await buildIgvm(build), { profile: 'qemu-kvm' })).digest
    const ids = { familyId: new Uint8Array(16).fill(1), imageId: new Uint8Array(16).fill(2), guestSvn: 3 }
    const generate = () => crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, false, ['sign', 'verify'])
    const keys = { idKey: await generate(), authorKey: await generate() }
    const block = { measurement, ...ids, policy }
    const { auth, idAuth, idBlock } = await signIdBlock(block, keys)
    const bytes = await buildIgvm({ ...build, idBlock: { block, auth } })
    expect(await digestOf(bytes)).toBe(toHex(measurement))
    const header = readIgvm(bytes).headers.at(-1)
    if (header?.kind !== 'snpIdBlock') throw new Error('no ID block')
    expect(writeIdBlock({ ...header, policy })).toEqual(idBlock)
    // As QEMU puts them into ID_AUTH: curve, X, Y; R, S.
    expect(header.idSignature).toEqual(idAuth.slice(0x40, 0x40 + 144))
    expect(header.idKeyPoint).toEqual(idAuth.slice(0x244, 0x244 + 144))
    expect(header.authorSignature).toEqual(idAuth.slice(0x680, 0x680 + 144))
    expect(header.authorKeyPoint).toEqual(idAuth.slice(0x884, 0x884 + 144))
    expect(header).toMatchObject({ idKeyCurve: 2, authorKeyCurve: 2, authorKeyEnabled: 1 })
    expect(readIdBlock(idBlock)).toEqual(block)
    for (const bad of [
      { ...block, policy: 0x70000n },
      { ...block, measurement: new Uint8Array(48) },
    ])
      await expect(buildIgvm({ ...build, idBlock: { block: bad, auth } })).rejects.toBeInstanceOf(Malformed)
  })
})

describe('the order of QEMU', () => {
  const mask = { compatibilityMask: 1 }
  const head: IgvmHeader[] = [
    { kind: 'supportedPlatform', ...mask, highestVtl: 0, platform: 2, platformVersion: 1, sharedGpaBoundary: 0n },
  ]
  const page = (at: number, data: Uint8Array | null = new Uint8Array(4096).fill(at)): IgvmHeader => ({
    kind: 'pageData',
    ...mask,
    gpa: BigInt(at) * 4096n,
    isUnmeasured: false,
    isShared: false,
    dataType: 'normal',
    data,
  })
  const area: IgvmHeader = { kind: 'parameterArea', index: 7, sizeBytes: 8192, data: null }
  const insert: IgvmHeader = { kind: 'parameterInsert', ...mask, index: 7, gpa: 0x90000n }
  const order = (headers: readonly IgvmHeader[], profile: 'qemu-kvm' | 'directive-order' = 'qemu-kvm') =>
    igvmRegions(readIgvm(writeIgvm({ headers: [...head, ...headers] })), profile).map(({ gpa }) => Number(gpa) / 4096)

  // Goal: a parameter area goes before the run of pages that is still open, and after the runs that have ended.
  test('parameter areas and runs', () => {
    const headers = [area, page(1), page(2), page(8), insert, page(9)]
    expect(order(headers, 'directive-order')).toEqual([1, 2, 8, 0x90, 9])
    expect(order(headers)).toEqual([1, 2, 0x90, 8, 9])
    expect(order([area, page(1), insert])).toEqual([0x90, 1])
    // Pages with and without data are different runs, though they touch.
    expect(order([area, page(1), page(2, null), insert])).toEqual([1, 0x90, 2])
    // A header between two pages ends the run.
    expect(order([page(1), area, page(2), insert])).toEqual([1, 0x90, 2])
  })

  // Goal: VMSAs come last, in the order of processors, with what KVM sets; a gap among them has no digest.
  test('contexts', async () => {
    const state = changeVmsa(new Uint8Array(4096), { sevFeatures: 1n, cr4: 0x20n })
    const context = (vpIndex: number, gpa = 0xfffffffff000n): IgvmHeader => ({
      kind: 'vpContext',
      ...mask,
      gpa,
      vpIndex,
      state,
      padding: new Uint8Array(4),
    })
    const regions = (headers: IgvmHeader[]) =>
      igvmRegions(readIgvm(writeIgvm({ headers: [...head, ...headers] })), 'qemu-kvm')
    const all = regions([context(1), context(0), page(3)])
    expect(all.map(({ name }) => name)).toEqual(['page normal', 'vmsa 0', 'vmsa 1'])
    expect(all[1]?.contents).toEqual(changeVmsa(state, { cr4: 0x60n, rflags: 2n }))
    expect(() => regions([context(1)])).toThrow(Malformed)
    expect(() => regions([context(0, 0x1000n)])).toThrow(Malformed)
    expect(() => regions([{ kind: 'errorRange', ...mask, gpa: 0n, sizeBytes: 4096 }, context(0)])).toThrow(Malformed)
  })

  // Goal: files that no loader may load are refused: every rule between headers.
  test('refusals', () => {
    const refused: IgvmHeader[][] = [
      [...head, ...head],
      [page(1)],
      [...head, page(1), ...head],
      [...head, { ...page(1), compatibilityMask: 2 } as IgvmHeader],
      [...head, { ...page(1), compatibilityMask: 0 } as IgvmHeader],
      [...head, { ...page(1), gpa: 1n } as IgvmHeader],
      [...head, area, area],
      [...head, insert],
      [...head, area, insert, insert],
      [...head, { kind: 'parameter', parameter: 'vpCount', index: 7, byteOffset: 0 }],
      [...head, area, { kind: 'parameter', parameter: 'vpCount', index: 7, byteOffset: 8192 }],
      [...head, { ...area, sizeBytes: 4097 } as IgvmHeader],
      [...head, { ...area, sizeBytes: 0 } as IgvmHeader],
      [{ ...head[0], platform: 9 } as IgvmHeader],
      [{ ...head[0], compatibilityMask: 3 } as IgvmHeader],
      [...head, { kind: 'optional', type: 0x80000301, body: new Uint8Array(0) }],
    ]
    for (const headers of refused) expect(() => writeIgvm({ headers })).toThrow(Malformed)
    expect(() => writeIgvm({ headers: [...head, area, insert, page(1)] })).not.toThrow()
  })

  // Goal: a type that nobody knows stops the file, unless it says that it may be ignored; it is then kept apart, and
  // QEMU refuses it.
  test('unknown headers', () => {
    const bytes = writeIgvm({ headers: [...head, area, page(1)] })
    const areaAt = 24 + 24
    for (const type of [0x306, 0x3ff, 0x250, 0]) expect(() => readIgvm(retyped(bytes, areaAt, type))).toThrow(Malformed)
    const optional = readIgvm(retyped(bytes, areaAt, 0x80000301))
    expect(optional.headers[1]).toMatchObject({ kind: 'optional', type: 0x80000301 })
    expect(igvmRegions(optional, 'directive-order')).toHaveLength(1)
    expect(() => igvmRegions(optional, 'qemu-kvm')).toThrow(Malformed)
    // Also one that may be ignored stays in its section.
    expect(() => readIgvm(retyped(bytes, areaAt + 24, 0x80000001))).toThrow(Malformed)
    expect(() => readIgvm(retyped(bytes, areaAt + 24, 0x80000201))).toThrow(Malformed)
  })
})

// Goal: the layouts have no gap and no overlap.
test('layouts', () => {
  for (const layout of [IGVM_FIXED_HEADER, IGVM_HEADER_PREFIX, ...Object.values(IGVM_LAYOUTS)]) {
    let end = 0
    for (const [offset, sizeBytes] of Object.values<readonly [number, number]>(layout)) {
      expect(offset).toBe(end)
      end += sizeBytes
    }
  }
})

// Goal: hostile files are refused with Malformed and nothing else, also when their checksum is right.
test('hostile input', async () => {
  const own = await buildIgvm(await buildOf({ vcpus: 1 }))
  const onlyMalformed = async (input: Uint8Array) => {
    try {
      await describeIgvm(input, { expected: 'any' })
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
    }
  }
  await fuzz({ samples: [vector, own], count: 200 }, onlyMalformed)
  const headers = own.subarray(0, 24 + new DataView(own.buffer).getUint32(12, true))
  await fuzz({ samples: [headers], count: 2000, sizeBytesMax: 512 }, async mutated => {
    if (mutated.length < 24) return
    await onlyMalformed(sealed(mutated, own.subarray(headers.length)))
  })
}, 60_000)

/** The file with its sizes and checksum put right, so that the reader goes on to the headers. */
function sealed(headers: Uint8Array, data: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from([...headers, ...data])
  const view = new DataView(bytes.buffer)
  view.setUint32(0, 0x4d564749, true)
  view.setUint32(4, 1, true)
  view.setUint32(8, 24, true)
  view.setUint32(12, headers.length - 24, true)
  view.setUint32(16, bytes.length, true)
  view.setUint32(20, 0, true)
  view.setUint32(20, crc32(bytes.subarray(0, headers.length)), true)
  return bytes
}

function retyped(bytes: Uint8Array, at: number, type: number): Uint8Array {
  const copy = bytes.slice()
  const view = new DataView(copy.buffer)
  view.setUint32(at, type, true)
  const end = 24 + view.getUint32(12, true)
  return sealed(copy.subarray(0, end), copy.subarray(end))
}

/** Sections one after another in low memory, the kernel-hash page among them. */
function metadataOf(parts: readonly { kind: OvmfSection['kind']; pages: number }[], hashesAt: number): OvmfMetadata {
  const all = [...parts]
  all.splice(Math.min(hashesAt, all.length), 0, { kind: 'kernelHashes', pages: 1 })
  let gpa = 0x800000
  const sections = all.map(({ kind, pages }) => {
    const section = { kind, gpa, sizeBytes: pages * 4096 }
    gpa += section.sizeBytes
    return section
  })
  const page = sections.find(({ kind }) => kind === 'kernelHashes')?.gpa ?? 0
  return { sections, kernelHashes: { gpa: page + 0xc00, sizeBytes: 1024 }, resetEip: 0x80b004 }
}
