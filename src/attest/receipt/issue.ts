// Issues receipts inside a VM. Pure: evidence, time and randomness come from the caller.

import { equalConstantTime } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import { decodeReport } from '../report/report.ts'
import { type HybridKeys, type Random, signHybrid, statementContext } from './hybrid-keys.ts'
import { type HybridSignature, keysDigest } from './public-keys.ts'
import { encodeReceipt, type Platform, type Receipt, type ReceiptEvidence } from './receipt.ts'
import {
  encodeStatement,
  reportDataOf,
  STATEMENT_FIELDS,
  type Statement,
  type StatementKind,
  type StatementOf,
  statementFormat,
} from './statement.ts'

/** Fields that issueReceipt fills in. */
type IssuerFields = 'format' | 'scope' | 'issuedAt' | 'keysDigest'

/** What the caller states. `image.measurement` and `operatorKey` are those of the VM's own report. */
export type StatementFields = { [Kind in StatementKind]: Omit<StatementOf<Kind>, IssuerFields> }[StatementKind]

/** A fresh report over these 64 bytes, and the certificates that verify it. */
export type EvidenceSource = (reportData: Uint8Array) => Promise<ReceiptEvidence>

/** Both signatures over a statement's bytes. */
export type SignStatement = (statement: Uint8Array) => HybridSignature | Promise<HybridSignature>

/**
 * Throws Malformed when a field does not fit STATEMENT_FIELDS, or when the source's report is not over this statement
 * or not of this VM: nobody could verify such a receipt. What the source throws is passed on.
 */
export async function issueReceipt(issue: {
  readonly fields: StatementFields
  readonly keys: HybridKeys
  readonly evidenceSource: EvidenceSource
  readonly platform: Platform
  readonly nowMs: number
  readonly random: Random
  /** Used instead of the portable signer where the platform signs natively: with `statementContext` and the same keys. */
  readonly sign?: SignStatement | undefined
}): Promise<Receipt> {
  const { fields, keys } = issue
  const filled = {
    ...fields,
    format: statementFormat,
    scope: STATEMENT_FIELDS[fields.kind].scope.text,
    issuedAt: issue.nowMs,
    keysDigest: keysDigest(keys.publicKeys),
  }
  // TypeScript cannot see that `scope` above belongs to `kind`.
  const statement = encodeStatement(filled as Statement)
  const reportData = reportDataOf(statement)
  const evidence = await issue.evidenceSource(reportData)
  const report = decodeReport(evidence.report)
  wellFormed(equalConstantTime(report.reportData, reportData), 'evidence source: a report over other data')
  wellFormed(equalConstantTime(report.measurement, fields.image.measurement), 'evidence source: another measurement')
  wellFormed(equalConstantTime(report.idKeyDigest, fields.operatorKey), 'evidence source: another operator key')
  const portable: SignStatement = bytes =>
    signHybrid(keys.secretKeys, bytes, { context: statementContext, random: issue.random })
  const signatures = await (issue.sign ?? portable)(statement)
  return encodeReceipt({ platform: issue.platform, statement, keys: keys.publicKeys, signatures, evidence })
}
