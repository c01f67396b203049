// A saved SNP report with the certificates from the same file. Pure.

export type ReportEvidence = {
  /** Container of the report, in words: `a Tinfoil bundle`. Null if the file is the report itself, or unknown. */
  readonly container: string | null
  /** 1184 bytes or Azure's HCL report, otherwise the bytes of the innermost known form. */
  readonly report: Uint8Array
  /** VCEK or VLEK, DER or PEM; null if the file has none. */
  readonly vek: Uint8Array | null
  /** Certificates above it, DER or PEM. */
  readonly chain: readonly Uint8Array[]
  /** Revocation list, DER. */
  readonly crl: Uint8Array | null
  /** The host's certificate table; null unless the report is an extended one. */
  readonly table: Uint8Array | null
}

/** Largest file: a bundle with certificates, in base64. */
export const evidenceBytesMax = 1024 * 1024

/** Returns evidence without certificates. */
export function bareReport(report: Uint8Array, container: string | null = null): ReportEvidence {
  return { container, report, vek: null, chain: [], crl: null, table: null }
}
