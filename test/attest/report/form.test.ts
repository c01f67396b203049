// HCL reports: every version of the wrapper, and claims that the SNP report must cover.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { findReport, HCL_FIELDS, hclClaimsCheck, readHclReport } from '../../../src/attest/report/form.ts'
import { decodeReport, FIELDS } from '../../../src/attest/report/report.ts'
import { decodeHclReport, runtimeAttestationKey } from '../../../src/attest/tpm/hcl-report.ts'
import type { Check } from '../../../src/attest/verdict.ts'
import { concat } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'
import { claimsOf, hclReportAs, withField } from '../../rigs/launch/hcl-samples.ts'

const real = await Bun.file(new URL('../../vectors/reports/wrong-chip.hcl.bin', import.meta.url)).bytes()
const versions = [1, 2].flatMap(header => [1, 2].map(data => ({ header, data })))

function claimsCheck(bytes: Uint8Array): Check {
  const found = findReport(bytes)
  if (found.form !== 'azure-hcl') throw new Error('an HCL report is found')
  return hclClaimsCheck(found, decodeReport(found.report).reportData)
}

/**
 * The report's own REPORT_DATA in place of the real one: then AMD's signature does not hold, but the claims' hash can.
 */
function withReportData(bytes: Uint8Array, data: Uint8Array): Uint8Array {
  const copy = bytes.slice()
  copy.set(data, HCL_FIELDS.report[0] + FIELDS.reportData[0])
  return copy
}

describe('each version of the wrapper', () => {
  // Goal: OpenHCL writes header version 2, with request data of version 1 or 2; only the latter has four bytes more
  // before the claims.
  test.each(versions)('header $header, request data $data', version => {
    const bytes = hclReportAs(real, version)
    const [at, size] = claimsOf(real)
    const found = findReport(bytes)
    expect(found).toMatchObject({ form: 'azure-hcl', claims: real.slice(at, at + size) })
    expect(found.report).toEqual(real.slice(0x20, 0x20 + 1184))
    expect(decodeHclReport(bytes)).toEqual({ report: found.report, runtimeData: real.slice(at, at + size) })
    expect(runtimeAttestationKey(decodeHclReport(bytes).runtimeData).type).toBe('rsa')
    expect(claimsCheck(bytes)).toMatchObject({ name: 'hcl-claims', outcome: 'pass' })
  })

  // Goal: a version that says another layout than the bytes have, and versions nobody has written yet, are refused by
  // both readers.
  test('of another layout', () => {
    const refused = [
      { header: 0, data: 1 },
      { header: 3, data: 1 },
      { header: 2, data: 0 },
      { header: 2, data: 3 },
    ].map(version => hclReportAs(real, version))
    const lying = [
      withField(hclReportAs(real, { header: 2, data: 1 }), HCL_FIELDS.dataVersion[0], 2),
      withField(hclReportAs(real, { header: 2, data: 2 }), HCL_FIELDS.dataVersion[0], 1),
      withField(real, HCL_FIELDS.dataSize[0], 24 + claimsOf(real)[1]),
      withField(real, HCL_FIELDS.claimsSize[0], 0xffff_ffff),
      withField(real, HCL_FIELDS.reportSize[0], 0xffff_ffff),
      withField(real, HCL_FIELDS.reportType[0], 4),
      concat(real, Uint8Array.of(1)),
    ]
    for (const bytes of [...refused, ...lying]) {
      expect(() => findReport(bytes)).toThrow(Malformed)
      expect(() => decodeHclReport(bytes)).toThrow(Malformed)
    }
  })

  // Goal: hostile bytes are Malformed and nothing else.
  test('hostile bytes', async () => {
    await fuzz({ samples: versions.map(version => hclReportAs(real, version)), count: 1000 }, bytes => {
      try {
        findReport(bytes)
      } catch (error) {
        if (!(error instanceof Malformed)) throw error
      }
    })
  })
})

describe('claims', () => {
  // Goal: a flipped bit anywhere in the claims fails, in each version.
  test.each(versions)('flipped, header $header, request data $data', version => {
    const bytes = hclReportAs(real, version)
    const at = bytes.length - 64 - claimsOf(real)[1]
    for (let offset = at; offset < bytes.length - 64; offset += 53) {
      const flipped = bytes.map((byte, i) => (i === offset ? byte ^ 1 : byte))
      expect(claimsCheck(flipped)).toMatchObject({ name: 'hcl-claims', outcome: 'fail' })
    }
  })

  // Goal: all 64 bytes of REPORT_DATA count: the hash, then zeros.
  test('what follows the hash', () => {
    const data = decodeReport(findReport(real).report).reportData
    for (const at of [0, 31, 32, 63]) {
      const other = data.map((byte, i) => (i === at ? byte ^ 1 : byte))
      expect(claimsCheck(withReportData(real, other)).outcome).toBe('fail')
    }
    const found = readHclReport(real)
    for (const wrong of [data.slice(0, 32), new Uint8Array(0), concat(data, Uint8Array.of(0))])
      expect(hclClaimsCheck(found, wrong).outcome).toBe('fail')
    expect(hclClaimsCheck(found, null)).toMatchObject({ outcome: 'not-checked', required: true })
  })

  // Goal: the wrapper names the hash and nothing vouches for it: the three that are known are tried as named, another
  // is not checked, and required.
  test('each hash', async () => {
    const [at, size] = claimsOf(real)
    for (const [type, name] of [
      [1, 'SHA-256'],
      [2, 'SHA-384'],
      [3, 'SHA-512'],
    ] as const) {
      const hash = new Uint8Array(await crypto.subtle.digest(name, real.slice(at, at + size)))
      const data = concat(hash, new Uint8Array(64 - hash.length))
      const named = withField(withReportData(real, data), HCL_FIELDS.hashType[0], type)
      expect(claimsCheck(named)).toMatchObject({ outcome: 'pass' })
      const other = withField(named, HCL_FIELDS.hashType[0], type === 3 ? 1 : type + 1)
      expect(claimsCheck(other)).toMatchObject({ outcome: 'fail' })
    }
    for (const type of [0, 4]) {
      const unknown = claimsCheck(withField(real, HCL_FIELDS.hashType[0], type))
      expect(unknown).toMatchObject({ outcome: 'not-checked', required: true })
      expect(() => decodeHclReport(withField(real, HCL_FIELDS.hashType[0], type))).toThrow(Malformed)
    }
  })

  // Goal: without claims there is nothing to be misled by; that they were not checked is said.
  test('none', () => {
    const [at] = claimsOf(real)
    const none = withField(withField(real.slice(0, at), HCL_FIELDS.claimsSize[0], 0), HCL_FIELDS.dataSize[0], 20)
    const bare = withField(none, HCL_FIELDS.reportSize[0], at)
    expect(claimsCheck(bare)).toMatchObject({ outcome: 'not-checked', required: false })
    expect(() => decodeHclReport(bare)).toThrow(Malformed)
  })
})
