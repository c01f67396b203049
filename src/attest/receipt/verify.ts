// Verifies receipts offline: envelope, statement, keys, signatures, hardware evidence, and the relying party's
// expectations. Pure.
//
// The checks and their order are always the same. Nothing is thrown: a bad receipt is a failed check.

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import type { TrustedRoot } from '../amd/roots.ts'
import { parsed, reasonOf } from '../malformed.ts'
import type { Policy } from '../policy/policy.ts'
import type { SnpReport } from '../report/report.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../verdict.ts'
import { type PreparedChain, prepareChain } from '../verify/chain-prepare.ts'
import { type EvidenceQuestion, type EvidenceVerdict, verifyEvidence } from '../verify/evidence.ts'
import { type HybridVerifiers, judgeHybrid } from './hybrid-verify.ts'
import { keysDigest } from './public-keys.ts'
import { type DecodedReceipt, decodeReceipt, type Platform } from './receipt.ts'
import {
  decodeStatement,
  reportDataOf,
  STATEMENT_FIELDS,
  type Statement,
  type StatementKind,
  type StatementOf,
  statementContext,
} from './statement.ts'

/** Fields without an expectation, because other checks cover them. */
const checkedElsewhere = ['format', 'kind', 'scope', 'nonce', 'issuedAt', 'keysDigest', 'image'] as const
type CheckedElsewhere = (typeof checkedElsewhere)[number]

/** For every field of the kind: the value that it must equal, or 'any'. The policy decides on `image.measurement`. */
export type Expected<Kind extends StatementKind> = {
  readonly [Name in Exclude<keyof StatementOf<Kind>, CheckedElsewhere>]:
    | 'any'
    | { readonly equals: StatementOf<Kind>[Name] }
} & { readonly imageName: 'any' | { readonly equals: string } }

/** Expects exactly these values. */
export function exactly<const Fields extends object>(fields: Fields) {
  const entries = Object.entries(fields).map(([name, equals]) => [name, { equals }])
  return Object.fromEntries(entries) as { readonly [Name in keyof Fields]: { readonly equals: Fields[Name] } }
}

/** Judges `evidence.tpm` (null if the receipt has none). Its checks become part of the verdict. */
export type VerifyTpm = (
  tpm: Uint8Array | null,
  context: { readonly statement: Statement; readonly statementBytes: Uint8Array; readonly evidence: EvidenceVerdict },
) => Promise<readonly Check[]>

export type ReceiptQuestion<Kind extends StatementKind = StatementKind> = {
  readonly kind: Kind
  readonly nonce: Uint8Array | 'any'
  readonly asOf: Date | number
  /** Maximum age of the statement at `asOf`. With a nonce it may also be this far in the future. */
  readonly ageMsMax: number | 'any'
  readonly roots: readonly TrustedRoot[]
  readonly requireCrl: boolean
  readonly policy: Policy | 'any'
  readonly expected: Expected<Kind>
  readonly tpm: VerifyTpm | 'any'
  readonly maskedChipId?: EvidenceQuestion['maskedChipId']
  readonly product?: EvidenceQuestion['product']
  readonly verifiers?: HybridVerifiers
  /** For kind `workload`: the expected HOST_DATA. Default: the digest of the statement's allowlist. */
  readonly hostData?: Uint8Array
}

export type ReceiptVerdict<Kind extends StatementKind = StatementKind> = Verdict & {
  /** Null if the statement is unreadable or of another kind. Trust it only in a good verdict. */
  readonly statement: StatementOf<Kind> | null
  readonly report: SnpReport | null
  /** True if the chain ends at a root that is not AMD's. */
  readonly simulated: boolean
}

/** Verifies a receipt given as text or as parsed JSON. Never throws. */
export async function judgeReceipt<Kind extends StatementKind>(
  json: unknown,
  question: ReceiptQuestion<Kind> & { readonly verifiers: HybridVerifiers },
): Promise<ReceiptVerdict<Kind>> {
  const envelope = parsed(() => decodeReceipt(json))
  if (!envelope.ok) return unread(question.kind, [fail('receipt-format', envelope.reason)])
  const receipt = envelope.value
  const decoded = parsed(() => decodeStatement(receipt.statement))
  const format = pass('receipt-format')
  if (!decoded.ok) return unread(question.kind, [format, fail('statement-format', decoded.reason)])
  const statement = decoded.value
  const [{ evidence, chain }, signatures] = await Promise.all([
    judgeEvidence(receipt, question),
    judgeHybrid(receipt.keys, receipt.statement, receipt.signatures, {
      context: statementContext,
      verifiers: question.verifiers,
    }),
  ])
  const isOfKind = isKind(statement, question.kind)
  const checks = [
    format,
    pass('statement-format'),
    keysCheck(receipt, statement),
    ...signatures,
    chain,
    check('evidence', evidence.ok, 'the hardware evidence is not good; see its checks'),
    ...evidence.checks,
    reportDataCheck(receipt, evidence.report),
    nonceCheck(statement, question.nonce),
    ageCheck(statement, question),
    platformCheck(receipt.platform, evidence.simulated),
    measurementCheck(statement, evidence.report),
    operatorKeyCheck(statement, evidence.report),
    ...(await tpmChecks(receipt, statement, evidence, question.tpm)),
    check('statement-kind', isOfKind, `the statement is a ${statement.kind}, not a ${question.kind}`),
    ...kindChecks(isOfKind ? statement : null, question, evidence.report),
  ]
  const { report, simulated } = evidence
  return { ...verdict(checks), statement: isOfKind ? statement : null, report, simulated }
}

