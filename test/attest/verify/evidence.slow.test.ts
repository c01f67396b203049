// The one entry: real evidence against the table of vectors, malformed evidence of every kind, and a fixed order of
// checks.

import { describe, expect, spyOn, test } from 'bun:test'
import { derBlocks } from '../../../src/attest/encoding/pem.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { reportSizeBytes } from '../../../src/attest/report/report.ts'
import { CHAIN_CHECKS } from '../../../src/attest/verify/chain.ts'
import { PREPARED_CHECKS, prepareChain } from '../../../src/attest/verify/chain-prepare.ts'
import { type Evidence, verifyEvidence } from '../../../src/attest/verify/evidence.ts'
import { fromHex, toHex } from '../../../src/base/bytes.ts'
import { failed, failures, REAL, vector, vectorsAsOf } from '../../rigs/attest/chain-vectors.ts'
import { expectedReports } from '../../rigs/attest/report-vectors.ts'

const rules = { asOf: vectorsAsOf, requireCrl: false, policy: 'any' } as const

async function evidenceOf({ report, vek, product, asOf }: (typeof REAL)[number]): Promise<Evidence> {
  return { ...rules, report: await vector(`reports/${report}`), vek: await vector(`reports/${vek}`), product, asOf }
}

const turin = () => evidenceOf(REAL[4])

describe.each(REAL.map(item => [item.report, item] as const))('%s', (_name, real) => {
  test('verifies, cold and prepared', async () => {
    // Goal: every real report verifies below AMD's roots with the measurement that an independent decoder found.
    const evidence = await evidenceOf(real)
    const answer = await verifyEvidence(evidence)
    expect(failures(answer.checks)).toBe('')
    expect([answer.ok, answer.simulated, answer.product]).toEqual([true, false, real.product])
    const expected = expectedReports.find(expected => expected.report === real.report)
    expect(toHex(answer.report?.measurement ?? new Uint8Array(0))).toBe(expected?.measurement ?? '')
    const prepared = await prepareChain(evidence as Evidence & { vek: Uint8Array })
    expect(await verifyEvidence({ ...evidence, prepared })).toEqual(answer)
  })

  test('checks in their order', async () => {
    // Goal: machines and people find the same names in the same order, whatever the evidence is.
    const names = (answer: { checks: readonly { name: string }[] }) => answer.checks.map(check => check.name)
    const expected = [
      'report-format',
      'report-product',
      ...PREPARED_CHECKS,
      ...CHAIN_CHECKS,
      'report-signature',
      'report-data-expected',
      'policy',
    ]
    const evidence = await evidenceOf(real)
    expect(names(await verifyEvidence(evidence))).toEqual(expected)
    expect(names(await verifyEvidence({ ...rules, report: new Uint8Array(3), vek: '' }))).toEqual(expected)
    const appraised = names(await verifyEvidence({ ...evidence, policy: strictPolicy() }))
    expect(appraised.slice(0, expected.length - 1)).toEqual(expected.slice(0, -1))
    expect(appraised.length).toBeGreaterThan(expected.length)
    expect(new Set(appraised).size).toBe(appraised.length)
  })

  test('with the evidence of the others', async () => {
    // Goal: no real chain vouches for another real report.
    const evidence = await evidenceOf(real)
    for (const other of REAL.filter(item => item !== real)) {
      const swapped = { ...evidence, vek: await vector(`reports/${other.vek}`) }
      const answer = await verifyEvidence(swapped)
      expect(answer.ok).toBe(false)
      expect(failed(answer.checks)).toContain('report-signature')
    }
  })
})

test('the vectors that must fail', async () => {
  // Goal: damaged VCEKs, another chip's VCEK and an expired VLEK give bad verdicts at what is wrong with them.
  const milan = await evidenceOf(REAL[0])
  const legacy = await verifyEvidence({ ...milan, vek: await vector('reports/bad-vcek-legacy.der') })
  expect(legacy.ok).toBe(false)
  expect(failed(legacy.checks)).toEqual(['chain-signatures', 'vek-chip-id', 'vek-tcb', 'report-signature'])
  const wrapped = await verifyEvidence({ ...milan, vek: await vector('reports/bad-vcek-new.der') })
  expect([wrapped.ok, failed(wrapped.checks)]).toEqual([false, ['vek-certificate']])
  const hcl = await vector('reports/wrong-chip.hcl.bin')
  const report = hcl.slice(32, 32 + reportSizeBytes)
  const chip = await verifyEvidence({ ...milan, report, vek: await vector('reports/wrong-chip.certs.pem') })
  expect(chip.ok).toBe(false)
  expect(failed(chip.checks)).toContain('report-signature')
  expect(failed(chip.checks)).not.toContain('chain-signatures')
  const late = await verifyEvidence({ ...(await evidenceOf(REAL[5])), asOf: new Date('2026-06-01T00:00:00Z') })
  expect([late.ok, failed(late.checks)]).toEqual([false, ['chain-validity']])
})

test('the product has to be known', async () => {
  // Goal: a version 2 report without a name, and a name that the CPUID contradicts, are refused.
  const { product: _named, ...unnamed } = await evidenceOf(REAL[0])
  const open = await verifyEvidence(unnamed as Evidence)
  expect([open.ok, open.product, failed(open.checks)]).toEqual([false, null, ['report-product', 'vek-product']])
  const misnamed = await verifyEvidence({ ...(await turin()), product: 'genoa' })
  expect(failed(misnamed.checks)).toContain('report-product')
  const other = await verifyEvidence({ ...(await evidenceOf(REAL[0])), product: 'genoa' })
  expect(failed(other.checks)).toEqual(['vek-product'])
})

