import { describe, expect, test } from 'bun:test'
import { X509Certificate } from 'node:crypto'
import { findReport } from '../../../src/attest/report/form.ts'
import { decodeReport, encodeReport, FIELDS, reportSizeBytes } from '../../../src/attest/report/report.ts'
import { verifyReportSignature } from '../../../src/attest/verify/report-signature.ts'
import { expectedReports, readReport, spkiOf, vekOf } from '../../rigs/attest/report-vectors.ts'

const report = await readReport('milan-v3.bin')
const vek = await vekOf('milan-v3.bin')
/** Order of P-384 in hexadecimal, SP 800-186. */
const order = BigInt(`0x${'f'.repeat(48)}c7634d81f4372ddf581a0db248b0a77aecec196accc52973`)

function flipped(bytes: Uint8Array, bit: number): Uint8Array {
  const copy = Uint8Array.from(bytes)
  copy[bit >> 3] = (copy[bit >> 3] ?? 0) ^ (1 << (bit & 7))
  return copy
}

/** 72 bytes, little-endian. */
function scalar(value: bigint): Uint8Array {
  return Uint8Array.from({ length: 72 }, (_, at) => Number((value >> BigInt(at * 8)) & 0xffn))
}

function scalarAt(bytes: Uint8Array, name: 'signatureR' | 'signatureS'): bigint {
  const [offset, size] = FIELDS[name]
  return bytes.slice(offset, offset + size).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n)
}

/** The report with R or S replaced. */
function withScalar(bytes: Uint8Array, name: 'signatureR' | 'signatureS', value: bigint): Uint8Array {
  const copy = Uint8Array.from(bytes)
  copy.set(scalar(value), FIELDS[name][0])
  return copy
}

/** Bits among these whose flip the verifier does not answer with a failed check and a reason. */
async function missedFlips(bytes: Uint8Array, key: Uint8Array, bits: readonly number[]): Promise<number[]> {
  const missed: number[] = []
  for (const bit of bits) {
    const { outcome, reason, required } = await verifyReportSignature(flipped(bytes, bit), key)
    if (outcome !== 'fail' || reason === '' || !required) missed.push(bit)
  }
  return missed
}

const bitsOf = (from: number, to: number, step = 1) =>
  Array.from({ length: Math.ceil(((to - from) * 8) / step) }, (_, at) => from * 8 + at * step)

describe.each(expectedReports)('$report', expected => {
  // Goal: the signature of real hardware verifies with its VEK, and with no other one.
  test('is signed by its VEK alone', async () => {
    const bytes = await readReport(expected.report)
    expect(await verifyReportSignature(bytes, await vekOf(expected.report))).toMatchObject({
      name: 'report-signature',
      outcome: expected.signature_valid ? 'pass' : 'fail',
      required: true,
    })
    for (const other of expectedReports.filter(item => item.report !== expected.report)) {
      expect(await verifyReportSignature(bytes, await vekOf(other.report))).toMatchObject({ outcome: 'fail' })
    }
  })

  // Goal: a flip anywhere in the report is seen: in the signed part, in R and S, in the bytes after.
  test('flips of some bits', async () => {
    const bytes = await readReport(expected.report)
    const bits = bitsOf(0, reportSizeBytes, 23)
    expect(bits.length).toBeGreaterThan(400)
    expect(await missedFlips(bytes, await vekOf(expected.report), bits)).toEqual([])
  })
})

// Goal: every single bit of the signed part is covered.
test('flips of every bit of the signed part', async () => {
  const bits = bitsOf(0, 0x2a0)
  expect(bits).toHaveLength(5376)
  expect(await missedFlips(report, vek, bits)).toEqual([])
}, 60_000)

// Goal: every single bit of R, of S and of what comes after counts.
test('flips of every bit of the signature', async () => {
  expect(await missedFlips(report, vek, bitsOf(0x2a0, reportSizeBytes))).toEqual([])
}, 60_000)

// Goal: reports of other sources verify too; another chip's VCEK does not.
test('other reports', async () => {
  const bareMetal = await readReport('../launch-digest/bare-metal-milan.report.bin')
  const bareMetalVek = await spkiOf('../launch-digest/bare-metal-milan.vcek.pem')
  expect(await verifyReportSignature(bareMetal, bareMetalVek)).toMatchObject({ outcome: 'pass' })
  const bound = await Bun.file(`${import.meta.dir}/../../vectors/tpm/paravisor-bound.json`).json()
  const hcl = findReport(Buffer.from(bound.hcl_report, 'base64url')).report
  const certificate = new X509Certificate(Buffer.from(bound.vcek, 'base64'))
  const hclVek = Uint8Array.from(certificate.publicKey.export({ type: 'spki', format: 'der' }))
  expect(await verifyReportSignature(hcl, hclVek)).toMatchObject({ outcome: 'pass' })
  const wrong = findReport(await readReport('wrong-chip.hcl.bin')).report
  expect(await verifyReportSignature(wrong, await spkiOf('wrong-chip.certs.pem'))).toMatchObject({
    outcome: 'fail',
    reason: 'the signature is not of this VEK',
  })
})

