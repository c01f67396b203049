// Goal: TDX quotes are judged as an independent implementation judges them, @phala/dcap-qvl: random, validly signed
// ones with random TCB levels and with every fault. Where that one does not look, ours refuses by name.
// STRONGROOM_TDX_CASES=100000 asks more. A fifth of the random cases, every second byte and a round of faults for each
// form run by default; scripts/test --all runs everything.

import { beforeAll, describe, expect, test } from 'bun:test'
import { QuoteVerifier } from '@phala/dcap-qvl'
import { casesOf, runsAll } from '../../../scripts/rigs/all.ts'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import type { TdxRoot } from '../../../src/attest/tdx/chain.ts'
import { strictTdxPolicy } from '../../../src/attest/tdx/encode-policy.ts'
import type { TdxPolicy } from '../../../src/attest/tdx/policy.ts'
import { TCB_STATUSES, type TcbStatus } from '../../../src/attest/tdx/tcb-info.ts'
import { type TdxVerdict, verifyTdxQuote } from '../../../src/attest/tdx/verify.ts'
import { fromUtf8 } from '../../../src/base/bytes.ts'
import { FAULTS, type MadeCase, madeCase, type TdxCase } from '../../rigs/attest/tdx/faults.ts'
import { QUOTE_FORMS } from '../../rigs/attest/tdx/quotes.ts'
import {
  type Issued,
  type PckFields,
  partsOf,
  qeIdentityOf,
  SIMULATED_PCK,
  SIMULATED_REPORT,
  type SimulatedTdx,
  simulateTdx,
  svnLevel,
  tcbInfoOf,
  tcbLevel,
} from '../../rigs/attest/tdx/simulated.ts'

const allCases = 2000
const caseCount = Number(process.env.STRONGROOM_TDX_CASES ?? casesOf(allCases))
const nowMs = Date.parse('2026-01-01T00:00:00Z')
const draw = createDraw(Number(process.env.STRONGROOM_TDX_SEED ?? 1))

/** Refuses the TDs that the second implementation refuses by itself, and no status but a revoked one. */
const policy: TdxPolicy = {
  ...strictTdxPolicy(),
  tdAttributes: { ...strictTdxPolicy().tdAttributes, icssd: 'forbidden', lass: 'forbidden', tpa: 'forbidden' },
  headerReserved: 'any',
  tcbStatuses: 'any',
}

type Second =
  | { readonly ok: true; readonly status: string; readonly advisories: readonly string[] }
  | { readonly ok: false; readonly reason: string }

function second({ quote, collateral, asOfMs }: MadeCase, rootDer: Uint8Array): Second {
  const verifier = QuoteVerifier.newWithRootCa(Buffer.from(rootDer))
  try {
    const { status, advisory_ids } = verifier.verify(
      Buffer.from(quote),
      JSON.parse(fromUtf8(collateral)),
      asOfMs / 1000,
    )
    return { ok: true, status, advisories: advisory_ids }
  } catch (error) {
    return { ok: false, reason: String(error) }
  }
}

async function first({ quote, collateral, asOfMs }: MadeCase, root: TdxRoot): Promise<TdxVerdict> {
  return await verifyTdxQuote(quote, collateral, { asOfMs, policy, root })
}

let platform: SimulatedTdx
let platforms: { readonly pck: PckFields; readonly issued: Issued }[]

beforeAll(async () => {
  platform = await simulateTdx(nowMs)
  const fields = Array.from({ length: 24 }, (_, at) => ({
    ...SIMULATED_PCK,
    components: Array.from({ length: 16 }, () => draw(4)),
    pceSvn: [11, 10, 13, 300][draw(4)] ?? 11,
    serial: `1${String(at).padStart(3, '0')}`,
  }))
  platforms = await Promise.all(fields.map(async pck => ({ pck, issued: await platform.pck(pck) })))
})

