// Writes the documents of a build's result, bound by digest in provenance.json; evidence.ts writes the evidence. Pure.

import { bundleBytes } from './bundle.ts'
import { dsseBytes, type EnvelopeSigner, signEnvelope } from './dsse.ts'
import { fileSha256 } from './json.ts'
import { BYPRODUCTS, type Byproduct, RESULT_PATHS } from './paths.ts'
import type { BuildRecord } from './record.ts'
import { sbomBytes } from './sbom.ts'
import { slsaBytes, slsaStatement } from './slsa.ts'
import { provenanceBytes, provenanceOf } from './statement.ts'

type ResultFile = { readonly path: string; readonly bytes: Uint8Array }

type ResultDocuments = {
  /** provenance.json, attestations/* and build.log; neither evidence.json nor the artifacts. */
  readonly files: readonly ResultFile[]
  /** Exact bytes of provenance.json. */
  readonly provenance: Uint8Array
  /** SHA-256 of `provenance`, 32 bytes: `provenanceDigest` of the statement. */
  readonly provenanceDigest: Uint8Array
}

/**
 * Writes the documents. `signer` has the VM's receipt keys (ReceiptKeys fits). Throws Malformed if the record is
 * invalid.
 */
export async function writeDocuments(record: BuildRecord, signer: EnvelopeSigner): Promise<ResultDocuments> {
  const sbom = sbomBytes(record)
  const slsa = slsaBytes(slsaStatement(record, { sbom: fileSha256(sbom), log: fileSha256(record.log) }))
  const envelope = await signEnvelope(slsa, signer)
  const byproducts: Readonly<Record<Byproduct, Uint8Array>> = {
    slsa,
    dsse: dsseBytes(envelope),
    bundle: bundleBytes(envelope),
    sbom,
    log: record.log,
  }
  const provenance = provenanceBytes(
    provenanceOf(
      record,
      BYPRODUCTS.map(name => ({ name: RESULT_PATHS[name], sha256: fileSha256(byproducts[name]) })),
    ),
  )
  return {
    files: [
      { path: RESULT_PATHS.provenance, bytes: provenance.bytes },
      ...BYPRODUCTS.map(name => ({ path: RESULT_PATHS[name], bytes: byproducts[name] })),
    ],
    provenance: provenance.bytes,
    provenanceDigest: provenance.digest,
  }
}
