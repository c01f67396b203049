import { describe, expect, test } from 'bun:test'
import { CPUID_RANGES, PRODUCTS, productOfCpuid } from '../../../src/attest/amd/product.ts'
import { decodeTcb, type RawTcb } from '../../../src/attest/amd/tcb.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  hasBit,
  KEY_BITS,
  keyInfoNames,
  PLATFORM_BITS,
  POLICY_BITS,
  platformNames,
  policyNames,
} from '../../../src/attest/report/bits.ts'
import { findReport, HCL_FIELDS, hclSizeBytesMax } from '../../../src/attest/report/form.ts'
import { identifyReport } from '../../../src/attest/report/identify.ts'
import {
  decodeReport,
  encodeReport,
  FIELDS,
  isReservedZero,
  reportSignedBytes,
  reportSizeBytes,
  reservedRanges,
} from '../../../src/attest/report/report.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { type ExpectedTcb, expectedReports, readReport } from '../../rigs/attest/report-vectors.ts'

const milan = await readReport('milan-v3.bin')
const genoaV5 = await readReport('genoa-v5.bin')

/** A copy with some bytes replaced. */
function patched(
  bytes: Uint8Array,
  ...patches: readonly (readonly [offset: number, ...bytes: number[]])[]
): Uint8Array {
  const copy = Uint8Array.from(bytes)
  for (const [offset, ...values] of patches) copy.set(values, offset)
  return copy
}

describe('FIELDS', () => {
  // Goal: the table covers the 1184 bytes in order, without gap or overlap, and so does the table of an HCL report.
  test('have no gap', () => {
    for (const [table, size] of [
      [FIELDS, reportSizeBytes],
      [HCL_FIELDS, 0x4d4],
    ] as const) {
      let end = 0
      for (const [offset, sizeBytes] of Object.values(table)) {
        expect(offset).toBe(end)
        end = offset + sizeBytes
      }
      expect(end).toBe(size)
    }
  })

  // Goal: the signature begins where the signed part ends.
  test('signed part', () => {
    expect(FIELDS.signatureR[0]).toBe(0x2a0)
    expect(reportSignedBytes(milan)).toEqual(milan.slice(0, 0x2a0))
    expect(() => reportSignedBytes(milan.slice(1))).toThrow(Malformed)
  })

  // Goal: what came with a later version is reserved in an earlier one.
  test('reserved ranges by version', () => {
    const size = (version: 2 | 3 | 4 | 5) => reservedRanges(version).reduce((sum, [, sizeBytes]) => sum + sizeBytes, 0)
    expect([size(2), size(3), size(4), size(5)]).toEqual([547 + 19, 547 + 16, 547 + 16, 547])
  })
})

describe.each(expectedReports)('$report', expected => {
  const tcb = ({ fmc, bl, tee, snp, ucode }: ExpectedTcb) => ({
    fmc: fmc ?? null,
    bootloader: bl,
    tee,
    snp,
    microcode: ucode,
  })
  const leHex = (value: bigint | undefined) => toHex(new Uint8Array(new BigUint64Array([value ?? 0n]).buffer))

  // Goal: every field agrees with an independent decoder.
  test('decodes field by field', async () => {
    const report = decodeReport(await readReport(expected.report))
    const policy = policyNames(report.policy)
    const key = keyInfoNames(report.keyInfo)
    const ofProduct = (raw: RawTcb) => decodeTcb(raw, expected.product)
    expect({
      signer: report.signer.toUpperCase(),
      report_version: report.version,
      fms: report.cpuid === null ? [0, 0, 0] : [report.cpuid.family, report.cpuid.model, report.cpuid.stepping],
      policy: `0x${report.policy.toString(16)}`,
      debug: policy.names.includes('debug'),
      migrate_ma: policy.names.includes('migrate'),
      smt_allowed: policy.names.includes('smt'),
      single_socket: policy.names.includes('singleSocket'),
      vmpl: report.vmpl,
      platform_info: `0x${report.platformInfo.toString(16)}`,
      mask_chip_key: key.names.includes('maskChipKey'),
      author_key_en: key.names.includes('authorKeyEnabled'),
      measurement: toHex(report.measurement),
      report_data: toHex(report.reportData),
      host_data: toHex(report.hostData),
      current_tcb: ofProduct(report.rawTcb.current),
      reported_tcb: ofProduct(report.rawTcb.reported),
      committed_tcb: ofProduct(report.rawTcb.committed),
      launch_tcb: ofProduct(report.rawTcb.launch),
      launch_mit_vector: leHex(report.mitigation?.launch),
      current_mit_vector: leHex(report.mitigation?.current),
    }).toEqual({
      signer: expected.signer,
      report_version: expected.report_version,
      fms: expected.fms.map(Number),
      policy: expected.policy,
      debug: expected.debug,
      migrate_ma: expected.migrate_ma,
      smt_allowed: expected.smt_allowed,
      single_socket: expected.single_socket,
      vmpl: expected.vmpl,
      platform_info: expected.platform_info,
      mask_chip_key: expected.mask_chip_key,
      author_key_en: expected.author_key_en,
      measurement: expected.measurement,
      report_data: expected.report_data,
      host_data: expected.host_data,
      current_tcb: tcb(expected.current_tcb),
      reported_tcb: tcb(expected.reported_tcb),
      committed_tcb: tcb(expected.committed_tcb),
      launch_tcb: tcb(expected.launch_tcb),
      launch_mit_vector: expected.launch_mit_vector,
      current_mit_vector: expected.current_mit_vector,
    })
    expect([policy.unknown, key.unknown, platformNames(report.platformInfo).unknown]).toEqual([[], [], []])
    expect([report.mitigation === null, report.cpuid === null]).toEqual([report.version < 5, report.version < 3])
    expect([isReservedZero(report), report.signatureAlgo]).toEqual([true, 1])
  })

  // Goal: a report comes back byte for byte.
  test('re-encodes', async () => {
    const bytes = await readReport(expected.report)
    expect(encodeReport(decodeReport(bytes))).toEqual(bytes)
  })

  // Goal: the product is read from the CPUID, never from the wishes of the caller; version 2 needs a name.
  test('product', async () => {
    const report = decodeReport(await readReport(expected.report))
    const unnamed = identifyReport(report, null)
    if (report.version === 2) expect(unnamed.kind).toBe('unknown')
    else expect(unnamed).toMatchObject({ kind: 'known', product: expected.product })
    for (const named of PRODUCTS) {
      const isAccepted = report.version === 2 || named === expected.product
      expect(identifyReport(report, named).kind).toBe(isAccepted ? 'known' : 'unknown')
    }
  })
})

