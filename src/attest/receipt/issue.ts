// Issues receipts inside a VM. Pure: evidence, time and randomness come from the caller.

import { equalConstantTime } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import { decodeReport } from '../report/report.ts'
import { keysDigest, type PublicKeys } from './public-keys.ts'
import { encodeReceipt, type Platform, type Receipt, type ReceiptEvidence } from './receipt.ts'
import type { SignStatement } from './receipt-keys.ts'
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

/** Fields that the caller states. `image.measurement` and `operatorKey` are those of the VM's own report. */
export type StatementFields = { [Kind in StatementKind]: Omit<StatementOf<Kind>, IssuerFields> }[StatementKind]

/** A fresh report over these 64 bytes, and the certificates that verify it. */
export type EvidenceSource = (reportData: Uint8Array) => Promise<ReceiptEvidence>

/** The bytes of a new statement, for these keys. Throws Malformed when a field does not fit STATEMENT_FIELDS. */
export function newStatement(
  fields: StatementFields,
  { publicKeys, nowMs }: { readonly publicKeys: PublicKeys; readonly nowMs: number },
): Uint8Array {
  const filled = {
    ...fields,
    format: statementFormat,
    scope: STATEMENT_FIELDS[fields.kind].scope.text,
    issuedAt: nowMs,
    keysDigest: keysDigest(publicKeys),
  }
  // TypeScript cannot see that `scope` above belongs to `kind`.
  return encodeStatement(filled as Statement)
}

/** Throws Malformed unless the report is over this statement and of the VM that it names. */
export function checkReport(bytes: Uint8Array, reportData: Uint8Array, fields: StatementFields): void {
  const report = decodeReport(bytes)
  wellFormed(equalConstantTime(report.reportData, reportData), 'evidence source: a report over other data')
  wellFormed(equalConstantTime(report.measurement, fields.image.measurement), 'evidence source: another measurement')
  wellFormed(equalConstantTime(report.idKeyDigest, fields.operatorKey), 'evidence source: another operator key')
}

/** Throws Malformed when a field does not fit STATEMENT_FIELDS, or the report is over another statement or VM. */
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
