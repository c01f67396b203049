// Decodes and encodes ATTESTATION_REPORT of SEV-SNP, versions 2 to 5. Pure. verify/ decides whether to trust it. AMD
// 56860 rev 1.58, table 23; the form of the signature is in section 10.

import { concat } from '../../base/bytes.ts'
import type { Cpuid } from '../amd/product.ts'
import type { RawTcb } from '../amd/tcb.ts'
import { isZero, type Layout, readRecord, type Values, writeFields } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'
import { type Signer, signerOfKeyInfo } from './bits.ts'

export const reportSizeBytes = 1184
/** Length of the signed part: bytes 0x000 to 0x29F. */
export const reportSignedSizeBytes = 0x2a0
export const reportVersions = [2, 3, 4, 5] as const

export type ReportVersion = (typeof reportVersions)[number]

/** [offset, size]; integers are little-endian. Reserved ranges are named so that the table has no gap. */
export const FIELDS = {
  version: [0x000, 4],
  guestSvn: [0x004, 4],
  policy: [0x008, 8],
  familyId: [0x010, 16],
  imageId: [0x020, 16],
  vmpl: [0x030, 4],
  signatureAlgo: [0x034, 4],
  currentTcb: [0x038, 8],
  platformInfo: [0x040, 8],
  keyInfo: [0x048, 4],
  reserved04c: [0x04c, 4],
  reportData: [0x050, 64],
  measurement: [0x090, 48],
  hostData: [0x0c0, 32],
  idKeyDigest: [0x0e0, 48],
  authorKeyDigest: [0x110, 48],
  reportId: [0x140, 32],
  reportIdMa: [0x160, 32],
  reportedTcb: [0x180, 8],
  cpuidFamily: [0x188, 1],
  cpuidModel: [0x189, 1],
  cpuidStepping: [0x18a, 1],
  reserved18b: [0x18b, 21],
  chipId: [0x1a0, 64],
  committedTcb: [0x1e0, 8],
  currentBuild: [0x1e8, 1],
  currentMinor: [0x1e9, 1],
  currentMajor: [0x1ea, 1],
  reserved1eb: [0x1eb, 1],
  committedBuild: [0x1ec, 1],
  committedMinor: [0x1ed, 1],
  committedMajor: [0x1ee, 1],
  reserved1ef: [0x1ef, 1],
  launchTcb: [0x1f0, 8],
  launchMitigation: [0x1f8, 8],
  currentMitigation: [0x200, 8],
  reserved208: [0x208, 152],
  signatureR: [0x2a0, 72],
  signatureS: [0x2e8, 72],
  reserved330: [0x330, 368],
} as const satisfies Layout

export type FieldName = keyof typeof FIELDS

/** Fields by the version that introduced them; reserved in earlier versions. */
const SINCE: Partial<Record<FieldName, ReportVersion>> = {
  cpuidFamily: 3,
  cpuidModel: 3,
  cpuidStepping: 3,
  launchMitigation: 5,
  currentMitigation: 5,
}

export type FirmwareVersion = { readonly build: number; readonly minor: number; readonly major: number }

export type SnpReport = {
  readonly version: ReportVersion
  readonly guestSvn: number
  /** Guest policy; bits.ts names its bits. */
  readonly policy: bigint
  readonly familyId: Uint8Array
  readonly imageId: Uint8Array
  /** 0 to 3; 0xFFFFFFFF if the host requested the report. */
  readonly vmpl: number
  /** 1: ECDSA P-384 with SHA-384. */
  readonly signatureAlgo: number
  /** Decode with the product (decodeTcb). `reported` is the TCB for which the VEK is certified. */
  readonly rawTcb: {
    readonly current: RawTcb
    readonly reported: RawTcb
    readonly committed: RawTcb
    readonly launch: RawTcb
  }
  readonly platformInfo: bigint
  readonly keyInfo: number
  /** The signing key, from key_info. */
  readonly signer: Signer
  /** 64 bytes chosen by the guest. */
  readonly reportData: Uint8Array
  /** SHA-384 launch digest. */
  readonly measurement: Uint8Array
  /** 32 bytes chosen by the host at launch. */
  readonly hostData: Uint8Array
  readonly idKeyDigest: Uint8Array
  readonly authorKeyDigest: Uint8Array
  readonly reportId: Uint8Array
  /** REPORT_ID of the migration agent; all ones without an agent. */
  readonly reportIdMa: Uint8Array
  /** Null in version 2. */
  readonly cpuid: Cpuid | null
  /** 64 bytes; all zero if the platform masks it. */
  readonly chipId: Uint8Array
  readonly current: FirmwareVersion
  readonly committed: FirmwareVersion
  /** Null before version 5. */
  readonly mitigation: { readonly launch: bigint; readonly current: bigint } | null
  /** 72 bytes each, little-endian. */
  readonly signature: { readonly r: Uint8Array; readonly s: Uint8Array }
  /** The version's reserved bytes, range by range, so that encodeReport restores the same bytes. */
  readonly reserved: Uint8Array
}

/**
 * Decodes a report. Throws Malformed for a wrong length, an unknown version, or a reserved signing key. Copies the
 * fields.
 */
