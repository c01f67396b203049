// Goal: a genuine TDX quote is taken for what it is, and each way of being bad is refused by the check that names it.

import { beforeAll, describe, expect, test } from 'bun:test'
import { INTEL_ROOT } from '../../../src/attest/tdx/chain.ts'
import { encodeTdxPolicy, parseTdxPolicy, strictTdxPolicy, type TdxPolicy } from '../../../src/attest/tdx/policy.ts'
import { decodeQuote } from '../../../src/attest/tdx/quote.ts'
import { type TdxVerdict, verifyTdxQuote } from '../../../src/attest/tdx/verify.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { FAULTS, type MadeCase, madeCase, type TdxCase } from '../../rigs/attest/tdx/faults.ts'
import {
  SIMULATED_PCK,
  SIMULATED_REPORT,
  type SimulatedTdx,
  simulateTdx,
  tcbInfoOf,
  tcbLevel,
} from '../../rigs/attest/tdx/simulated.ts'
import { TDX_VECTORS, type TdxVector } from '../../rigs/attest/tdx/vectors.ts'

const nowMs = Date.parse('2026-01-01T00:00:00Z')
const policy = strictTdxPolicy()
let platform: SimulatedTdx
let good: TdxCase

beforeAll(async () => {
  platform = await simulateTdx(nowMs)
  const quote = { version: 4 as const, report: SIMULATED_REPORT }
  good = { pck: SIMULATED_PCK, issued: await platform.pck(SIMULATED_PCK), quote, collateral: {}, asOfMs: nowMs }
})

async function verdictOf({ quote, collateral, asOfMs }: MadeCase): Promise<TdxVerdict> {
  return await verifyTdxQuote(quote, collateral, { asOfMs, policy, root: platform.root })
}