/** How far a guest's clock may run ahead of the verifier's if no nonce proves that the statement is fresh. */
const clockSkewMsMax = 60_000

function isKind<Kind extends StatementKind>(
  statement: Statement,
  kind: Kind,
): statement is Statement & StatementOf<Kind> {
  return statement.kind === kind
}

/** Returns the names of the checks that follow, for unreadable receipts. */
function laterNames(kind: StatementKind): string[] {
  return [
    'statement-format',
    'keys-digest',
    'signature-ed25519',
    'signature-mldsa65',
    'receipt-chain',
    'evidence',
    'statement-report-data',
    'statement-nonce',
    'statement-age',
    'platform',
    'statement-measurement',
    'statement-operator-key',
    'tpm',
    'statement-kind',
    ...expectationNames(kind).map(checkNameOf),
    ...(kind === 'workload' ? ['host-data-allowlist'] : []),
  ]
}

function unread(kind: StatementKind, checks: readonly Check[]): ReceiptVerdict<never> {
  const done = checks.map(check => check.name)
  const later = laterNames(kind).filter(name => !done.includes(name))
  const skipped = later.map(name => notChecked(name, 'the receipt cannot be read', true))
  return { ...verdict([...checks, ...skipped]), statement: null, report: null, simulated: false }
}

async function judgeEvidence(
  { evidence: { report, vek, chain, crl } }: DecodedReceipt,
  { asOf, roots, requireCrl, policy, maskedChipId, product }: ReceiptQuestion,
): Promise<{ readonly evidence: EvidenceVerdict; readonly chain: Check }> {
  try {
    const prepared = await prepareChain({ vek, chain, crl, roots })
    const evidence = await verifyEvidence({ report, prepared, asOf, requireCrl, policy, maskedChipId, product })
    return { evidence, chain: chainCheck(prepared, [vek, ...chain]) }
  } catch (error) {
    const failed = [fail('evidence-unexpected', reasonOf(error))]
    const evidence = { ...verdict(failed), report: null, product: null, simulated: false }
    return { evidence, chain: notChecked(chainName, 'the evidence could not be checked', true) }
  }
}

const chainName = 'receipt-chain'

/** Requires exactly the certificates of the chain, each in its position; verifyEvidence would ignore extra ones. */
function chainCheck({ found }: PreparedChain, given: readonly Uint8Array[]): Check {
  if (found === null) return notChecked(chainName, 'there is no chain', true)
  const used = [found.vek, found.intermediate, found.ark]
  const isExact = used.every(({ der }, at) => equalConstantTime(der, given[at] ?? new Uint8Array(0)))
  return check(chainName, isExact, 'the certificates in the receipt are not the chain that was verified')
}

function keysCheck(receipt: DecodedReceipt, statement: Statement): Check {
  const isSame = equalConstantTime(keysDigest(receipt.keys), statement.keysDigest)
  return check('keys-digest', isSame, 'the keys are not those of the statement')
}

function reportDataCheck(receipt: DecodedReceipt, report: SnpReport | null): Check {
  const name = 'statement-report-data'
  if (report === null) return notChecked(name, 'there is no report', true)
  const isSame = equalConstantTime(report.reportData, reportDataOf(receipt.statement))
  return check(name, isSame, 'REPORT_DATA is not SHA-512 of the statement')
}

function nonceCheck(statement: Statement, nonce: Uint8Array | 'any'): Check {
  const name = 'statement-nonce'
  if (nonce === 'any') return notChecked(name, "skipped by the caller ('any')", false)
  const isSame = equalConstantTime(statement.nonce, nonce)
  return check(name, isSame, `the nonce is ${toHex(statement.nonce)}, not ${toHex(nonce)}`)
}

/**
 * With a nonce the statement is fresh, and a time in the future only means that the clocks differ: allow the same span.
 */
