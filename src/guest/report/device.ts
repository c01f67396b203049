// The device that makes this VM's SNP reports. Effects through the two kinds of it.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { createSerial } from '../../base/work/serial.ts'

export type ReportDevice = {
  readonly kind: 'configfs-tsm' | 'sev-guest'
  /** A fresh report over 64 bytes; retries while the host throttles. Fault internal. */
  readonly report: (reportData: Uint8Array) => Promise<Uint8Array>
}

/** `again`: a retry may succeed. */
export type Attempt =
  | { readonly ok: true; readonly report: Uint8Array }
  | { readonly ok: false; readonly again: boolean; readonly reason: string }

/** Names of errno(3) that a busy or throttled platform gives. */
export const retryable: ReadonlySet<string> = new Set(['EAGAIN', 'EBUSY', 'EINTR', 'ETIMEDOUT'])

const triesMax = 6
const pauseFirstMs = 100
const reportDataBytes = 64
const reportBytes = 1184

/** Requests one report after the other, each up to `triesMax` times with growing pauses (3 s in total). */
export function createReportDevice(
  kind: ReportDevice['kind'],
  ask: (reportData: Uint8Array) => Promise<Attempt>,
  clock: Pick<Clock, 'sleep'>,
): ReportDevice {
  const serial = createSerial()
  const report = async (reportData: Uint8Array): Promise<Uint8Array> => {
    if (reportData.length !== reportDataBytes) throw new Fault('internal', `report data: ${reportData.length} bytes`)
    let pauseMs = pauseFirstMs
    for (let tries = 1; ; tries += 1) {
      const attempt = await ask(reportData)
      if (attempt.ok && attempt.report.length === reportBytes) return attempt.report
      const reason = attempt.ok ? `report of ${attempt.report.length} bytes` : attempt.reason
      const isLast = attempt.ok || !attempt.again || tries === triesMax
      if (isLast) throw new Fault('internal', `${kind}: ${reason} (${tries} tries)`)
      await clock.sleep(pauseMs)
      pauseMs *= 2
    }
  }
  return { kind, report: reportData => serial.run(() => report(reportData)) }
}
