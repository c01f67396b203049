// Goal: a genuine TDX quote is taken for what it is, and each way of being bad is refused by the check that names it.

import { beforeAll, describe, expect, test } from 'bun:test'
import { INTEL_ROOT } from '../../../src/attest/tdx/chain.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import { parseTdxPolicy, type TdxPolicy } from '../../../src/attest/tdx/policy.ts'
import { decodeQuote } from '../../../src/attest/tdx/quote.ts'
import { type TdxVerdict, verifyTdxQuote } from '../../../src/attest/tdx/verify.ts'
import { fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'
import { FAULTS, type MadeCase, madeCase, type TdxCase } from '../../rigs/attest/tdx/faults.ts'
import { QUOTE_FORMS } from '../../rigs/attest/tdx/quotes.ts'
import {
  chainOf,
  type Issued,
  SIMULATED_PCK,
  SIMULATED_REPORT,
  type SimulatedTdx,
  simulateTdx,
  svnLevel,
  tcbInfoOf,
  tcbLevel,
} from '../../rigs/attest/tdx/simulated.ts'

const nowMs = Date.parse('2026-01-01T00:00:00Z')
const dayMs = 86_400_000
const policy = strictTdxPolicy()
let platform: SimulatedTdx
let issued: Issued
let good: TdxCase

beforeAll(async () => {
  platform = await simulateTdx(nowMs)
  issued = await platform.pck(SIMULATED_PCK)
  good = caseOf({ version: 4, report: SIMULATED_REPORT })
})

function caseOf(quote: TdxCase['quote']): TdxCase {
  return { pck: SIMULATED_PCK, issued, quote, collateral: {}, asOfMs: nowMs }
}

async function verdictOf({ quote, collateral, asOfMs }: MadeCase, wanted: TdxPolicy = policy): Promise<TdxVerdict> {
  return await verifyTdxQuote(quote, collateral, { asOfMs, policy: wanted, root: platform.root })
}

function failed({ checks }: TdxVerdict): string[] {
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

describe.each([...QUOTE_FORMS])('$name, of a SIMULATED platform', ({ version, report }) => {
  // Goal: it is good under its own root, and says that it is simulated; under Intel's it is nothing.
  test('good', async () => {
    const made = await madeCase(platform, caseOf({ version, report }))
    const verdict = await verdictOf(made)
    expect([verdict.ok, failed(verdict)]).toEqual([true, []])
    expect(verdict.level).toMatchObject({ status: 'UpToDate', advisories: [] })
    expect(toHex(verdict.pck?.fmspc ?? new Uint8Array())).toBe('b0c06f000000')
    expect(verdict.untilMs).toBe(nowMs + 30 * dayMs)
    expect(verdict.checks.find(({ name }) => name === 'pck-chain')?.reason).toContain('SIMULATED')
    // As a root that is not simulated, like Intel's.
    const { simulated, ...pinned } = platform.root
    const underPinned = await verifyTdxQuote(made.quote, made.collateral, { asOfMs: nowMs, policy, root: pinned })
    expect([simulated, underPinned.ok, failed(underPinned)]).toEqual([true, true, []])
    const chains = underPinned.checks.filter(({ reason }) => reason?.includes("Intel's pinned root"))
    expect(chains.map(({ name }) => name)).toEqual(['pck-chain', 'tcb-info-chain', 'qe-identity-chain'])
    expect(underPinned.checks.filter(({ reason }) => reason?.includes('SIMULATED'))).toEqual([])
    const underIntel = await verifyTdxQuote(made.quote, made.collateral, { asOfMs: nowMs, policy, root: INTEL_ROOT })
    expect(failed(underIntel)).toEqual(['collateral-form'])
    expect(underIntel.ok).toBe(false)
  })

  // Goal: the check that a fault names is among those that fail.
  test.each(Object.keys(FAULTS))('%s', async name => {
    const fault = FAULTS[name]
    if (fault === undefined) throw new Error('no such fault')
    const verdict = await verdictOf(await madeCase(platform, await fault.change(platform, caseOf({ version, report }))))
    expect([verdict.ok, failed(verdict)]).toEqual([false, expect.arrayContaining([fault.check])])
  })
})

// Goal: a report without the value never says PASS about it: zeros are not compared, and any other value is refused.
describe.each([...QUOTE_FORMS])('the service TDs of $name', ({ version, report }) => {
  const none = 'a TD report 1.0 does not name service TDs'
  test.each([
    ['any', 'any', "the policy has 'any'", 'not-checked', 'not-checked'],
    ['zeros', '00'.repeat(48), none, 'not-checked', 'pass'],
    ['another value', `${'00'.repeat(47)}01`, none, 'fail', 'fail'],
  ] as const)('the policy has %s', async (_name, mrServiceTd, reason, without, named) => {
    const wanted = parseTdxPolicy({ ...encodeTdxPolicy(policy), mrServiceTd })
    const verdict = await verdictOf(await madeCase(platform, caseOf({ version, report })), wanted)
    const found = verdict.checks.find(({ name }) => name === 'mr-service-td')
    expect(found?.outcome).toBe(report.added === null ? without : named)
    if (report.added === null) expect([found?.reason, verdict.ok]).toEqual([reason, without !== 'fail'])
  })
})

// Goal: nothing that Intel signed about the platform can change.
test.each([
  ['\\"tcbEvaluationDataNumber\\":17', '\\"tcbEvaluationDataNumber\\":18'],
  ['\\"isvsvn\\":4}', '\\"isvsvn\\":0}'],
  ['UpToDate', 'OutOfDate'],
])('bytes of the signed documents: %s', async (from, to) => {
  const { collateral, ...rest } = await madeCase(platform, good)
  const text = fromUtf8(collateral)
  expect(text).toContain(from)
  const verdict = await verdictOf({ ...rest, collateral: utf8(text.replace(from, to)) })
  expect(failed(verdict).filter(name => name.endsWith('-signature'))).not.toEqual([])
})

// Goal: a chain may end with a NUL and zeros may follow a quote, as in those of Intel's library.
test('a NUL after the certificates, zeros after the quote', async () => {
  const chain = `${chainOf(platform, issued)}\0`
  const made = await madeCase(platform, { ...good, quote: { ...good.quote, chain } })
  const verdict = await verdictOf({ ...made, quote: Uint8Array.from([...made.quote, ...new Uint8Array(71)]) })
  expect([verdict.ok, failed(verdict)]).toEqual([true, []])
})

// Goal: the policy judges what the signed parts say: status, advisories, number, age, platform.
test.each([
  ['tcbStatuses', { tcbStatuses: ['OutOfDate'] }, 'tcb-status'],
  ['minimumTcbEvaluationDataNumber', { minimumTcbEvaluationDataNumber: 18 }, 'tcb-evaluation-data-number'],
  ['minimumTcbDate', { minimumTcbDate: '2024-03-14' }, 'tcb-date'],
  ['maxCollateralAgeDays', { maxCollateralAgeDays: 0 }, 'collateral-age'],
  ['fmspcs', { fmspcs: ['000000000000'] }, 'fmspc'],
  ['ppids', { ppids: ['00'.repeat(16)] }, 'ppid'],
  ['teeTcbSvn2s', { teeTcbSvn2s: ['00'.repeat(16)] }, 'tee-tcb-svn2'],
])('refused by %s alone', async (_name, changes, check) => {
  const wanted = parseTdxPolicy({ ...encodeTdxPolicy(policy), ...changes })
  expect(failed(await verdictOf(await madeCase(platform, good), wanted))).toEqual([check])
})

const svns = (...first: number[]) => Uint8Array.of(...first, ...new Uint8Array(16 - first.length))
const [newest, oldest, before] = [svns(5, 1, 3), svns(2, 1, 3), svns(1, 1, 3)]

/** A TD launched with one module, on which another runs now. Two levels: components 3 and 0, of these statuses. */
async function updated(launched: Uint8Array, now: Uint8Array, levels: readonly [string, string]): Promise<TdxVerdict> {
  const moduleLevels = [svnLevel(4, 'UpToDate'), svnLevel(2, 'OutOfDate')]
  const identities = (tcbInfoOf(nowMs).tdxModuleIdentities as object[]).map(entry => ({
    ...entry,
    tcbLevels: moduleLevels,
  }))
  const [upper, lower] = levels.map((status, at) =>
    tcbLevel({ status, tdx: [at === 0 ? 5 : 0, 0, at === 0 ? 3 : 0, ...new Uint8Array(13)] }),
  )
  const report = {
    ...SIMULATED_REPORT,
    version: '1.5' as const,
    teeTcbSvn: launched,
    added: { teeTcbSvn2: now, mrServiceTd: new Uint8Array(48) },
  }
  const collateral = { tcbInfo: tcbInfoOf(nowMs, { tdxModuleIdentities: identities, tcbLevels: [upper, lower] }) }
  return await verdictOf(await madeCase(platform, { ...caseOf({ version: 5, report }), collateral }))
}

// Goal: a TD report 1.5 is judged by the module at the launch and by the one that runs now. Expected: Intel's library,
// TDRelaunchCheck and its tests, but that a current module below the launch's lowers the status.
test.each([
  ['the newest twice', newest, newest, ['UpToDate', 'OutOfDate'], 'UpToDate'],
  ['updated while the TD ran', oldest, newest, ['UpToDate', 'OutOfDate'], 'TDRelaunchAdvised'],
  ['hardening needed after a relaunch', oldest, newest, ['SWHardeningNeeded', 'OutOfDate'], 'TDRelaunchAdvised'],
  ['of one TDX_01 to one without identity', oldest, svns(5, 0, 3), ['UpToDate', 'OutOfDate'], 'TDRelaunchAdvised'],
  [
    'to be configured as well',
    oldest,
    newest,
    ['ConfigurationNeeded', 'OutOfDate'],
    'TDRelaunchAdvisedConfigurationNeeded',
  ],
  ['out of date twice', oldest, oldest, ['UpToDate', 'OutOfDate'], 'OutOfDate'],
  ['below the one of the launch', newest, oldest, ['UpToDate', 'OutOfDate'], 'OutOfDate'],
  ['zeros, which reach only an old level', newest, svns(), ['UpToDate', 'OutOfDate'], 'OutOfDate'],
  ['zeros, which reach only a revoked level', newest, svns(), ['UpToDate', 'Revoked'], 'Revoked'],
] as const)('a module %s', async (_name, launched, now, levels, status) => {
  const verdict = await updated(launched, now, levels)
  expect([verdict.level?.status, verdict.ok]).toEqual([status, status === 'UpToDate'])
  const failing = status === 'Revoked' ? ['tcb-not-revoked', 'tcb-status'] : ['tcb-status']
  expect(failed(verdict)).toEqual(status === 'UpToDate' ? [] : failing)
})

// Goal: a current module that Intel lists nowhere, or at no level, fails, whatever the module at the launch was.
test.each([
  ['below every level', before, 'TEE_TCB_SVN2: module TDX_01 at SVN 1 is below every level'],
  ['of an unknown version', svns(9, 9, 9), 'TEE_TCB_SVN2: the TCB info has no identity of module TDX_09'],
])('a current module %s', async (_name, now, reason) => {
  const verdict = await updated(newest, now, ['UpToDate', 'OutOfDate'])
  expect([verdict.ok, verdict.level]).toEqual([false, null])
  expect(verdict.checks.find(({ name }) => name === 'tcb-level')).toMatchObject({ outcome: 'fail', reason })
})

// Goal: zeros in TEE_TCB_SVN2 of a platform with one level do not pass as up to date.
test('zeros as the current module', async () => {
  const added = { teeTcbSvn2: svns(), mrServiceTd: new Uint8Array(48) }
  const report = { ...SIMULATED_REPORT, version: '1.5' as const, added }
  const verdict = await verdictOf(await madeCase(platform, caseOf({ version: 5, report })))
  expect([verdict.ok, failed(verdict)]).toEqual([false, ['tcb-level']])
})

// Goal: the default policy has a floor for date and evaluation, also for files written before the date existed.
test('defaults of date and evaluation', () => {
  expect([policy.minimumTcbDate, policy.minimumTcbEvaluationDataNumber]).toEqual(['2024-03-13', 17])
  const { minimumTcbDate, ...older } = encodeTdxPolicy({ ...policy, minimumTcbDate: 'any' })
  expect([minimumTcbDate, parseTdxPolicy(older).minimumTcbDate]).toEqual(['any', '2024-03-13'])
  expect(() => parseTdxPolicy({ ...older, minimumTcbDate: 'March' })).toThrow('minimumTcbDate: not a date like')
})

// Goal: an advisory that the level lists is refused, though its status is accepted.
test('refused advisories', async () => {
  const level = tcbLevel({ status: 'SWHardeningNeeded', advisories: ['INTEL-SA-00615'] })
  const collateral = { tcbInfo: tcbInfoOf(nowMs, { tcbLevels: [level] }) }
  const made = await madeCase(platform, { ...good, collateral })
  const asked = async (refusedAdvisories: TdxPolicy['refusedAdvisories']) => {
    const wanted: TdxPolicy = { ...policy, tcbStatuses: ['SWHardeningNeeded'], refusedAdvisories }
    return await verdictOf(made, wanted)
  }
  expect((await asked('any')).ok).toBe(true)
  expect((await asked(['INTEL-SA-00001'])).ok).toBe(true)
  expect(failed(await asked(['INTEL-SA-00615']))).toEqual(['advisories'])
})

// Goal: bytes that are nothing give a bad verdict and no error.
test('bytes that are nothing', async () => {
  const made = await madeCase(platform, good)
  const all = [
    await verdictOf({ ...made, quote: new Uint8Array(), collateral: new Uint8Array() }),
    await verdictOf({ ...made, collateral: utf8('{}') }),
    await verdictOf({ ...made, quote: new Uint8Array(700).fill(4) }),
  ]
  expect(all.map(({ ok }) => ok)).toEqual([false, false, false])
  expect(all.map(failed)).toEqual([['quote-form', 'collateral-form'], ['collateral-form'], ['quote-form']])
  expect(decodeQuote(made.quote).version).toBe(4)
})
