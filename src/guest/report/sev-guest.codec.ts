// Messages of /dev/sev-guest, byte for byte. Pure.
// Linux include/uapi/linux/sev-guest.h; the response's own head is that of MSG_REPORT_RSP, AMD 56860 table 26.

/** struct snp_guest_request_ioctl, snp_report_req, snp_report_resp: [offset, size], little-endian, with padding. */
export const IOCTL = {
  msgVersion: [0, 1],
  reqData: [8, 8],
  respData: [16, 8],
  fwError: [24, 4],
  vmmError: [28, 4],
} as const
export const ioctlBytes = 32
export const REPORT_REQ = { userData: [0, 64], vmpl: [64, 4], rsvd: [68, 28] } as const
export const reportReqBytes = 96
export const reportRespBytes = 4000
export const REPORT_RSP = { status: [0, 4], reportSize: [4, 4], rsvd: [8, 24], report: [32, 1184] } as const

/** SNP_GET_REPORT: _IOWR('S', 0x0, struct snp_guest_request_ioctl), include/uapi/asm-generic/ioctl.h. */
export const snpGetReport = 3 * 2 ** 30 + ioctlBytes * 2 ** 16 + 0x53 * 2 ** 8 + 0x0

/** SNP_GUEST_VMM_ERR_*: the host refuses the buffer, or throttles. */
export const VMM_ERROR = { invalidLength: 1, busy: 2 } as const

/** Addresses of the two other messages, which must outlive the call. */
export function encodeIoctl(address: { readonly request: number; readonly response: number }): Uint8Array {
  const bytes = new Uint8Array(ioctlBytes)
  const view = new DataView(bytes.buffer)
  view.setUint8(IOCTL.msgVersion[0], 1)
  view.setBigUint64(IOCTL.reqData[0], BigInt(address.request), true)
  view.setBigUint64(IOCTL.respData[0], BigInt(address.response), true)
  return bytes
}

/** A report over 64 bytes, for this VM privilege level. */
export function encodeReportRequest(reportData: Uint8Array, vmpl: number): Uint8Array {
  const bytes = new Uint8Array(reportReqBytes)
  bytes.set(reportData.subarray(0, REPORT_REQ.userData[1]), REPORT_REQ.userData[0])
  new DataView(bytes.buffer).setUint32(REPORT_REQ.vmpl[0], vmpl, true)
  return bytes
}

type IoctlErrors = { readonly firmware: number; readonly vmm: number }

/** The kernel's result. Firmware 0xffffffff: the request never reached the firmware. */
export function decodeIoctlErrors(bytes: Uint8Array): IoctlErrors {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return { firmware: view.getUint32(IOCTL.fwError[0], true), vmm: view.getUint32(IOCTL.vmmError[0], true) }
}

/** Text for a log: `firmware 0x16 (invalid parameter), VMM 2 (busy)`. */
export function errorsText({ firmware, vmm }: IoctlErrors): string {
  return `firmware 0x${firmware.toString(16)}${inParentheses(FIRMWARE_NAMES[firmware])}, VMM ${vmm}${inParentheses(VMM_NAMES[vmm])}`
}

/** The report, or why there is none. */
export function decodeReportResponse(
  bytes: Uint8Array,
): { ok: true; report: Uint8Array } | { ok: false; reason: string } {
  if (bytes.length !== reportRespBytes) return { ok: false, reason: `response of ${bytes.length} bytes` }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const status = view.getUint32(REPORT_RSP.status[0], true)
  if (status !== 0)
    return { ok: false, reason: `status 0x${status.toString(16)}${inParentheses(FIRMWARE_NAMES[status])}` }
  const sizeBytes = view.getUint32(REPORT_RSP.reportSize[0], true)
  const [at, expectedBytes] = REPORT_RSP.report
  if (sizeBytes !== expectedBytes) return { ok: false, reason: `report of ${sizeBytes} bytes` }
  return { ok: true, report: bytes.slice(at, at + expectedBytes) }
}

/** Linux include/uapi/linux/psp-sev.h; the guest messages' own status has the same numbers for the same things. */
export const FIRMWARE_NAMES: Readonly<Record<number, string>> = {
  0: 'success',
  22: 'invalid parameter',
  39: 'invalid key',
  4294967295: 'never asked',
}
const VMM_NAMES: Readonly<Record<number, string>> = { 0: 'none', 1: 'invalid length', 2: 'busy' }

function inParentheses(name: string | undefined): string {
  return name === undefined ? '' : ` (${name})`
}