function failed({ checks }: TdxVerdict): string[] {
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

function vector(name: 'v4' | 'v5'): TdxVector {
  const found = TDX_VECTORS.find(vector => vector.name === name)
  if (found === undefined) throw new Error(`no vector ${name}`)
  return found
}

const ask = async ({ quote, collateral, asOfMs }: TdxVector, wanted: TdxPolicy = policy) =>
  await verifyTdxQuote(quote, collateral, { asOfMs, policy: wanted })

describe('real quotes, under the root of Intel', () => {
  // Goal: a platform that was up to date is.
  test('version 4', async () => {
    const verdict = await ask(vector('v4'))
    expect([verdict.ok, failed(verdict)]).toEqual([true, []])
    expect(verdict.level).toMatchObject({ status: 'UpToDate', advisories: [] })
    expect(toHex(verdict.pck?.fmspc ?? new Uint8Array())).toBe('b0c06f000000')
    expect(new Date(verdict.untilMs ?? 0).toISOString()).toBe('2025-07-19T10:00:35.000Z')
  })

  // Goal: signatures that hold do not make up for a TCB below every level.
  test('version 5, with a report of TDX 1.5', async () => {
    const verdict = await ask(vector('v5'))
    expect([verdict.ok, failed(verdict), verdict.level]).toEqual([false, ['tcb-level'], null])
  })

  // Goal: time, collateral of another platform and a simulated root are each refused.
  test('at other times, with other collateral, under another root', async () => {
    const v4 = vector('v4')
    const late = await ask({ ...v4, asOfMs: Date.parse('2025-07-21T00:00:00Z') })
    expect(failed(late)).toContain('tcb-info-time')
    expect(late.ok).toBe(false)
    const other = await ask({ ...vector('v5'), quote: v4.quote })
    expect(failed(other)).toContain('tcb-info-platform')
    const simulated = await verifyTdxQuote(v4.quote, v4.collateral, { asOfMs: v4.asOfMs, policy, root: platform.root })
    expect(failed(simulated)).toEqual(['collateral-form'])
    expect(simulated.ok).toBe(false)
  })

  // Goal: nothing that Intel signed about the platform can change.
  test('bytes of the signed documents', async () => {
    const { collateral, ...rest } = vector('v4')
    const text = new TextDecoder().decode(collateral)
    for (const [from, to] of [
      ['\\"tcbEvaluationDataNumber\\":17', '\\"tcbEvaluationDataNumber\\":18'],
      ['\\"isvsvn\\":3}', '\\"isvsvn\\":0}'],
      ['UpToDate', 'OutOfDate'],
    ] as const) {
      expect(text).toContain(from)
      const verdict = await ask({ ...rest, collateral: utf8(text.replace(from, to)) })
      expect(failed(verdict).filter(name => name.endsWith('-signature'))).not.toEqual([])
    }
  })
})

describe('a SIMULATED platform', () => {
  // Goal: it is good under its own root, and says that it is simulated; under Intel's it is nothing.
  test('good', async () => {
    const made = await madeCase(platform, good)
    const verdict = await verdictOf(made)
    expect([verdict.ok, failed(verdict)]).toEqual([true, []])
    expect(verdict.checks.find(({ name }) => name === 'pck-chain')?.reason).toContain('SIMULATED')
    const underIntel = await verifyTdxQuote(made.quote, made.collateral, { asOfMs: nowMs, policy, root: INTEL_ROOT })
    expect(failed(underIntel)).toEqual(['collateral-form'])
  })

  // Goal: the check that a fault names is among those that fail.
  test.each(Object.keys(FAULTS))('%s', async name => {
    const fault = FAULTS[name]
    if (fault === undefined) throw new Error('no such fault')
    const verdict = await verdictOf(await madeCase(platform, await fault.change(platform, good)))
    expect([verdict.ok, failed(verdict)]).toEqual([false, expect.arrayContaining([fault.check])])
  })
})

// Goal: the policy judges what the signed parts say: status, advisories, number, age, platform.
test.each([
  ['tcbStatuses', { tcbStatuses: ['OutOfDate'] }, 'tcb-status'],
  ['minimumTcbEvaluationDataNumber', { minimumTcbEvaluationDataNumber: 18 }, 'tcb-evaluation-data-number'],
  ['maxCollateralAgeDays', { maxCollateralAgeDays: 0 }, 'collateral-age'],
  ['fmspcs', { fmspcs: ['000000000000'] }, 'fmspc'],
  ['ppids', { ppids: ['00'.repeat(16)] }, 'ppid'],
  ['teeTcbSvn2s', { teeTcbSvn2s: ['00'.repeat(16)] }, 'tee-tcb-svn2'],
])('refused by %s alone', async (_name, changes, check) => {
  const wanted = parseTdxPolicy({ ...encodeTdxPolicy(policy), ...changes })
  expect(failed(await ask(vector('v4'), wanted))).toEqual([check])
})

// Goal: an advisory that the level lists is refused, though its status is accepted.
test('refused advisories', async () => {
  const level = tcbLevel({ status: 'SWHardeningNeeded', advisories: ['INTEL-SA-00615'] })
  const collateral = { tcbInfo: tcbInfoOf(nowMs, { tcbLevels: [level] }) }
  const made = await madeCase(platform, { ...good, collateral })
  const asked = async (refusedAdvisories: TdxPolicy['refusedAdvisories']) => {
    const wanted: TdxPolicy = { ...policy, tcbStatuses: ['SWHardeningNeeded'], refusedAdvisories }
    return await verifyTdxQuote(made.quote, made.collateral, { asOfMs: nowMs, policy: wanted, root: platform.root })
  }
  expect((await asked('any')).ok).toBe(true)
  expect((await asked(['INTEL-SA-00001'])).ok).toBe(true)
  expect(failed(await asked(['INTEL-SA-00615']))).toEqual(['advisories'])
})

// Goal: bytes that are nothing give a bad verdict and no error.
test('bytes that are nothing', async () => {
  const { quote, collateral, asOfMs } = vector('v4')
  const all = [
    await verifyTdxQuote(new Uint8Array(), new Uint8Array(), { asOfMs, policy }),
    await verifyTdxQuote(quote, utf8('{}'), { asOfMs, policy }),
    await verifyTdxQuote(new Uint8Array(700).fill(4), collateral, { asOfMs, policy }),
  ]
  expect(all.map(({ ok }) => ok)).toEqual([false, false, false])
  expect(all.map(failed)).toEqual([['quote-form', 'collateral-form'], ['collateral-form'], ['quote-form']])
  expect(decodeQuote(quote).version).toBe(4)
})