export function decodeReport(bytes: Uint8Array): SnpReport {
  const fields = readRecord('SNP report', bytes, FIELDS)
  const { version, keyInfo } = fields
  wellFormed(isReportVersion(version), `SNP report: version ${version} is not 2 to 5`)
  return {
    version,
    guestSvn: fields.guestSvn,
    policy: fields.policy,
    familyId: fields.familyId,
    imageId: fields.imageId,
    vmpl: fields.vmpl,
    signatureAlgo: fields.signatureAlgo,
    rawTcb: {
      current: fields.currentTcb,
      reported: fields.reportedTcb,
      committed: fields.committedTcb,
      launch: fields.launchTcb,
    },
    platformInfo: fields.platformInfo,
    keyInfo,
    signer: signerOf(keyInfo),
    reportData: fields.reportData,
    measurement: fields.measurement,
    hostData: fields.hostData,
    idKeyDigest: fields.idKeyDigest,
    authorKeyDigest: fields.authorKeyDigest,
    reportId: fields.reportId,
    reportIdMa: fields.reportIdMa,
    cpuid: has(version, 'cpuidFamily')
      ? { family: fields.cpuidFamily, model: fields.cpuidModel, stepping: fields.cpuidStepping }
      : null,
    chipId: fields.chipId,
    current: { build: fields.currentBuild, minor: fields.currentMinor, major: fields.currentMajor },
    committed: { build: fields.committedBuild, minor: fields.committedMinor, major: fields.committedMajor },
    mitigation: has(version, 'launchMitigation')
      ? { launch: fields.launchMitigation, current: fields.currentMitigation }
      : null,
    signature: { r: fields.signatureR, s: fields.signatureS },
    reserved: concat(...RESERVED[version].map(([offset, size]) => bytes.subarray(offset, offset + size))),
  }
}

/** Exactly reverses decodeReport. Throws Malformed if a value does not fit its field or the version. */
export function encodeReport(report: SnpReport): Uint8Array {
  wellFormed(isReportVersion(report.version), `SNP report: version ${report.version} is not 2 to 5`)
  wellFormed(signerOf(report.keyInfo) === report.signer, 'SNP report: signer differs from keyInfo')
  wellFormed((report.cpuid !== null) === has(report.version, 'cpuidFamily'), 'SNP report: cpuid does not fit version')
  wellFormed(
    (report.mitigation !== null) === has(report.version, 'launchMitigation'),
    'SNP report: mitigation does not fit version',
  )
  const bytes = new Uint8Array(reportSizeBytes)
  writeFields('SNP report', bytes, FIELDS, fieldsOf(report))
  writeReserved(bytes, report)
  return bytes
}

/** Returns the bytes that AMD's signature covers. Throws Malformed for a wrong length. */
export function reportSignedBytes(bytes: Uint8Array): Uint8Array {
  wellFormed(bytes.length === reportSizeBytes, `SNP report: ${bytes.length} bytes instead of ${reportSizeBytes}`)
  return bytes.slice(0, reportSignedSizeBytes)
}

/** Reports whether all reserved bytes of the version are zero, as firmware writes them. AMD signs only some of them. */
export function isReservedZero(report: SnpReport): boolean {
  return isZero(report.reserved)
}

/** Returns the ranges that the version reserves, in order. */
export function reservedRanges(version: ReportVersion): readonly Range[] {
  return RESERVED[version]
}

type Range = readonly [offset: number, sizeBytes: number]

const fieldNames = Object.keys(FIELDS) as FieldName[]

const RESERVED: Readonly<Record<ReportVersion, readonly Range[]>> = {
  2: rangesReservedBy(2),
  3: rangesReservedBy(3),
  4: rangesReservedBy(4),
  5: rangesReservedBy(5),
}

function rangesReservedBy(version: ReportVersion): Range[] {
  return fieldNames.filter(name => name.startsWith('reserved') || !has(version, name)).map(name => FIELDS[name])
}

function has(version: ReportVersion, name: FieldName): boolean {
  return version >= (SINCE[name] ?? 2)
}

function isReportVersion(version: number): version is ReportVersion {
  return (reportVersions as readonly number[]).includes(version)
}

function signerOf(keyInfo: number): Signer {
  const signer = signerOfKeyInfo(keyInfo)
  wellFormed(signer !== null, `SNP report: the signing key of key_info ${keyInfo} is reserved`)
  return signer
}

/** Returns all fields except the reserved ones of the version. */
function fieldsOf(report: SnpReport): Partial<Values<typeof FIELDS>> {
  const { rawTcb, cpuid, current, committed, mitigation, signature } = report
  return {
    version: report.version,
    guestSvn: report.guestSvn,
    policy: report.policy,
    familyId: report.familyId,
    imageId: report.imageId,
    vmpl: report.vmpl,
    signatureAlgo: report.signatureAlgo,
    currentTcb: rawTcb.current,
    platformInfo: report.platformInfo,
    keyInfo: report.keyInfo,
    reportData: report.reportData,
    measurement: report.measurement,
    hostData: report.hostData,
    idKeyDigest: report.idKeyDigest,
    authorKeyDigest: report.authorKeyDigest,
    reportId: report.reportId,
    reportIdMa: report.reportIdMa,
    reportedTcb: rawTcb.reported,
    cpuidFamily: cpuid?.family ?? 0,
    cpuidModel: cpuid?.model ?? 0,
    cpuidStepping: cpuid?.stepping ?? 0,
    chipId: report.chipId,
    committedTcb: rawTcb.committed,
    currentBuild: current.build,
    currentMinor: current.minor,
    currentMajor: current.major,
    committedBuild: committed.build,
    committedMinor: committed.minor,
    committedMajor: committed.major,
    launchTcb: rawTcb.launch,
    launchMitigation: mitigation?.launch ?? 0n,
    currentMitigation: mitigation?.current ?? 0n,
    signatureR: signature.r,
    signatureS: signature.s,
  }
}

function writeReserved(bytes: Uint8Array, { version, reserved }: SnpReport): void {
  let at = 0
  for (const [offset, size] of RESERVED[version]) {
    bytes.set(reserved.subarray(at, at + size), offset)
    at += size
  }
  wellFormed(at === reserved.length, `SNP report: ${reserved.length} reserved bytes instead of ${at}`)
}
