// A TDX quote for --json: bytes in hexadecimal, bit fields as number and names, and every field that the attestation
// key signs. Pure. Decides nothing about trust.

import { namedBits } from '../../attest/report/bits.ts'
import type { TdxQuote } from '../../attest/tdx/quote.ts'
import { TD_BITS } from '../../attest/tdx/td-attributes.ts'
import { toHex } from '../../base/bytes.ts'
import { hexNumber } from '../../terminal/render.ts'

export function quoteDocument({ version, header, report, attestationKey, qeReport }: TdxQuote) {
  const attributes = namedBits(TD_BITS, report.tdAttributes)
  const reserved = Uint8Array.from([0, 8, 16, 24], shift => (header.reserved8 >>> shift) & 0xff)
  return {
    version,
    report_version: report.version,
    qe_vendor_id: toHex(header.qeVendorId),
    user_data: toHex(header.userData),
    header_reserved: toHex(reserved),
    tee_tcb_svn: toHex(report.teeTcbSvn),
    mr_seam: toHex(report.mrSeam),
    mr_signer_seam: toHex(report.mrSignerSeam),
    seam_attributes: hexNumber(report.seamAttributes),
    td_attributes: { value: hexNumber(report.tdAttributes), set: attributes.names, unknown: attributes.unknown },
    xfam: hexNumber(report.xfam),
    mr_td: toHex(report.mrTd),
    mr_config_id: toHex(report.mrConfigId),
    mr_owner: toHex(report.mrOwner),
    mr_owner_config: toHex(report.mrOwnerConfig),
    rtmrs: [report.rtmr0, report.rtmr1, report.rtmr2, report.rtmr3].map(toHex),
    report_data: toHex(report.reportData),
    tee_tcb_svn2: report.added === null ? null : toHex(report.added.teeTcbSvn2),
    mr_service_td: report.added === null ? null : toHex(report.added.mrServiceTd),
    attestation_key: toHex(attestationKey),
    qe: {
      mr_enclave: toHex(qeReport.mrEnclave),
      mr_signer: toHex(qeReport.mrSigner),
      isv_prod_id: qeReport.isvProdId,
      isv_svn: qeReport.isvSvn,
    },
  }
}
