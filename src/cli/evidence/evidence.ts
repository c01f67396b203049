// A saved SNP report with the certificates that came in the same file. Pure.

export type ReportEvidence = {
  /** In words: `an SNP report`. Null: in no form that is known here. */
  readonly form: string | null
  /** 1184 bytes or Azure's HCL report; the bytes as they are where the form is not known. */
  readonly report: Uint8Array
  /** VCEK or VLEK, DER or PEM; null: the file has none. */
  readonly vek: Uint8Array | null
  /** Certificates above it, DER or PEM. */
  readonly chain: readonly Uint8Array[]
  /** Revocation list, DER. */
  readonly crl: Uint8Array | null
  /** The host's certificate table, where the report is an extended one. */
  readonly table: Uint8Array | null
}

/** Largest file: a bundle with certificates, in base64. */
export const evidenceBytesMax = 1024 * 1024

export function bareReport(report: Uint8Array, form: string | null): ReportEvidence {
  return { form, report, vek: null, chain: [], crl: null, table: null }
}
