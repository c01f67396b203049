import { type ptr, toArrayBuffer } from 'bun:ffi'
import { describe, expect, test } from 'bun:test'
import { bareReport } from '../../../scripts/rigs/guest/tsm-kernel.ts'
import {
  encodeIoctl,
  encodeReportRequest,
  errorsText,
  IOCTL,
  REPORT_RSP,
  reportReqBytes,
  reportRespBytes,
  snpGetReport,
} from '../../../src/guest/report/sev-guest.codec.ts'
import { askSevGuest } from '../../../src/guest/report/sev-guest.ts'
import type { ioctl } from '../../../src/linux/libc.ts'

const reportData = Uint8Array.from({ length: 64 }, (_, at) => at + 1)

// test/linux/kernel-layouts.slow.test.ts compares the layouts with the kernel's headers.
describe('the messages', () => {
  // Goal: each message, byte for byte: version 1, both addresses, the data, the level, and zeros everywhere else.
  test('byte by byte', () => {
    expect(snpGetReport).toBe(0xc0205300)
    expect(encodeIoctl({ request: 0x1122334455, response: 0x66778899aa }).toHex()).toBe(
      ['0100000000000000', '5544332211000000', 'aa99887766000000', '0000000000000000'].join(''),
    )
    expect(encodeReportRequest(reportData, 3).toHex()).toBe(`${reportData.toHex()}03000000${'00'.repeat(28)}`)
  })

  // Goal: each error has its own name.
  test('errors in words', () => {
    expect(errorsText({ firmware: 0x16, vmm: 0 })).toBe('firmware 0x16 (invalid parameter), VMM 0 (none)')
    expect(errorsText({ firmware: 0xffffffff, vmm: 2 })).toBe('firmware 0xffffffff (never asked), VMM 2 (busy)')
    expect(errorsText({ firmware: 0x99, vmm: 7 })).toBe('firmware 0x99, VMM 7')
  })
})

describe('a request', () => {
  // Goal: the kernel finds the request at the address in the argument, and its output at the other address is the
  // report.
  test('reaches the kernel and back', () => {
    const seen: unknown[] = []
    const report = bareReport(reportData)
    const found = askSevGuest(7, reportData, kernel({ report, seen }))
    expect(found).toEqual({ ok: true, report })
    expect(seen).toEqual([7, 0xc0205300, `${reportData.toHex()}${'00'.repeat(32)}`])
  })

  // Goal: a busy or throttling platform is worth another try; everything else is not, and says why.
  test.each([
    ['EBUSY', 16, { vmm: 0, firmware: 0 }, true],
    ['EAGAIN', 11, { vmm: 0, firmware: 0xffffffff }, true],
    ['EIO', 5, { vmm: 2, firmware: 0 }, true],
    ['EIO', 5, { vmm: 1, firmware: 0 }, false],
    ['EIO', 5, { vmm: 0, firmware: 0x16 }, false],
    ['ENOTTY', 25, { vmm: 0, firmware: 0 }, false],
  ])('%s %i %o', (name, errno, errors, again) => {
    const found = askSevGuest(7, reportData, kernel({ errno, errors }))
    expect(found).toEqual({ ok: false, again, reason: `SNP_GET_REPORT: ${name}, ${errorsText(errors)}` })
  })

  // Goal: a response that says failure, or another size, is no report, whatever bytes follow.
  test('distrusts the response', () => {
    const report = bareReport(reportData)
    expect(askSevGuest(7, reportData, kernel({ report, status: 0x27 }))).toMatchObject({
      ok: false,
      again: false,
      reason: 'SNP_GET_REPORT: status 0x27 (invalid key)',
    })
    expect(askSevGuest(7, reportData, kernel({ report, sizeBytes: 1183 }))).toMatchObject({
      ok: false,
      reason: 'SNP_GET_REPORT: report of 1183 bytes',
    })
    expect(askSevGuest(7, reportData, kernel({}))).toMatchObject({
      ok: false,
      reason: 'SNP_GET_REPORT: report of 0 bytes',
    })
  })
})

type Answer = {
  readonly report?: Uint8Array
  readonly status?: number
  readonly sizeBytes?: number
  readonly errno?: number
  readonly errors?: { readonly vmm: number; readonly firmware: number }
  readonly seen?: unknown[]
}

/** The kernel's side of the call: reads and writes by the addresses in the argument, as it does. */
function kernel({ report, status = 0, sizeBytes, errno, errors, seen }: Answer): typeof ioctl {
  return (fd, request, argument) => {
    const view = new DataView(argument.buffer, argument.byteOffset, argument.byteLength)
    const at = (offset: number) => Number(view.getBigUint64(offset, true)) as ReturnType<typeof ptr>
    const asked = new Uint8Array(toArrayBuffer(at(IOCTL.reqData[0]), 0, reportReqBytes))
    const answer = new Uint8Array(toArrayBuffer(at(IOCTL.respData[0]), 0, reportRespBytes))
    seen?.push(fd, request, asked.toHex())
    if (errno !== undefined) {
      view.setUint32(IOCTL.fwError[0], errors?.firmware ?? 0, true)
      view.setUint32(IOCTL.vmmError[0], errors?.vmm ?? 0, true)
      return { ok: false, errno }
    }
    const head = new DataView(answer.buffer, answer.byteOffset)
    head.setUint32(REPORT_RSP.status[0], status, true)
    head.setUint32(REPORT_RSP.reportSize[0], sizeBytes ?? report?.length ?? 0, true)
    if (report !== undefined) answer.set(report, REPORT_RSP.report[0])
    return { ok: true, value: 0 }
  }
}