describe('decodeReport', () => {
  // Goal: any other length is refused.
  test.each([0, 1, 1183, 1185, 2048, 2368])('%d bytes', size => {
    expect(() => decodeReport(new Uint8Array(size).fill(2, 0, 1))).toThrow(Malformed)
  })

  // Goal: versions 2 to 5 are read and no other.
  test('versions', () => {
    const accepted = Array.from({ length: 256 }, (_, version) => version).filter(version => {
      try {
        return decodeReport(patched(milan, [0, version])).version === version
      } catch {
        return false
      }
    })
    expect(accepted).toEqual([2, 3, 4, 5])
    expect(() => decodeReport(patched(milan, [1, 1]))).toThrow('SNP report: version 259 is not 2 to 5')
  })

  // Goal: a signing key that the specification reserves is refused.
  test('signing keys', () => {
    const signer = (key: number) => decodeReport(patched(milan, [FIELDS.keyInfo[0], (key << 2) | 3])).signer
    expect([signer(0), signer(1), signer(7)]).toEqual(['vcek', 'vlek', 'none'])
    for (const key of [2, 3, 4, 5, 6]) expect(() => signer(key)).toThrow(Malformed)
  })

  // Goal: what is returned does not change with the caller's bytes.
  test('copies', () => {
    const bytes = Uint8Array.from(milan)
    const report = decodeReport(bytes)
    bytes.fill(0)
    expect(encodeReport(report)).toEqual(milan)
  })

  // Goal: reserved bytes are kept, and seen by the check; so are fields that the version does not have.
  test('reserved bytes', () => {
    const offsets = reservedRanges(2).flatMap(([offset, size]) => [offset, offset + size - 1])
    expect(offsets).toContain(FIELDS.cpuidFamily[0])
    expect(offsets).toContain(FIELDS.launchMitigation[0])
    for (const offset of offsets) {
      const bytes = patched(milan, [0, 2], [0x188, 0, 0, 0])
      expect(isReservedZero(decodeReport(bytes))).toBe(true)
      const report = decodeReport(patched(bytes, [offset, 0x80]))
      expect([isReservedZero(report), report.cpuid, report.mitigation]).toEqual([false, null, null])
      expect(encodeReport(report)[offset]).toBe(0x80)
    }
  })

  // Goal: fields that no vector fills are where the specification has them.
  test('offsets', () => {
    const names = ['familyId', 'imageId', 'idKeyDigest', 'authorKeyDigest', 'reportId', 'reportIdMa', 'chipId'] as const
    expect(names.map(name => FIELDS[name][0])).toEqual([0x10, 0x20, 0xe0, 0x110, 0x140, 0x160, 0x1a0])
    const versions = ['currentBuild', 'currentMinor', 'currentMajor', 'committedBuild', 'committedMinor'] as const
    expect(versions.map(name => FIELDS[name][0])).toEqual([0x1e8, 0x1e9, 0x1ea, 0x1ec, 0x1ed])
    expect([FIELDS.guestSvn[0], FIELDS.launchMitigation[0], FIELDS.currentMitigation[0]]).toEqual([4, 0x1f8, 0x200])
  })

  // Goal: fields that no vector fills come from their own offsets: each is marked with a byte of its own.
  test('marked fields', () => {
    const marks = Object.entries(FIELDS).map(([, [offset]], at) => [offset, at] as const)
    const at = Object.fromEntries(Object.keys(FIELDS).map((name, index) => [name, index])) as Record<string, number>
    const report = decodeReport(patched(new Uint8Array(reportSizeBytes), ...marks, [0, 5], [FIELDS.keyInfo[0], 0]))
    expect(report.guestSvn).toBe(at.guestSvn ?? -1)
    expect(report.current).toEqual({
      build: at.currentBuild ?? -1,
      minor: at.currentMinor ?? -1,
      major: at.currentMajor ?? -1,
    })
    expect(report.committed).toEqual({
      build: at.committedBuild ?? -1,
      minor: at.committedMinor ?? -1,
      major: at.committedMajor ?? -1,
    })
    for (const name of [
      'familyId',
      'imageId',
      'idKeyDigest',
      'authorKeyDigest',
      'reportId',
      'reportIdMa',
      'chipId',
    ] as const)
      expect([report[name][0], report[name].length]).toEqual([at[name], FIELDS[name][1]])
    expect([report.signature.r[0], report.signature.s[0]]).toEqual([at.signatureR, at.signatureS])
    expect(report.mitigation).toEqual({
      launch: BigInt(at.launchMitigation ?? -1),
      current: BigInt(at.currentMitigation ?? -1),
    })
  })
})