function ageCheck(statement: Statement, { asOf, ageMsMax, nonce }: ReceiptQuestion): Check {
  const name = 'statement-age'
  if (ageMsMax === 'any') return notChecked(name, "skipped by the caller ('any')", false)
  const ageMs = Number(asOf) - statement.issuedAt
  const aheadMsMax = nonce === 'any' ? clockSkewMsMax : Math.max(clockSkewMsMax, ageMsMax)
  if (ageMs < 0) {
    const seen = `issued ${-ageMs} ms after the time of verification (the clocks differ), at most ${aheadMsMax}`
    return check(name, -ageMs <= aheadMsMax, `${seen}: set the clock that is wrong, here or there`, seen)
  }
  const seen = `issued ${ageMs} ms before the time of verification, at most ${ageMsMax}`
  return check(name, ageMs <= ageMsMax, seen, seen)
}

function platformCheck(platform: Platform, simulated: boolean): Check {
  const found: Platform = simulated ? 'simulated' : 'snp'
  return check('platform', platform === found, `the receipt names ${platform}, but its root is of ${found}`, found)
}

function measurementCheck(statement: Statement, report: SnpReport | null): Check {
  const name = 'statement-measurement'
  if (report === null) return notChecked(name, 'there is no report', true)
  const isSame = equalConstantTime(report.measurement, statement.image.measurement)
  return check(name, isSame, 'the measurement in the statement is not the one in the report')
}

function operatorKeyCheck(statement: Statement, report: SnpReport | null): Check {
  const name = 'statement-operator-key'
  if (report === null) return notChecked(name, 'there is no report', true)
  const isSame = equalConstantTime(report.idKeyDigest, statement.operatorKey)
  return check(name, isSame, "the operator key in the statement is not the report's ID key")
}

async function tpmChecks(
  receipt: DecodedReceipt,
  statement: Statement,
  evidence: EvidenceVerdict,
  tpm: VerifyTpm | 'any',
): Promise<readonly Check[]> {
  if (tpm === 'any') return [notChecked('tpm', "skipped by the caller ('any')", false)]
  try {
    const context = { statement, statementBytes: receipt.statement, evidence }
    const checks = await tpm(receipt.evidence.tpm ?? null, context)
    return [check('tpm', verdict(checks).ok, 'the TPM evidence is not good; see its checks'), ...checks]
  } catch (error) {
    return [fail('tpm', reasonOf(error))]
  }
}

function expectationNames(kind: StatementKind): string[] {
  const own = Object.keys(STATEMENT_FIELDS[kind]).filter(name => !checkedElsewhere.some(kind => kind === name))
  return ['imageName', ...own]
}

/** Returns the check name of a field: `imageDigest` becomes `expected-image-digest`. */
export function checkNameOf(field: string): string {
  return `expected-${field.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`
}

/**
 * Returns one check for each field of the kind, in the table's order. For workloads, HOST_DATA must bind the allowlist.
 */
function kindChecks(statement: Statement | null, question: ReceiptQuestion, report: SnpReport | null): Check[] {
  const expected: Readonly<Record<string, unknown>> = question.expected
  const checks = expectationNames(question.kind).map(field => {
    const name = checkNameOf(field)
    if (statement === null) return notChecked(name, 'the statement is of another kind', true)
    const values: Readonly<Record<string, unknown>> = { ...statement, imageName: statement.image.name }
    return expectationCheck(name, expected[field], values[field])
  })
  if (question.kind !== 'workload') return checks
  const name = 'host-data-allowlist'
  if (statement?.kind !== 'workload' || report === null)
    return [...checks, notChecked(name, 'nothing to compare', true)]
  const { hostData } = question
  const isSame = equalConstantTime(report.hostData, hostData ?? statement.allowlistDigest)
  const what = hostData === undefined ? 'the allowlist' : 'workload.json, which names the allowlist'
  return [...checks, check(name, isSame, `HOST_DATA is not the SHA-256 of ${what}`)]
}

function expectationCheck(name: string, expected: unknown, value: unknown): Check {
  if (expected === 'any') return notChecked(name, "skipped by the caller ('any')", false)
  if (typeof expected !== 'object' || expected === null || !('equals' in expected)) {
    return notChecked(name, "the caller gives neither an expected value nor 'any'", true)
  }
  const { equals } = expected
  return check(name, isEqual(value, equals), `${formatValue(value)} is not ${formatValue(equals)}`, formatValue(value))
}

/** Compares bytes, text, lists of text, and null. */
function isEqual(a: unknown, b: unknown): boolean {
  if (a instanceof Uint8Array) return b instanceof Uint8Array && equalConstantTime(a, b)
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, i) => item === b[i])
  return a === b
}

function formatValue(value: unknown): string {
  return value instanceof Uint8Array ? toHex(value) : (JSON.stringify(value) ?? 'nothing')
}
