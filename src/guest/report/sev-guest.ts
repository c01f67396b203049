// Reports from /dev/sev-guest by ioctl, for kernels without configfs-tsm. Effects: one character device.
//
// The call blocks this thread while the host throttles (up to a minute in the driver); such a host could stop the VM
// anyway.

import { ptr } from 'bun:ffi'
import * as fs from 'node:fs'
import { wrapFault } from '../../base/fault.ts'
import { errnoName, ioctl } from '../../linux/libc.ts'
import { type Attempt, retryable } from './device.ts'
import {
  decodeIoctlErrors,
  decodeReportResponse,
  encodeIoctl,
  encodeReportRequest,
  errorsText,
  reportRespBytes,
  snpGetReport,
  VMM_ERROR,
} from './sev-guest.codec.ts'

/** One request for a report at VMPL 0, on an open device. `control` is ioctl(2). */
export function askSevGuest(fd: number, reportData: Uint8Array, control: typeof ioctl = ioctl): Attempt {
  const request = encodeReportRequest(reportData, 0)
  const response = new Uint8Array(reportRespBytes)
  const argument = encodeIoctl({ request: ptr(request), response: ptr(response) })
  const done = control(fd, snpGetReport, argument)
  // A variable, so that neither buffer is collected before the kernel has written to it.
  const buffers = [request, response] as const
  if (!done.ok) {
    const errors = decodeIoctlErrors(argument)
    const name = errnoName(done.errno)
    const reason = `SNP_GET_REPORT: ${name}, ${errorsText(errors)}`
    return { ok: false, again: retryable.has(name) || errors.vmm === VMM_ERROR.busy, reason }
  }
  const decoded = decodeReportResponse(buffers[1])
  return decoded.ok ? decoded : { ok: false, again: false, reason: `SNP_GET_REPORT: ${decoded.reason}` }
}

/** Null when there is no such device. Fault internal when it cannot be opened. */
export function openSevGuest(path: string): { readonly ask: (reportData: Uint8Array) => Promise<Attempt> } | null {
  if (!fs.existsSync(path)) return null
  let fd: number
  try {
    fd = fs.openSync(path, fs.constants.O_RDWR)
  } catch (error) {
    throw wrapFault(error, `open ${path}`)
  }
  return { ask: async reportData => askSevGuest(fd, reportData) }
}
