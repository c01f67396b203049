// Issues receipts inside a VM. Pure: the caller supplies evidence, time and randomness.

import { checkReport, newStatement, type StatementFields } from './new-statement.ts'
import type { PublicKeys } from './public-keys.ts'
import { encodeReceipt, type Platform, type Receipt, type ReceiptEvidence } from './receipt.ts'
import type { SignStatement } from './receipt-keys.ts'
import { reportDataOf } from './statement.ts'

/** Returns a fresh report over these 64 bytes, and the certificates that verify it. */
export type EvidenceSource = (reportData: Uint8Array) => Promise<ReceiptEvidence>

/**
 * Issues a receipt. Throws Malformed if a field does not fit STATEMENT_FIELDS, or the report covers another statement
 * or VM.
 */
export async function issueReceipt(issue: {
  readonly fields: StatementFields
  readonly publicKeys: PublicKeys
  readonly sign: SignStatement
  readonly evidenceSource: EvidenceSource
  readonly platform: Platform
  readonly nowMs: number
}): Promise<Receipt> {
  const { fields, publicKeys, platform } = issue
  const statement = newStatement(fields, issue)
  const reportData = reportDataOf(statement)
  const evidence = await issue.evidenceSource(reportData)
  checkReport(evidence.report, reportData, fields)
  const signatures = await issue.sign(statement)
  return encodeReceipt({ platform, statement, keys: publicKeys, signatures, evidence })
}