describe('encodeReport', () => {
  const report = decodeReport(genoaV5)

  // Goal: a value that does not fit its field, or that contradicts another one, is refused.
  test.each([
    ['guestSvn too large', { guestSvn: 2 ** 32 }],
    ['guestSvn negative', { guestSvn: -1 }],
    ['guestSvn broken', { guestSvn: 0.5 }],
    ['guestSvn NaN', { guestSvn: Number.NaN }],
    ['policy too large', { policy: 1n << 64n }],
    ['policy negative', { policy: -1n }],
    ['reportData short', { reportData: new Uint8Array(63) }],
    ['measurement long', { measurement: new Uint8Array(49) }],
    ['signature short', { signature: { r: new Uint8Array(72), s: new Uint8Array(48) } }],
    ['signer against keyInfo', { signer: 'vlek' }],
    ['keyInfo reserved', { keyInfo: 8 }],
    ['no CPUID in version 5', { cpuid: null }],
    ['no mitigation in version 5', { mitigation: null }],
    ['mitigation in version 4', { version: 4 }],
    ['reserved short', { reserved: new Uint8Array(546) }],
    ['reserved long', { reserved: new Uint8Array(548) }],
    ['CPUID too large', { cpuid: { family: 256, model: 0, stepping: 0 } }],
  ] as const)('%s', (_, change) => {
    expect(() => encodeReport({ ...report, ...change })).toThrow(Malformed)
  })

  // Goal: each byte string of a report lands in its own place.
  test('changes', () => {
    const bytes = encodeReport({ ...report, hostData: new Uint8Array(32).fill(7) })
    expect(bytes).toEqual(patched(genoaV5, [0xc0, ...new Uint8Array(32).fill(7)]))
  })
})

describe('productOfCpuid', () => {
  // Goal: over every family and model the products are exactly those of the table, and all others are unknown.
  test('every family and model', () => {
    const counts: Record<string, number> = {}
    for (let family = 0; family < 256; family += 1) {
      for (let model = 0; model < 256; model += 1) {
        const product = productOfCpuid({ family, model, stepping: 1 }) ?? 'unknown'
        counts[product] = (counts[product] ?? 0) + 1
      }
    }
    expect(counts).toEqual({ milan: 16, genoa: 32, turin: 18, unknown: 65_536 - 66 })
    expect(CPUID_RANGES.map(range => range.product)).toEqual(['milan', 'genoa', 'genoa', 'turin'])
  })

  // Goal: the edges of each range.
  test.each([
    [0x19, 0x0f, 'milan'],
    [0x19, 0x10, 'genoa'],
    [0x19, 0x1f, 'genoa'],
    [0x19, 0x20, null],
    [0x19, 0x9f, null],
    [0x19, 0xa0, 'genoa'],
    [0x19, 0xaf, 'genoa'],
    [0x19, 0xb0, null],
    [0x1a, 0x00, 'turin'],
    [0x1a, 0x11, 'turin'],
    [0x1a, 0x12, null],
    [0x17, 0x31, null],
    [0, 0, null],
  ] as const)('%d/%d', (family, model, product) => {
    expect(productOfCpuid({ family, model, stepping: 0 })).toBe(product)
  })

  // Goal: an unknown CPUID stays unknown, even when a product is named.
  test('fails closed', () => {
    const report = decodeReport(patched(milan, [0x188, 0x1b]))
    for (const named of [null, ...PRODUCTS]) expect(identifyReport(report, named).kind).toBe('unknown')
  })
})

