// Makes a statement about this VM, and checks the report over it before it is signed. Pure.

import { equalConstantTime } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import { decodeReport } from '../report/report.ts'
import { keysDigest, type PublicKeys } from './public-keys.ts'
import {
  encodeStatement,
  STATEMENT_FIELDS,
  type Statement,
  type StatementKind,
  type StatementOf,
  statementFormat,
} from './statement.ts'

/** Fields that issueReceipt fills in. */
type IssuerFields = 'format' | 'scope' | 'issuedAt' | 'keysDigest'

/** Fields from the caller. `image.measurement` and `operatorKey` are those of the VM's own report. */
export type StatementFields = { [Kind in StatementKind]: Omit<StatementOf<Kind>, IssuerFields> }[StatementKind]

/** Encodes a new statement for these keys. Throws Malformed if a field does not fit STATEMENT_FIELDS. */
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
  // TypeScript cannot infer that `scope` above matches `kind`.
  return encodeStatement(filled as Statement)
}

/** Throws Malformed unless the report covers this statement and is from the VM that it names. */
export function checkReport(bytes: Uint8Array, reportData: Uint8Array, fields: StatementFields): void {
  const report = decodeReport(bytes)
  wellFormed(equalConstantTime(report.reportData, reportData), 'evidence source: a report over other data')
  wellFormed(equalConstantTime(report.measurement, fields.image.measurement), 'evidence source: another measurement')
  wellFormed(equalConstantTime(report.idKeyDigest, fields.operatorKey), 'evidence source: another operator key')
}