describe('R and S', () => {
  const range = 'R or S is not between 0 and the order of P-384'

  // Goal: 0 < R, S < n, both ends, before any curve arithmetic.
  test.each(['signatureR', 'signatureS'] as const)('range of %s', async name => {
    const reasonOf = async (value: bigint) => (await verifyReportSignature(withScalar(report, name, value), vek)).reason
    for (const value of [0n, order, order + 1n, (1n << 384n) - 1n, 1n << 384n, (1n << 576n) - 1n])
      expect(await reasonOf(value)).toBe(range)
    for (const value of [1n, order - 1n]) expect(await reasonOf(value)).toBe('the signature is not of this VEK')
  })

  // Goal: the same value modulo n in the upper bytes is not the same signature.
  test('no second form', async () => {
    for (const name of ['signatureR', 'signatureS'] as const) {
      const changed = withScalar(report, name, scalarAt(report, name) + order)
      expect((await verifyReportSignature(changed, vek)).reason).toBe(range)
    }
  })

  // Goal: big-endian or swapped values do not pass.
  test('order of bytes and of values', async () => {
    const { r, s } = decodeReport(report).signature
    const swapped = { r: s, s: r }
    const reversed = { r: padded(r), s: padded(s) }
    for (const signature of [swapped, reversed]) {
      const bytes = encodeReport({ ...decodeReport(report), signature })
      expect(await verifyReportSignature(bytes, vek)).toMatchObject({ outcome: 'fail' })
    }
  })

  function padded(value: Uint8Array): Uint8Array {
    const bytes = new Uint8Array(72)
    bytes.set(value.slice(0, 48).reverse())
    return bytes
  }
})

describe('what cannot be verified fails', () => {
  // Goal: an unsigned report, another algorithm, an unknown version and a wrong length fail with their reason.
  test('reports', async () => {
    const patched = (offset: number, byte: number) => {
      const copy = Uint8Array.from(report)
      copy[offset] = byte
      return copy
    }
    const reasonOf = async (bytes: Uint8Array) => {
      const check = await verifyReportSignature(bytes, vek)
      return `${check.outcome}: ${check.reason}`
    }
    expect(await reasonOf(patched(0x48, 7 << 2))).toBe('fail: the report is marked as not signed')
    expect(await reasonOf(patched(0x34, 0))).toBe('fail: signature algorithm 0 is not 1')
    expect(await reasonOf(patched(0x34, 2))).toBe('fail: signature algorithm 2 is not 1')
    expect(await reasonOf(patched(0, 6))).toBe('fail: SNP report: version 6 is not 2 to 5')
    expect(await reasonOf(patched(0x330, 1))).toBe('fail: the bytes after the signature are not zero')
    for (const size of [0, 1183, 1185, 2048])
      expect(await reasonOf(new Uint8Array(size))).toBe(`fail: SNP report: ${size} bytes instead of 1184`)
  })

  // Goal: a key that is not a P-384 public key in SPKI form fails, and is never taken for one.
  test('keys', async () => {
    const spkiOfPair = async (pair: unknown) =>
      new Uint8Array(await crypto.subtle.exportKey('spki', (pair as CryptoKeyPair).publicKey))
    const elliptic = async (namedCurve: string) =>
      spkiOfPair(await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve }, true, ['sign', 'verify']))
    const rsa = async () => {
      const size = { modulusLength: 2048, publicExponent: Uint8Array.of(1, 0, 1) }
      const algorithm = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-384', ...size }
      return spkiOfPair(await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify']))
    }
    const keys = [
      new Uint8Array(),
      vek.slice(0, -1),
      vek.slice(-97),
      await elliptic('P-256'),
      await elliptic('P-521'),
      await rsa(),
      flipped(vek, vek.length * 8 - 1),
    ]
    for (const key of keys) {
      expect(await verifyReportSignature(report, key)).toMatchObject({
        outcome: 'fail',
        reason: 'the VEK is not a P-384 public key',
      })
    }
    expect(await verifyReportSignature(report, await elliptic('P-384'))).toMatchObject({
      reason: 'the signature is not of this VEK',
    })
  })
})
