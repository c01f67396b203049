// Reads an SNP report in any of the forms in which tools save it. Pure, except that the code of rarer forms is loaded
// on demand.
//
// A form decides nothing: the report's signature covers every byte of it that counts, and certificates have to end at a
// root that the caller trusts. Everything else in a bundle is left alone.

import { reportSizeBytes } from '../../attest/report/report.ts'
import { bareReport, type ReportEvidence } from './evidence.ts'

/** Throws Malformed for a form that is known and not well formed. */
export async function readEvidence(bytes: Uint8Array): Promise<ReportEvidence> {
  if (bytes.length === reportSizeBytes) return bareReport(bytes)
  const { readEvidenceForm } = await import('./forms.ts')
  return readEvidenceForm(bytes)
}