describe.each(QUOTE_FORMS.map((form, index) => ({ ...form, index })))('$name', ({ version, report, index }) => {
  // Goal: no signed byte can change: of the body, the attestation key, the QE report, its signature and its data. Every
  // field of two bytes or more is in each sample, and forms take turns with the other bytes.
  test('every byte up to the certificates', async () => {
    const quote = { version, report }
    const issued = await platform.pck(SIMULATED_PCK)
    const good = await madeCase(platform, { pck: SIMULATED_PCK, issued, quote, collateral: {}, asOfMs: nowMs })
    expect((await first(good, platform.root)).ok).toBe(true)
    const certificates = Buffer.from(good.quote).indexOf('-----BEGIN')
    expect(certificates).toBe(partsOf(version, report).qeSignature + 64 + 2 + 32 + 6)
    const accepted: number[] = []
    const step = runsAll ? 1 : 2
    for (let at = index % step; at < certificates; at += step) {
      const changed = good.quote.with(at, (good.quote[at] ?? 0) ^ (1 << (at & 7)))
      if ((await first({ ...good, quote: changed }, platform.root)).ok) accepted.push(at)
    }
    expect(accepted).toEqual([])
  })
})

const some = (count: number, most: number) => Array.from({ length: count }, () => draw(most))
/** Mostly zeros, so that a platform reaches some of them. */
const rarely = (count: number, most: number) => Array.from({ length: count }, () => (draw(16) === 0 ? draw(most) : 0))
const statusOf = () => TCB_STATUSES[draw(TCB_STATUSES.length)] ?? 'UpToDate'
const advisoriesOf = () =>
  some(draw(4), 9)
    .map(number => `INTEL-SA-0000${number}`)
    .filter((id, at, all) => all.indexOf(id) === at)

/** A platform of random SVNs, and a list of random levels, that of zeros mostly at its end. */
function randomCase(): { readonly wanted: TdxCase; readonly moduleStatus: TcbStatus | 'none' } {
  const { pck, issued } = platforms[draw(platforms.length)] ?? {
    pck: SIMULATED_PCK,
    issued: platforms[0]?.issued as Issued,
  }
  const version = draw(2) === 0 ? 4 : 5
  const isLater = version === 5 && draw(2) === 0
  const hasModule = draw(2) === 0
  const levels = Array.from({ length: draw(5) }, () => {
    return tcbLevel({
      status: statusOf(),
      sgx: rarely(16, 4),
      // With a module of its own the second implementation compares components that Intel does not: they are 0 here.
      tdx: [hasModule ? 0 : draw(4), hasModule ? 0 : draw(9) >> 3, ...rarely(14, 4)],
      pceSvn: [10, 11, 12, 257][draw(4)] ?? 11,
      advisories: advisoriesOf(),
    })
  })
  const last = tcbLevel({ status: statusOf(), sgx: new Array(16).fill(0), tdx: new Array(16).fill(0), pceSvn: 1 })
  const moduleStatus = hasModule ? ((['UpToDate', 'OutOfDate', 'Revoked'] as const)[draw(3)] ?? 'UpToDate') : 'none'
  const info = tcbInfoOf(nowMs, { tcbLevels: draw(8) === 0 && levels.length > 0 ? levels : [...levels, last] })
  const identities = (info.tdxModuleIdentities as { tcbLevels: unknown }[]).map(identity => ({
    ...identity,
    tcbLevels: [svnLevel(4, 'UpToDate'), svnLevel(2, 'OutOfDate'), svnLevel(0, 'Revoked')],
  }))
  const moduleSvn = { UpToDate: 4 + draw(3), OutOfDate: 2 + draw(2), Revoked: draw(2), none: draw(4) }[moduleStatus]
  const bits = [1n << 30n, 1n << 31n, 1n << 63n, 0n].map(bit => (draw(2) === 0 ? bit : 0n))
  const faulty = draw(12) === 0 ? 1n << BigInt(draw(64)) : 0n
  const teeTcbSvn = Uint8Array.of(moduleSvn, hasModule ? 1 : 0, ...some(14, 4))
  const report = {
    ...SIMULATED_REPORT,
    version: isLater ? ('1.5' as const) : ('1.0' as const),
    teeTcbSvn,
    tdAttributes: (1n << 28n) ^ bits.reduce((sum, bit) => sum | bit, 0n) ^ faulty,
    reportData: Uint8Array.from(some(64, 256)),
    // The second implementation does not look at TEE_TCB_SVN2: here the module is still that of the launch.
    added: isLater ? { teeTcbSvn2: teeTcbSvn, mrServiceTd: new Uint8Array(48) } : null,
  }
  const qeLevels = [svnLevel(6, 'UpToDate'), svnLevel(4, 'OutOfDate'), svnLevel(2, 'Revoked')]
  const quote = {
    version: version as 4 | 5,
    report,
    qe: { isvSvn: draw(5) === 0 ? draw(8) : 6 + draw(3), cpuSvn: Uint8Array.from(some(16, 256)) },
    authData: Uint8Array.from(some(32, 256)),
    header: { userData: Uint8Array.from(some(20, 256)) },
  }
  const collateral = {
    tcbInfo: { ...info, tdxModuleIdentities: identities },
    qeIdentity: qeIdentityOf(nowMs, { tcbLevels: qeLevels }),
  }
  return { wanted: { pck, issued, quote, collateral, asOfMs: nowMs + draw(86_400) * 1000 }, moduleStatus }
}