test('the policy has to be given or waived', async () => {
  // Goal: without a policy the verdict is bad, although nothing failed; 'any' waives it; a policy decides.
  const { policy: _waived, ...open } = await turin()
  const without = await verifyEvidence(open as Evidence)
  expect([without.ok, failed(without.checks)]).toEqual([false, []])
  expect((await verifyEvidence({ ...(await turin()), policy: strictPolicy() })).ok).toBe(true)
  const vmpl = await verifyEvidence({ ...(await evidenceOf(REAL[5])), policy: strictPolicy() })
  expect([vmpl.ok, failed(vmpl.checks)]).toEqual([false, ['vmpl']])
  const broken = { ...strictPolicy(), guestPolicy: undefined } as unknown as ReturnType<typeof strictPolicy>
  const answer = await verifyEvidence({ ...(await turin()), policy: broken })
  expect([answer.ok, failed(answer.checks)]).toEqual([false, ['policy']])
})

test('report data and CRL', async () => {
  // Goal: the caller's own 64 bytes are compared whole; a required CRL that is missing makes the verdict bad.
  const evidence = await turin()
  const reportData = fromHex(expectedReports.find(expected => expected.report === 'turin-v5.bin')?.report_data ?? '')
  if (reportData === null) throw new Error('hexadecimal')
  expect((await verifyEvidence({ ...evidence, reportData })).ok).toBe(true)
  for (const other of [reportData.with(63, (reportData[63] ?? 0) ^ 1), reportData.subarray(0, 63), new Uint8Array(0)]) {
    expect(failed((await verifyEvidence({ ...evidence, reportData: other })).checks)).toEqual(['report-data-expected'])
  }
  const required = await verifyEvidence({ ...evidence, requireCrl: true })
  expect([required.ok, failed(required.checks)]).toEqual([false, []])
  const garbage = await verifyEvidence({ ...evidence, crl: new Uint8Array([1, 2, 3]) })
  expect(failed(garbage.checks)).toEqual(['chain-revocation'])
})

test('a prepared chain costs one signature', async () => {
  // Goal: with a kept chain only the report's own signature is verified: that is what keeps it below 2 ms.
  const evidence = await turin()
  const verify = spyOn(crypto.subtle, 'verify')
  try {
    const prepared = await prepareChain(evidence as Evidence & { vek: Uint8Array })
    expect(verify.mock.calls.length).toBeGreaterThanOrEqual(3)
    verify.mockClear()
    expect((await verifyEvidence({ ...evidence, prepared })).ok).toBe(true)
    expect(verify).toHaveBeenCalledTimes(1)
  } finally {
    verify.mockRestore()
  }
})

test('malformed evidence', async () => {
  // Goal: whatever is handed in, the answer is a bad verdict with a reason at each check that failed.
  const good = await turin()
  const junk: unknown[] = [
    '',
    'x',
    new Uint8Array(0),
    new Uint8Array(70_000),
    new Uint8Array(1184),
    null,
    undefined,
    7,
    {},
    [],
  ]
  const parts = ['report', 'vek', 'chain', 'crl', 'roots', 'asOf', 'policy', 'reportData', 'product'] as const
  for (const part of parts) {
    for (const item of junk) {
      // Left out, these mean something; see the other tests.
      if (item === undefined && part !== 'report' && part !== 'vek' && part !== 'asOf') continue
      const answer = await verifyEvidence({ ...good, [part]: item } as Evidence)
      // An empty list brings no certificates; no product names none.
      const isHarmless = (part === 'chain' && Array.isArray(item)) || (part === 'product' && item === null)
      expect([part, String(item), answer.ok]).toEqual([part, String(item), isHarmless])
      expect(answer.checks.every(check => check.outcome === 'pass' || check.reason !== '')).toBe(true)
    }
  }
})

test('every byte of the report changed', async () => {
  // Goal: no byte of a report, signed or not, can change without the verdict turning bad.
  const evidence = await turin()
  const prepared = await prepareChain(evidence as Evidence & { vek: Uint8Array })
  for (let at = 0; at < reportSizeBytes; at += 1) {
    const report = evidence.report.with(at, (evidence.report[at] ?? 0) ^ (1 << (at % 8)))
    expect([at, (await verifyEvidence({ ...evidence, prepared, report })).ok]).toEqual([at, false])
  }
})

test('every byte of the certificates changed', async () => {
  // Goal: no byte of VCEK, ASK or ARK can change without the chain failing, and none makes an exception.
  const [vek, ask, ark] = derBlocks(await vector('reports/turin-v5.chain.pem'), 'CERTIFICATE', 'chain')
  if (vek === undefined || ask === undefined || ark === undefined) throw new Error('three certificates')
  const evidence = await turin()
  const isGood = async (parts: { vek: Uint8Array; chain: Uint8Array[] }) => {
    const { checks } = await prepareChain(parts)
    return checks.every(check => check.outcome === 'pass')
  }
  const flipped = (der: Uint8Array, at: number) => der.with(at, (der[at] ?? 0) ^ (1 << (at % 8)))
  expect(await isGood({ vek, chain: [ask, ark] })).toBe(true)
  for (let at = 0; at < vek.length; at += 1) {
    expect([at, await isGood({ vek: flipped(vek, at), chain: [ask, ark] })]).toEqual([at, false])
  }
  for (let at = 0; at < ask.length; at += 3) {
    expect([at, await isGood({ vek, chain: [flipped(ask, at), ark] })]).toEqual([at, false])
  }
  // A damaged ARK is a stranger, or no certificate at all: the pinned one does not stand in its place.
  for (let at = 0; at < ark.length; at += 3) {
    expect([at, await isGood({ vek, chain: [ask, flipped(ark, at)] })]).toEqual([at, false])
  }
  expect((await verifyEvidence({ ...evidence, vek: flipped(vek, 700) })).ok).toBe(false)
}, 60_000)
