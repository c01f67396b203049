// Verifies that a TDX quote is genuine, judges its platform's TCB, and applies a policy, using only the quote, its
// collateral and a time. Pure. Intel TDX DCAP Quoting Library API, "Quote verification"; Intel PCS API version 4.

import { concat, equalConstantTime, toHex, utf8 } from '../../base/bytes.ts'
import { isZero } from '../encoding/layout.ts'
import { sha256 } from '../hash.ts'
import { type Parsed, parsed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import type { Certificate } from '../x509/certificate.ts'
import type { Crl } from '../x509/crl.ts'
import { isSignedByKeyOf, isSignedByPoint } from '../x509/ecdsa.ts'
import { appraiseTdx, type TdxCollateralFacts } from './appraise.ts'
import {
  type Anchor,
  crlFaults,
  decodeAnchor,
  decodeOnlyCrl,
  decodePckChain,
  decodeSigner,
  INTEL_ROOT,
  type PckChain,
  pckFaults,
  signerFaults,
  spanFaults,
  type TdxRoot,
} from './chain.ts'
import { type Collateral, parseCollateral } from './collateral.ts'
import { decodePckExtension, type PckExtension } from './pck-extension.ts'
import type { TdxPolicy } from './policy.ts'
import { decodeQuote, INTEL_QE_VENDOR, type TdxQuote } from './quote.ts'
import { parseQeIdentity, parseTcbInfo, type QeIdentity, type TcbInfo } from './tcb-info.ts'
import {
  combined,
  type LevelLookup,
  moduleLevel,
  moduleSvnLevel,
  platformLevel,
  qeFault,
  qeLevel,
  type TcbLevel,
  withCurrent,
} from './tcb-level.ts'

/** Checks made for every quote, in this order, before the checks of the policy. */
export const TDX_CHECKS = [
  'quote-form',
  'collateral-form',
  'pck-chain',
  'root-crl',
  'pck-crl',
  'revocation',
  'tcb-info-chain',
  'tcb-info-signature',
  'tcb-info-time',
  'qe-identity-chain',
  'qe-identity-signature',
  'qe-identity-time',
  'qe-vendor',
  'qe-report-signature',
  'qe-report-binding',
  'qe-identity',
  'quote-signature',
  'tcb-info-platform',
  'tdx-module',
  'tcb-level',
  'tcb-not-revoked',
] as const

type Name = (typeof TDX_CHECKS)[number]

export type TdxQuestion = {
  readonly asOfMs: number
  readonly policy: TdxPolicy
  /** Default: Intel's. */
  readonly root?: TdxRoot | undefined
}

export type TdxVerdict = Verdict & {
  /** Null if unreadable. */
  readonly quote: TdxQuote | null
  readonly pck: PckExtension | null
  /** Combined level of the platform, the TDX module and the quoting enclave; null if any of them has none. */
  readonly level: TcbLevel | null
  /** Time until which this collateral is valid; null if it is unreadable. */
  readonly untilMs: number | null
}

/** Verifies a quote. Never throws: bytes that are not a quote or collateral fail their checks. */
export async function verifyTdxQuote(
  quoteBytes: Uint8Array,
  collateralBytes: Uint8Array,
  question: TdxQuestion,
): Promise<TdxVerdict> {
  const root = question.root ?? INTEL_ROOT
  const quote = parsed(() => decodeQuote(quoteBytes))
  const anchor = parsed(() => decodeAnchor(root))
  const found = anchor.ok ? parsed(() => partsOf(parseCollateral(collateralBytes), anchor.value)) : anchor
  const checks = [formCheck('quote-form', quote), formCheck('collateral-form', found)]
  if (!quote.ok) return unread(checks)
  if (!anchor.ok || !found.ok) return { ...unread(checks), quote: quote.value }
  const chain = parsed(() => pckOf(quote.value, anchor.value))
  checks.push(...(await collateralChecks(found.value, anchor.value, question.asOfMs)))
  if (!chain.ok) {
    checks.push(fail('pck-chain', chain.reason))
    return { ...unread(checks), quote: quote.value }
  }
  const { pck } = chain.value
  const { judged, level } = platformChecks(quote.value, pck, found.value)
  checks.push(
    ...(await chainChecks(chain.value, found.value, anchor.value, question.asOfMs)),
    ...(await quoteChecks(quote.value, chain.value.chain.pck, found.value.identity)),
    ...judged,
  )
  const beside = { pck, level, collateral: datesOf(found.value, question.asOfMs) }
  const all = [...inOrder(checks), ...appraiseTdx(quote.value, question.policy, beside)]
  return { ...verdict(all), quote: quote.value, pck, level, untilMs: untilOf(found.value) }
}

type Parts = {
  readonly collateral: Collateral
  readonly info: TcbInfo
  readonly identity: QeIdentity
  readonly infoSigner: Certificate
  readonly identitySigner: Certificate
  readonly rootCrl: Crl
  readonly pckCrl: Crl
}

type Pck = { readonly chain: PckChain; readonly pck: PckExtension }

function partsOf(collateral: Collateral, anchor: Anchor): Parts {
  return {
    collateral,
    info: parseTcbInfo(collateral.tcb_info),
    identity: parseQeIdentity(collateral.qe_identity),
    infoSigner: decodeSigner(collateral.tcb_info_issuer_chain, anchor, 'TCB info issuer chain'),
    identitySigner: decodeSigner(collateral.qe_identity_issuer_chain, anchor, 'QE identity issuer chain'),
    rootCrl: decodeOnlyCrl(collateral.root_ca_crl, 'root CRL'),
    pckCrl: decodeOnlyCrl(collateral.pck_crl, 'PCK CRL'),
  }
}

function pckOf({ pckChain }: TdxQuote, anchor: Anchor): Pck {
  const chain = decodePckChain(pckChain, anchor)
  return { chain, pck: decodePckExtension(chain.pck.extensions) }
}

/** Checks the two signed documents, and the root's revocation list. */
async function collateralChecks(parts: Parts, anchor: Anchor, asOfMs: number): Promise<Check[]> {
  const { collateral, info, identity, infoSigner, identitySigner } = parts
  const [infoChain, identityChain, infoSigned, identitySigned, rootCrl] = await Promise.all([
    signerFaults(infoSigner, anchor, asOfMs),
    signerFaults(identitySigner, anchor, asOfMs),
    isSignedByKeyOf(infoSigner, utf8(collateral.tcb_info), collateral.tcb_info_signature),
    isSignedByKeyOf(identitySigner, utf8(collateral.qe_identity), collateral.qe_identity_signature),
    crlFaults(parts.rootCrl, anchor.decoded, asOfMs),
  ])
  const notSigned = ["the signature is not the TCB signing certificate's"]
  const trusted = anchor.simulated ? 'SIMULATED root: no hardware attests the keys below it' : "Intel's pinned root"
  return [
    without('root-crl', rootCrl),
    without('tcb-info-chain', infoChain, trusted),
    without('tcb-info-signature', infoSigned ? [] : notSigned),
    without('tcb-info-time', spanFaults(info.issueDate, info.nextUpdate, asOfMs)),
    without('qe-identity-chain', identityChain, trusted),
    without('qe-identity-signature', identitySigned ? [] : notSigned),
    without('qe-identity-time', spanFaults(identity.issueDate, identity.nextUpdate, asOfMs)),
  ]
}

async function chainChecks({ chain }: Pck, parts: Parts, anchor: Anchor, asOfMs: number): Promise<Check[]> {
  const { rootCrl, pckCrl, infoSigner, identitySigner } = parts
  const byRoot = [chain.authority, infoSigner, identitySigner].filter(({ serial }) => rootCrl.revoked.has(serial))
  const byAuthority = pckCrl.revoked.has(chain.pck.serial) ? [chain.pck] : []
  const revoked = [...byRoot, ...byAuthority].map(({ serial }) => `serial number ${serial} is revoked`)
  const trusted = anchor.simulated ? 'SIMULATED root: no hardware attests the keys below it' : "Intel's pinned root"
  return [
    without('pck-chain', await pckFaults(chain, anchor, asOfMs), trusted),
    without('pck-crl', await crlFaults(pckCrl, chain.authority, asOfMs)),
    without('revocation', revoked, `by lists in force until ${new Date(untilOf(parts)).toISOString()} with the rest`),
  ]
}

/**
 * Checks the signatures from the PCK key, over the quoting enclave's report and the attestation key, to the TD report.
 */
async function quoteChecks(quote: TdxQuote, pck: Certificate, identity: QeIdentity): Promise<Check[]> {
  const { header, qeReport, attestationKey } = quote
  const vendor = toHex(header.qeVendorId)
  const bound = sha256(concat(attestationKey, quote.qeAuthData))
  const isBound =
    equalConstantTime(qeReport.reportData.subarray(0, 32), bound) && isZero(qeReport.reportData.subarray(32))
  const isQeSigned = await isSignedByKeyOf(pck, quote.qeReportBytes, quote.qeReportSignature)
  const isSigned = await isSignedByPoint(quote.signedBytes, quote.signature, attestationKey)
  const fault = qeFault(identity, qeReport)
  return [
    check('qe-vendor', vendor === INTEL_QE_VENDOR, `the quoting enclave is of vendor ${vendor}, not Intel`),
    check('qe-report-signature', isQeSigned, "the signature is not the PCK certificate's"),
    check('qe-report-binding', isBound, "the quoting enclave's report does not name this attestation key"),
    without('qe-identity', fault === null ? [] : [fault]),
    check('quote-signature', isSigned, "the signature is not the attestation key's"),
  ]
}

function platformChecks(
  { report, qeReport }: TdxQuote,
  pck: PckExtension,
  { info, identity }: Parts,
): { readonly judged: Check[]; readonly level: TcbLevel | null } {
  const isPlatform = equalConstantTime(info.fmspc, pck.fmspc) && equalConstantTime(info.pceId, pck.pceId)
  const other = `the TCB info is for FMSPC ${toHex(info.fmspc)}, PCEID ${toHex(info.pceId)}, not for this platform`
  const module = moduleLevel(info, report)
  const platformCheck = check('tcb-info-platform', isPlatform, other, `FMSPC ${toHex(pck.fmspc)}`)
  const moduleCheck = module.ok ? pass('tdx-module') : fail('tdx-module', module.reason)
  const platform = platformLevel(info, pck, report.teeTcbSvn)
  const qe = qeLevel(identity, qeReport)
  // A report of TDX 1.0 names no module but that of the launch.
  const svns = report.added?.teeTcbSvn2 ?? null
  const nowPlatform = svns === null ? platform : platformLevel(info, pck, svns)
  const nowModule = svns === null ? module : moduleSvnLevel(info, svns)
  if (!platform.ok || !qe.ok || !module.ok || !nowPlatform.ok || !nowModule.ok) {
    const reasonsOf = (all: readonly LevelLookup[]) => all.flatMap(found => (found.ok ? [] : [found.reason]))
    const launch = reasonsOf([platform, qe, module])
    const now = svns === null ? [] : reasonsOf([nowPlatform, nowModule]).map(reason => `TEE_TCB_SVN2: ${reason}`)
    return { judged: [platformCheck, moduleCheck, fail('tcb-level', [...launch, ...now].join('; '))], level: null }
  }
  const launch = combined(platform.level, [module.level, qe.level])
  const level = svns === null ? launch : withCurrent(launch, combined(nowPlatform.level, [nowModule.level, qe.level]))
  const now = svns === null ? '' : `, current module ${nowModule.level.status} on platform ${nowPlatform.level.status}`
  const text = `platform ${platform.level.status}, module ${module.level.status}, quoting enclave ${qe.level.status}${now}`
  const judged = [
    platformCheck,
    moduleCheck,
    pass('tcb-level', text),
    check('tcb-not-revoked', level.status !== 'Revoked', `the TCB is revoked: ${text}`, level.status),
  ]
  return { judged, level }
}

function datesOf({ info, identity, rootCrl, pckCrl }: Parts, asOfMs: number): TdxCollateralFacts['collateral'] {
  return {
    asOfMs,
    issuedMs: Math.min(info.issueDate, identity.issueDate, rootCrl.thisUpdateMs, pckCrl.thisUpdateMs),
    evaluationDataNumber: Math.min(info.tcbEvaluationDataNumber, identity.tcbEvaluationDataNumber),
  }
}

function untilOf({ info, identity, rootCrl, pckCrl }: Parts): number {
  return Math.min(info.nextUpdate, identity.nextUpdate, rootCrl.nextUpdateMs ?? 0, pckCrl.nextUpdateMs ?? 0)
}

function formCheck(name: Name, read: Parsed<unknown>): Check {
  return read.ok ? pass(name) : fail(name, read.reason)
}

function without(name: Name, faults: readonly string[], success = ''): Check {
  return check(name, faults.length === 0, faults.join('; '), success)
}

/**
 * Puts checks in order. A check whose input is missing after an earlier failure is not made, and the verdict is bad.
 */
function inOrder(made: readonly Check[]): Check[] {
  return TDX_CHECKS.map(
    name => made.find(check => check.name === name) ?? notChecked(name, 'an earlier check left nothing to judge', true),
  )
}

function unread(made: readonly Check[]): TdxVerdict {
  return { ...verdict(inOrder(made)), quote: null, pck: null, level: null, untilMs: null }
}
