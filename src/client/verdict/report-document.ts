// An SNP report for --json: bytes in hexadecimal, bit fields as number and names, and every field of its layout. Pure.
// Decides nothing about trust.

import type { Product } from '../../attest/amd/product.ts'
import { decodeTcb, type RawTcb } from '../../attest/amd/tcb.ts'
import { isZero } from '../../attest/encoding/layout.ts'
import { keyInfoNames, platformNames, policyNames } from '../../attest/report/bits.ts'
import { reservedRanges, type SnpReport } from '../../attest/report/report.ts'
import { toHex } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import { hexNumber } from '../../terminal/render.ts'

/** Returns the document. Without a product TCBs stay numbers, because their layout depends on the product. */
export function reportDocument(report: SnpReport, product: Product | null) {
  const policy = policyNames(report.policy)
  const platform = platformNames(report.platformInfo)
  const key = keyInfoNames(report.keyInfo)
  return {
    version: report.version,
    signer: report.signer,
    signature_algorithm: report.signatureAlgo,
    key_info: { value: hexNumber(BigInt(report.keyInfo)), set: key.names, unknown: key.unknown },
    vmpl: report.vmpl,
    measurement: toHex(report.measurement),
    report_data: toHex(report.reportData),
    host_data: toHex(report.hostData),
    guest_svn: report.guestSvn,
    policy: {
      value: hexNumber(report.policy),
      abi: `${policy.abi.major}.${policy.abi.minor}`,
      set: policy.names,
      unknown: policy.unknown,
    },
    platform_info: { value: hexNumber(report.platformInfo), set: platform.names, unknown: platform.unknown },
    tcb: Object.fromEntries(
      Object.entries(report.rawTcb).map(([name, raw]) => [
        name,
        { value: hexNumber(raw), ...components(raw, product) },
      ]),
    ),
    firmware: { current: versionText(report.current), committed: versionText(report.committed) },
    cpuid: report.cpuid,
    chip_id: toHex(report.chipId),
    family_id: toHex(report.familyId),
    image_id: toHex(report.imageId),
    id_key_digest: toHex(report.idKeyDigest),
    author_key_digest: toHex(report.authorKeyDigest),
    report_id: toHex(report.reportId),
    report_id_ma: toHex(report.reportIdMa),
    mitigation:
      report.mitigation === null
        ? null
        : { launch: hexNumber(report.mitigation.launch), current: hexNumber(report.mitigation.current) },
    signature: { r: toHex(report.signature.r), s: toHex(report.signature.s) },
    reserved: reservedNotZero(report),
  }
}

/** Returns the reserved ranges of the version that contain non-zero bytes; firmware writes zeros. */
function reservedNotZero({ version, reserved }: SnpReport): { offset: number; bytes: string }[] {
  let at = 0
  return reservedRanges(version).flatMap(([offset, sizeBytes]) => {
    const bytes = reserved.subarray(at, at + sizeBytes)
    at += sizeBytes
    return isZero(bytes) ? [] : [{ offset, bytes: toHex(bytes) }]
  })
}

function components(raw: RawTcb, product: Product | null): object {
  return product === null ? {} : resultOr(() => decodeTcb(raw, product), {})
}

function versionText({ major, minor, build }: SnpReport['current']): string {
  return `${major}.${minor}.${build}`
}
