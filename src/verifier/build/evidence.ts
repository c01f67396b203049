// The report of evidence.json, which every verifier of this service family reads: an SNP report over the provenance and
// the nonce, or on Azure a quote of the paravisor's TPM over both, whose key an SNP report attests. Pure.

import { productOfCpuid } from '../../attest/amd/product.ts'
import { parsed } from '../../attest/malformed.ts'
import { floorChecks } from '../../attest/policy/floors.ts'
import {
  familyNonceBytes,
  type ReadEvidence,
  type SnpEvidence,
  type VtpmEvidence,
} from '../../attest/provenance/evidence.ts'
import { hclClaimsCheck, readHclReport } from '../../attest/report/form.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import { decodeHclReport } from '../../attest/tpm/hcl-report.ts'
import { verifyParavisorVtpm } from '../../attest/tpm/paravisor.ts'
import { decodeQuote } from '../../attest/tpm/structures.ts'
import type { VtpmKind } from '../../attest/tpm/vtpm.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../../attest/verdict.ts'
import type { ChainInput } from '../../attest/verify/chain-prepare.ts'
import { prepareChain } from '../../attest/verify/chain-prepare.ts'
import { type EvidenceVerdict, verifyEvidence } from '../../attest/verify/evidence.ts'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { floorWaivers } from '../pins.ts'
import { COMMON_GROUPS, type Group, groupsOf } from '../receipt-groups.ts'
import type { AskedBuild, ReadResult } from './question.ts'
import { differenceOf, type JudgedReceipts } from './receipts.ts'

export type JudgedReport = Verdict & {
  readonly report: SnpReport | null
  readonly simulated: boolean
  /** Every check of the report under its own name, including root, VMPL and firmware. */
  readonly details: readonly Check[]
  /** Null if the report itself covers the provenance. */
  readonly tpm: VtpmKind | null
}

const prefix = 'report/'

/** Judges the report. Null if evidence.json is unreadable. Its checks are named `report/…`. Never throws. */
export async function judgeReport(
  read: ReadResult,
  question: AskedBuild,
  receipts: JudgedReceipts | null,
): Promise<JudgedReport | null> {
  if (read.evidence === null) return null
  const { evidence } = read.evidence
  const nonce = question.nonce === 'any' ? (receipts?.completion.statement?.nonce ?? 'any') : question.nonce
  if (evidence === null) return withoutReport(nonce)
  const crl = question.crl ?? receipts?.crl
  const found =
    evidence.kind === 'snp' ? await judgeSnp(evidence.snp, question, crl) : await judgeVtpm(evidence, question, crl)
  const checks = [
    ...found.checks,
    ...signedChecks(found.signed, read.provenanceDigest, nonce),
    ...(receipts === null ? [] : [sameVmCheck(found.report, receipts)]),
    platformCheck(read.evidence, found.simulated),
  ]
  const { report, simulated, tpm, details } = found
  return { ...verdict(checks), report, simulated, tpm, details }
}

/** There is no report if padding would make the nonce ambiguous. Then only the receipts bind it, with its length. */
function withoutReport(nonce: Uint8Array | 'any'): JudgedReport {
  const name = `${prefix}evidence`
  const checks =
    nonce !== 'any' && nonce.length < familyNonceBytes
      ? [
          notChecked(
            name,
            `left out for a nonce of ${nonce.length} bytes: other verifiers want ${familyNonceBytes}`,
            false,
          ),
        ]
      : [fail(name, 'evidence.json has no report, which is left out only for a nonce of fewer than 16 bytes')]
  // This makes no check of its own: the receipts decide.
  const ok = checks.every(check => check.outcome !== 'fail')
  return { ok, checks, details: [], report: null, simulated: false, tpm: null }
}

type EvidenceFindings = {
  readonly checks: readonly Check[]
  /** The checks before they were grouped. */
  readonly details: readonly Check[]
  readonly report: SnpReport | null
  readonly simulated: boolean
  readonly tpm: VtpmKind | null
  /** The signed value: REPORT_DATA or the quote's extraData. Null if unreadable. */
  readonly signed: Uint8Array | null
}

async function judgeSnp(
  snp: SnpEvidence,
  question: AskedBuild,
  crl: Uint8Array | undefined,
): Promise<EvidenceFindings> {
  const chain = [snp.ask, snp.ark].filter(bytes => bytes !== null)
  const found = await evidenceOf(
    snp.report,
    { vek: snp.vek, chain: chain.length === 0 ? undefined : chain, crl },
    question,
  )
  const { report, simulated } = found
  const details = [...found.checks, ...floorsOf(found, question)]
  return { checks: inGroups(details), details, report, simulated, tpm: null, signed: report?.reportData ?? null }
}