/**
 * Two differences are known: the second implementation does not look at the identities of TDX modules, and takes the
 * worse of two statuses where Intel makes `OutOfDateConfigurationNeeded` of them.
 */
function expectedOf(theirs: Second, moduleStatus: TcbStatus | 'none', ours: TdxVerdict): Second {
  if (!theirs.ok) return theirs
  if (moduleStatus === 'Revoked') return { ok: false, reason: 'the module is revoked' }
  const text = ours.checks.find(({ name }) => name === 'tcb-level')?.reason ?? ''
  const platformStatus = /platform (\w+)/.exec(text)?.[1] ?? ''
  const isBehind = moduleStatus === 'OutOfDate' || text.includes('quoting enclave OutOfDate')
  const status = !isBehind
    ? theirs.status
    : /Configuration/.test(platformStatus)
      ? 'OutOfDateConfigurationNeeded'
      : 'OutOfDate'
  return { ...theirs, status }
}

// Goal: not one random case is judged otherwise, and they are neither all good nor all bad.
test(
  `${caseCount} of ${allCases} random cases`,
  async () => {
    const seen = new Map<string, number>()
    for (let at = 0; at < caseCount; at += 1) {
      const { wanted, moduleStatus } = randomCase()
      const made = await madeCase(platform, wanted)
      const ours = await first(made, platform.root)
      const theirs = expectedOf(second(made, platform.rootDer), moduleStatus, ours)
      const reason = theirs.ok ? ours.checks.find(({ outcome }) => outcome === 'fail')?.reason : theirs.reason
      expect([at, ours.ok, reason ?? '']).toEqual([at, theirs.ok, reason ?? ''])
      if (theirs.ok) {
        const { status, advisories } = ours.level ?? { status: 'none', advisories: [] }
        expect([at, status, advisories]).toEqual([at, theirs.status as TcbStatus, [...new Set(theirs.advisories)]])
      }
      const kind = theirs.ok ? theirs.status : 'refused'
      seen.set(kind, (seen.get(kind) ?? 0) + 1)
    }
    const kinds = [...TCB_STATUSES.filter(status => status !== 'Revoked'), 'refused']
    expect(kinds.filter(kind => (seen.get(kind) ?? 0) < caseCount / 100)).toEqual([])
  },
  caseCount * 200 + 60_000,
)

const rounds = runsAll ? 9 : QUOTE_FORMS.length

// Goal: each fault, on random platforms and in each form, is refused by ours, and by the second wherever it looks.
describe('faults', () => {
  test.each(Object.entries(FAULTS))('%s', async (_name, fault) => {
    for (let round = 0; round < rounds; round += 1) {
      const form = QUOTE_FORMS[round % QUOTE_FORMS.length]
      if (form === undefined) throw new Error('no form of a quote')
      const { pck, issued } = platforms[draw(platforms.length)] ?? {
        pck: SIMULATED_PCK,
        issued: platforms[0]?.issued as Issued,
      }
      const all = tcbLevel({ status: 'UpToDate', sgx: new Array(16).fill(0), tdx: new Array(16).fill(0), pceSvn: 1 })
      const report = { ...form.report, reportData: Uint8Array.from(some(64, 256)) }
      const good: TdxCase = {
        pck,
        issued,
        quote: { version: form.version, report },
        collateral: { tcbInfo: tcbInfoOf(nowMs, { tcbLevels: [all] }) },
        asOfMs: nowMs,
      }
      const before = await madeCase(platform, good)
      expect([(await first(before, platform.root)).ok, second(before, platform.rootDer).ok]).toEqual([true, true])
      const made = await madeCase(platform, await fault.change(platform, good))
      expect((await first(made, platform.root)).ok).toBe(false)
      expect(second(made, platform.rootDer).ok).toBe(fault.second === 'does not look')
    }
  })
})
