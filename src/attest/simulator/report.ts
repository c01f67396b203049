// Reports in the form of SNP firmware, signed with a simulated VEK (AMD 56860 rev 1.58, table 23 and section 10).

import type { Cpuid, Product } from '../amd/product.ts'
import type { Tcb } from '../amd/tcb.ts'
import { encodeTcb } from '../amd/tcb-encode.ts'
import { wellFormed } from '../malformed.ts'
import {
  encodeReport,
  FIELDS,
  type ReportVersion,
  reportSignedBytes,
  reservedRanges,
  type SnpReport,
} from '../report/report.ts'

export type SimulatedReport = {
  readonly product: Product
  readonly version: ReportVersion
  /** Reported, current, committed and launch TCB, unless `report` overrides them. */
  readonly tcb: Tcb
  readonly signer: 'vcek' | 'vlek'
  readonly chipId: Uint8Array
  readonly reportData: Uint8Array
  readonly measurement: Uint8Array
  readonly hostData?: Uint8Array
  /** Further fields, named as in the codec. */
  readonly report?: Partial<
    Omit<SnpReport, 'version' | 'signer' | 'keyInfo' | 'cpuid' | 'mitigation' | 'signature' | 'reserved'>
  >
}

/** CPUID of one processor of each product. */
const SIMULATED_CPUIDS = {
  milan: { family: 0x19, model: 0x01, stepping: 1 },
  genoa: { family: 0x19, model: 0x11, stepping: 1 },
  turin: { family: 0x1a, model: 0x02, stepping: 1 },
} as const satisfies Record<Product, Cpuid>

/** SMT allowed, the bit that must be one, ABI version 0. */
const plainPolicy = 0x30000n

/** Returns a signed report of 1184 bytes. Throws Malformed if a value does not fit. */
export async function simulateReport(wanted: SimulatedReport, vekKey: CryptoKey): Promise<Uint8Array> {
  return await signSimulatedReport(unsignedReport(wanted), vekKey)
}

/** Returns the values of a report without a signature, for callers that change some before signing. */
export function unsignedReport({
  product,
  version,
  tcb,
  signer,
  chipId,
  reportData,
  measurement,
  ...rest
}: SimulatedReport): SnpReport {
  const raw = encodeTcb(tcb, product)
  const firmware = { build: 1, minor: 55, major: 1 }
  return {
    version,
    guestSvn: 0,
    policy: plainPolicy,
    familyId: new Uint8Array(FIELDS.familyId[1]),
    imageId: new Uint8Array(FIELDS.imageId[1]),
    vmpl: 0,
    signatureAlgo: 1,
    rawTcb: { current: raw, reported: raw, committed: raw, launch: raw },
    platformInfo: 1n,
    keyInfo: signer === 'vcek' ? 0 : 1 << 2,
    signer,
    reportData,
    measurement,
    hostData: rest.hostData ?? new Uint8Array(FIELDS.hostData[1]),
    idKeyDigest: new Uint8Array(FIELDS.idKeyDigest[1]),
    authorKeyDigest: new Uint8Array(FIELDS.authorKeyDigest[1]),
    reportId: new Uint8Array(FIELDS.reportId[1]),
    reportIdMa: new Uint8Array(FIELDS.reportIdMa[1]).fill(0xff),
    cpuid: version >= 3 ? SIMULATED_CPUIDS[product] : null,
    chipId,
    current: firmware,
    committed: firmware,
    mitigation: version >= 5 ? { launch: 0n, current: 0n } : null,
    signature: noSignature(),
    reserved: new Uint8Array(reservedRanges(version).reduce((sum, [, size]) => sum + size, 0)),
    ...rest.report,
  }
}

/** Signs with ECDSA P-384 and SHA-384, as firmware does: R and S little-endian in 72 bytes each. */
export async function signSimulatedReport(report: SnpReport, vekKey: CryptoKey): Promise<Uint8Array> {
  const unsigned = encodeReport({ ...report, signature: noSignature() })
  const signedBytes = new Uint8Array(reportSignedBytes(unsigned))
  const raw = new Uint8Array(await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-384' }, vekKey, signedBytes))
  wellFormed(raw.length === scalarBytes * 2, 'simulated report: the key is not on P-384')
  const signature = { r: littleEndian(raw.subarray(0, scalarBytes)), s: littleEndian(raw.subarray(scalarBytes)) }
  return encodeReport({ ...report, signature })
}

const scalarBytes = 48

function littleEndian(scalar: Uint8Array): Uint8Array {
  const field = new Uint8Array(FIELDS.signatureR[1])
  field.set(scalar.toReversed())
  return field
}

function noSignature(): SnpReport['signature'] {
  return { r: new Uint8Array(FIELDS.signatureR[1]), s: new Uint8Array(FIELDS.signatureS[1]) }
}
