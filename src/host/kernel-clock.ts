// The kernel's state of its clock (adjtimex(2)), the board's clock and the uptime. Effects: one system call that
// changes nothing, files of the kernel.

import { FFIType, ptr } from 'bun:ffi'
import { readFileSync } from 'node:fs'
import { resultOr } from '../base/result-or.ts'
import { libcOf } from '../linux/ffi.ts'

export type KernelClock = {
  /** Whether a time server keeps it right. */
  readonly isSynchronised: boolean
  /** Largest error that the kernel assumes. */
  readonly errorMaxMs: number
}

/** struct timex, 64-bit (include/uapi/linux/timex.h): [offset]. With `modes` zero the call changes nothing. */
export const TIMEX = { maxError: 24, status: 40, bytes: 208 } as const
export const STA_UNSYNC = 0x0040
export const TIME_ERROR = 5

const libc = libcOf({ adjtimex: { args: [FFIType.ptr], returns: FFIType.i32 } })

/** Reads the kernel's clock state. Null if the system does not report it. Never throws. */
export function kernelClock(): KernelClock | null {
  const timex = new Uint8Array(TIMEX.bytes)
  const state = resultOr(() => libc().adjtimex(ptr(timex)), -1)
  return state < 0 ? null : parseTimex(timex, state)
}

/** Parses struct timex. Pure. `state`: result of adjtimex(2). */
export function parseTimex(timex: Uint8Array, state: number): KernelClock {
  const view = new DataView(timex.buffer, timex.byteOffset, timex.byteLength)
  const status = view.getInt32(TIMEX.status, true)
  return {
    isSynchronised: state !== TIME_ERROR && (status & STA_UNSYNC) === 0,
    errorMaxMs: Number(view.getBigInt64(TIMEX.maxError, true)) / 1000,
  }
}

/** Returns the time of the board's clock in milliseconds since 1970; null if it cannot be read. Never throws. */
export function boardClockMs(file = '/sys/class/rtc/rtc0/since_epoch'): number | null {
  const seconds = resultOr(() => Number(readFileSync(file, 'utf8').trim()), 0)
  return Number.isSafeInteger(seconds) && seconds > 0 ? seconds * 1000 : null
}

/** Returns the milliseconds since the boot, rounded to ten, sleep included (proc_uptime(5)). */
export function uptimeMs(file = '/proc/uptime'): number {
  return Math.round(Number.parseFloat(readFileSync(file, 'utf8')) * 1000)
}