async function judgeVtpm(
  given: VtpmEvidence,
  question: AskedBuild,
  crl: Uint8Array | undefined,
): Promise<EvidenceFindings> {
  const hcl = parsed(() => decodeHclReport(given.hclReport))
  const quote = parsed(() => decodeQuote(given.quote))
  if (!hcl.ok || !quote.ok) {
    const reason = hcl.ok ? (quote.ok ? '' : quote.reason) : hcl.reason
    const checks = [fail(`${prefix}evidence`, reason)]
    return { checks, details: checks, report: null, simulated: false, tpm: null, signed: null }
  }
  const evidence = await evidenceOf(hcl.value.report, { vek: given.vek, crl }, question)
  const { report, simulated } = evidence
  const claims = parsed(() => hclClaimsCheck(readHclReport(given.hclReport), report?.reportData ?? null))
  const { extraData } = quote.value
  const tpm = await verifyParavisorVtpm({
    evidence,
    runtimeData: hcl.value.runtimeData,
    measurement: 'any',
    quote: given.quote,
    signature: { scheme: 'RSASSA', hash: 'SHA-256', signature: given.signature },
    // The parts are checked below, one by one.
    nonce: extraData,
    pcrs: { 'SHA-256': new Map(given.pcrs.map((value, number) => [number, value])) },
  })
  const floors = floorsOf(evidence, question)
  const all = [
    ...evidence.checks,
    ...floors,
    claims.ok ? claims.value : fail('hcl-claims', claims.reason),
    ...tpm.checks,
  ]
  return { checks: inGroups(all), details: all, report, simulated, tpm: tpm.kind, signed: extraData }
}

async function evidenceOf(
  report: Uint8Array,
  chain: Pick<ChainInput, 'vek' | 'chain' | 'crl'>,
  { asOf, roots, policy, pins }: AskedBuild,
): Promise<EvidenceVerdict> {
  const prepared = await prepareChain({ ...chain, roots })
  return await verifyEvidence({ report, prepared, asOf, policy, requireCrl: pins.crl !== 'any' })
}

/** Separate from the evidence, so that old firmware alone does not make a TPM with a good report look bad. */
function floorsOf({ report, product }: EvidenceVerdict, { pins }: AskedBuild): Check[] {
  if (pins.tcb === 'any') return []
  const cpuid = report?.cpuid ?? null
  return floorChecks(report, cpuid === null ? product : productOfCpuid(cpuid), floorWaivers(pins.tcb))
}

const tpmNames = ['vtpm-', 'tpm-', 'hcl-']

function inGroups(checks: readonly Check[]): Check[] {
  const tpm: Group = {
    name: 'tpm',
    members: checks.map(check => check.name).filter(name => tpmNames.some(text => name.startsWith(text))),
  }
  const groups = [...COMMON_GROUPS.filter(group => group.name !== 'nonce'), ...(tpm.members.length === 0 ? [] : [tpm])]
  return groupsOf(checks, { prefix, groups, elsewhere: ['report-data-expected'] })
}

const provenanceBytes = 32
const signedBytesMin = provenanceBytes + familyNonceBytes

/** Expects SHA-256 of provenance.json, the nonce of 16 bytes, then zeros. */
function signedChecks(
  signed: Uint8Array | null,
  provenanceDigest: Uint8Array | null,
  nonce: Uint8Array | 'any',
): Check[] {
  const names = ['report-data', 'nonce', 'provenance-digest'].map(name => `${prefix}${name}`)
  const [formName = '', nonceName = '', digestName = ''] = names
  if (signed === null) return names.map(name => notChecked(name, 'there is no report', true))
  if (signed.length < signedBytesMin) {
    const reason = `${signed.length} bytes cannot hold a digest and a nonce`
    return [fail(formName, reason), ...names.slice(1).map(name => notChecked(name, reason, true))]
  }
  const [digest, found] = [signed.subarray(0, provenanceBytes), signed.subarray(provenanceBytes, signedBytesMin)]
  const isPadded = signed.subarray(signedBytesMin).every(byte => byte === 0)
  const isDigest = provenanceDigest !== null && equalConstantTime(digest, provenanceDigest)
  const given = provenanceDigest === null ? 'missing' : toHex(provenanceDigest)
  return [
    check(formName, isPadded, 'more than a digest and a nonce of 16 bytes stands in it', toHex(signed)),
    signedNonceCheck(nonceName, found, nonce),
    check(digestName, isDigest, `the report is over ${toHex(digest)}, the file is ${given}`, toHex(digest)),
  ]
}

function signedNonceCheck(name: string, found: Uint8Array, nonce: Uint8Array | 'any'): Check {
  const isNone = found.every(byte => byte === 0)
  const text = isNone ? 'there is no nonce in it' : `the nonce is ${toHex(found)}`
  if (nonce === 'any') return notChecked(name, `${text}, and none is expected: this result may be old`, false)
  return check(name, equalConstantTime(found, nonce), `${text}, not ${toHex(nonce)}`, 'the nonce that was sent')
}

function sameVmCheck(report: SnpReport | null, { completion }: JudgedReceipts): Check {
  const name = `${prefix}one-vm`
  if (report === null || completion.report === null) return notChecked(name, 'a report cannot be read', true)
  const difference = differenceOf(report, completion.report)
  return check(name, difference === null, `it differs from the completion's report in ${difference}`)
}

function platformCheck({ platform }: ReadEvidence, simulated: boolean): Check {
  const name = `${prefix}platform`
  if ((platform === 'simulated') === simulated) return pass(name, platform)
  return fail(name, `evidence.json names ${platform}, but its root is ${simulated ? 'simulated' : "AMD's"}`)
}