describe('findReport', () => {
  // Goal: a plain report is found as it is.
  test('plain', () => {
    expect(findReport(milan)).toEqual({ form: 'plain', report: milan })
  })

  // Goal: both Azure vectors hold a report at byte 32.
  test('HCL', async () => {
    const paravisor: { hcl_report: string } = await Bun.file(
      `${import.meta.dir}/../../vectors/tpm/paravisor-bound.json`,
    ).json()
    const versions = [await readReport('wrong-chip.hcl.bin'), Buffer.from(paravisor.hcl_report, 'base64url')].map(
      hcl => {
        const found = findReport(hcl)
        expect(found.form).toBe('azure-hcl')
        expect(Buffer.compare(found.report, hcl.subarray(32, 32 + 1184))).toBe(0)
        expect(encodeReport(decodeReport(found.report))).toEqual(found.report)
        return decodeReport(found.report).version
      },
    )
    expect(versions).toEqual([2, 3])
  })

  // Goal: other lengths and other paravisor reports are refused.
  test('neither', async () => {
    const hcl = await readReport('wrong-chip.hcl.bin')
    for (const size of [0, 1, 1183, 1185, 2048]) expect(() => findReport(new Uint8Array(size))).toThrow(Malformed)
    for (const size of [32, 1216, 0x4d3, 1818]) expect(() => findReport(hcl.slice(0, size))).toThrow(Malformed)
    expect(findReport(hcl.slice(0, 1819)).form).toBe('azure-hcl')
    expect(() => findReport(patched(hcl, [0, 0]))).toThrow('neither a report')
    expect(() => findReport(patched(hcl, [HCL_FIELDS.reportType[0], 4]))).toThrow('report type 4 is not SNP')
    expect(() => findReport(patched(hcl, [HCL_FIELDS.reportSize[0], 0x01, 0x08]))).toThrow('size 2049 does not fit')
    expect(() => findReport(patched(hcl, [HCL_FIELDS.reportSize[0], 0, 0, 0, 0x80]))).toThrow('size 2147483648')
    expect(() => findReport(patched(hcl, [HCL_FIELDS.reportSize[0], 0, 0]))).toThrow('size 0 does not fit')
    const huge = new Uint8Array(hclSizeBytesMax + 1)
    huge.set(hcl)
    expect(() => findReport(huge)).toThrow('are more than')
  })
})

describe('names of bits', () => {
  // Goal: each named bit gives its name and nothing else, and each other bit is reported as unknown; no bit is lost.
  test.each([
    ['policy', POLICY_BITS, policyNames, 16, 64, 10],
    ['platform_info', PLATFORM_BITS, platformNames, 0, 64, 8],
    ['key_info', KEY_BITS, (value: bigint) => keyInfoNames(Number(value)), 5, 32, 2],
  ] as const)('%s', (_, table, namesOf, unknownFrom, bitCount, nameCount) => {
    const named = new Map<number, string>(Object.entries(table).map(([name, bit]) => [bit, name]))
    expect(named.size).toBe(nameCount)
    for (const [bit, name] of named) expect(namesOf(1n << BigInt(bit))).toMatchObject({ names: [name], unknown: [] })
    for (let bit: number = unknownFrom; bit < bitCount; bit += 1) {
      if (!named.has(bit)) expect(namesOf(1n << BigInt(bit))).toMatchObject({ names: [], unknown: [bit] })
    }
    expect(namesOf(0n)).toMatchObject({ names: [], unknown: [] })
  })

  // Goal: the ABI version is apart from the bits, and so is the signing key.
  test('what is no bit', () => {
    expect(policyNames(0x3_011fn)).toEqual({ names: ['smt', 'reservedOne'], unknown: [], abi: { major: 1, minor: 31 } })
    expect(keyInfoNames(0b00111)).toEqual({ names: ['authorKeyEnabled', 'maskChipKey'], unknown: [], signer: 'vlek' })
    expect(keyInfoNames(0b11100)).toEqual({ names: [], unknown: [], signer: 'none' })
    expect(keyInfoNames(0b01000)).toEqual({ names: [], unknown: [], signer: null })
    expect([hasBit(1n << 63n, 63), hasBit(1n << 63n, 62)]).toEqual([true, false])
  })
})
