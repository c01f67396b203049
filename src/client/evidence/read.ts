// Reads an SNP report in any form in which tools save it. Pure, except that code for rarer forms is loaded on demand.
//
// The form is irrelevant to trust: the report's signature covers every byte that matters, and certificates must end at
// a root that the caller trusts. Everything else in a bundle is ignored.

import { reportSizeBytes } from '../../attest/report/report.ts'
import { bareReport, type ReportEvidence } from './evidence.ts'

/** Reads evidence. Throws Malformed if a known form is malformed. */
export async function readEvidence(bytes: Uint8Array): Promise<ReportEvidence> {
  if (bytes.length === reportSizeBytes) return bareReport(bytes)
  const { readEvidenceForm } = await import('./forms.ts')
  return readEvidenceForm(bytes)
}
