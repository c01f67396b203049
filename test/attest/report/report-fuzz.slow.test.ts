import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { findReport } from '../../../src/attest/report/form.ts'
import {
  decodeReport,
  encodeReport,
  FIELDS,
  reportSizeBytes,
  type SnpReport,
} from '../../../src/attest/report/report.ts'
import { verifyReportSignature } from '../../../src/attest/verify/report-signature.ts'
import { readReport, reportNames, vekOf } from '../../rigs/attest/report-vectors.ts'
import { fuzz, mutations } from '../../rigs/hostile/fuzz.ts'

const samples = await Promise.all(reportNames.map(readReport))
const hcl = await readReport('wrong-chip.hcl.bin')

/** The value, or null where a codec refused; anything but Malformed goes on. */
function orMalformed<T>(decode: () => T): T | null {
  try {
    return decode()
  } catch (cause) {
    if (cause instanceof Malformed && cause.message !== '') return null
    throw cause
  }
}

// Goal: hostile bytes are refused with Malformed or come back byte for byte; nothing else is thrown, and both happen.
test('decodeReport', async () => {
  const seen = { decoded: 0, refused: 0 }
  await fuzz({ samples, count: 20_000, sizeBytesMax: 2400 }, bytes => {
    const report = orMalformed(() => decodeReport(bytes))
    if (report === null) seen.refused += 1
    else {
      seen.decoded += 1
      expect(Buffer.compare(encodeReport(report), bytes)).toBe(0)
    }
  })
  expect(Math.min(seen.decoded, seen.refused)).toBeGreaterThan(casesOf(1000))
})

// Goal: what findReport finds in hostile bytes is 1184 bytes of theirs; nothing but Malformed is thrown, and both
// happen.
test('findReport', async () => {
  const seen = { plain: 0, 'azure-hcl': 0, refused: 0 }
  await fuzz({ samples: [...samples.slice(0, 2), hcl], count: 20_000 }, bytes => {
    const found = orMalformed(() => findReport(bytes))
    seen[found?.form ?? 'refused'] += 1
    if (found === null) return
    const offset = found.form === 'plain' ? 0 : 32
    expect(Buffer.compare(found.report, bytes.subarray(offset, offset + reportSizeBytes))).toBe(0)
  })
  expect(Math.min(seen.plain, seen['azure-hcl'], seen.refused)).toBeGreaterThan(casesOf(500))
})

// Goal: no mutation of a signed report verifies, and none makes the verifier throw.
test('verifyReportSignature', async () => {
  const vek = await vekOf('milan-v3.bin')
  const report = await readReport('milan-v3.bin')
  await fuzz({ samples: [report], count: 1500, sizeBytesMax: 2400 }, async bytes => {
    const { outcome, reason } = await verifyReportSignature(bytes, vek)
    if (outcome === 'pass') expect(Buffer.compare(bytes, report)).toBe(0)
    else expect([outcome, reason !== '']).toEqual(['fail', true])
  })
})

// Goal: no hostile key makes the verifier throw or pass.
test('verifyReportSignature with hostile keys', async () => {
  const vek = await vekOf('milan-v3.bin')
  const report = await readReport('milan-v3.bin')
  await fuzz({ samples: [vek], count: 1500, sizeBytesMax: 300 }, async spki => {
    const { outcome } = await verifyReportSignature(report, spki)
    if (outcome === 'pass') expect(Buffer.from(spki).includes(Buffer.from(vek.slice(-97)))).toBe(true)
  })
})

describe('encodeReport', () => {
  const blob = (size: number) => fc.uint8Array({ minLength: size, maxLength: size })
  const u8 = fc.integer({ min: 0, max: 255 })
  const u32 = fc.integer({ min: 0, max: 0xffff_ffff })
  const u64 = fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn })
  const firmware = fc.record({ build: u8, minor: u8, major: u8 })
  const reports = fc.constantFrom(2, 3, 4, 5).chain(version =>
    fc
      .record({
        version: fc.constant(version as SnpReport['version']),
        guestSvn: u32,
        policy: u64,
        familyId: blob(16),
        imageId: blob(16),
        vmpl: u32,
        signatureAlgo: u32,
        rawTcb: fc.record({ current: u64, reported: u64, committed: u64, launch: u64 }),
        platformInfo: u64,
        key: fc.constantFrom([0, 'vcek'] as const, [1, 'vlek'] as const, [7, 'none'] as const),
        keyBits: u32,
        reportData: blob(64),
        measurement: blob(48),
        hostData: blob(32),
        idKeyDigest: blob(48),
        authorKeyDigest: blob(48),
        reportId: blob(32),
        reportIdMa: blob(32),
        cpuid: version < 3 ? fc.constant(null) : fc.record({ family: u8, model: u8, stepping: u8 }),
        chipId: blob(64),
        current: firmware,
        committed: firmware,
        mitigation: version < 5 ? fc.constant(null) : fc.record({ launch: u64, current: u64 }),
        signature: fc.record({ r: blob(72), s: blob(72) }),
        reserved: blob(547 + (version < 3 ? 3 : 0) + (version < 5 ? 16 : 0)),
      })
      .map(({ key: [number, signer], keyBits, ...report }): SnpReport => {
        return { ...report, keyInfo: ((keyBits & ~0x1c) | (number << 2)) >>> 0, signer }
      }),
  )

  // Goal: every report, whatever its fields, comes back from its bytes.
  test('is inverted by decodeReport', () => {
    fc.assert(
      fc.property(reports, report => expect(decodeReport(encodeReport(report))).toEqual(report)),
      { numRuns: 300 },
    )
  })

  // Goal: each byte of a report belongs to exactly one field: changing it changes the value.
  test('has no dead byte', () => {
    const bytes = encodeReport(decodeReport(samples[0] ?? new Uint8Array()))
    for (let at = FIELDS.guestSvn[0]; at < reportSizeBytes; at += 1) {
      const changed = Uint8Array.from(bytes)
      changed[at] = (changed[at] ?? 0) ^ 0x20
      expect(decodeReport(changed)).not.toEqual(decodeReport(bytes))
    }
  })
})

describe('the fuzzer', () => {
  const options = { samples: samples.slice(0, 2), count: 500 }

  // Goal: a seed repeats a run, and another seed gives another one.
  test('repeats', () => {
    const run = (seed: number) => [...mutations({ ...options, seed })]
    expect(run(7)).toEqual(run(7))
    expect(run(7)).not.toEqual(run(8))
    expect(new Set(run(7).map(mutation => mutation.kind)).size).toBe(6)
    expect(run(7)).toHaveLength(500)
  })

  // Goal: a failure in the body is not lost and names the seed; mutations never touch the samples.
  test('tells', async () => {
    const before = samples.map(sample => sample.slice())
    const run = fuzz({ ...options, seed: 41 }, bytes => {
      if (bytes.length < 100) throw new RangeError('too short')
    })
    expect(run).rejects.toThrow(/RangeError: too short; repeat with STRONGROOM_FUZZ_SEED=41$/)
    await run.catch(() => {})
    expect(samples).toEqual(before)
  })
})
