// ptrace(2) and waitpid(2), for a tracer that holds a process at its system calls. Effects: stops and resumes other
// processes. x86-64 only.
//
// The thread that attaches is the only one that may ask for more, and it waits in the kernel: use it in a process of
// its own.

import { FFIType, ptr } from 'bun:ffi'
import { readdirSync } from 'node:fs'
import { constants } from 'node:os'
import { errno, libcOf } from '../../src/linux/ffi.ts'

/** A thread that stands still, or has ended. */
export type Stop =
  | { readonly kind: 'enter'; readonly tid: number; readonly number: number; readonly args: readonly number[] }
  | { readonly kind: 'leave'; readonly tid: number; readonly value: number }
  /** Held by a signal that stops processes: it stays so until SIGCONT. */
  | { readonly kind: 'group'; readonly tid: number }
  | { readonly kind: 'signal'; readonly tid: number; readonly signal: number }
  /** Anything else that needs no more than to go on. */
  | { readonly kind: 'other'; readonly tid: number }
  | { readonly kind: 'ended'; readonly tid: number }

/** include/uapi/linux/ptrace.h. */
const REQUEST = { syscall: 24, seize: 0x4206, interrupt: 0x4207, listen: 0x4208, syscallInfo: 0x420e } as const
const OPTION = { sysgood: 1, clone: 8 } as const
const EVENT = { stop: 128 } as const
/** struct ptrace_syscall_info: kind, then of an entry the number and six arguments, of an exit the value. */
const INFO = { bytes: 88, kind: 0, number: 24, args: 32, value: 24, entry: 1, exit: 2 } as const
const argCount = 6
const anyThread = 0x4000_0000
const stopped = 0x7f
const sysgoodTrap = constants.signals.SIGTRAP | 0x80
const groupStops: readonly number[] = [
  constants.signals.SIGSTOP,
  constants.signals.SIGTSTP,
  constants.signals.SIGTTIN,
  constants.signals.SIGTTOU,
]

const { i32, i64, ptr: pointer } = FFIType
const libc = libcOf({
  ptrace: { args: [i64, i64, i64, i64], returns: i64 },
  waitpid: { args: [i32, pointer, i32], returns: i32 },
})

// Array buffers: the bytes of a small typed array may be moved.
const info = new DataView(new ArrayBuffer(INFO.bytes))
const status = new DataView(new ArrayBuffer(4))

/** Attaches to every thread of the process, present and future, but to none of its children. */
export function attach(pid: number): void {
  const known = new Set<number>()
  for (let isNew = true; isNew; ) {
    isNew = false
    for (const tid of readdirSync(`/proc/${pid}/task`).map(Number)) {
      if (known.has(tid)) continue
      known.add(tid)
      // Refused: it has ended, or was begun by a thread that was held already.
      if (request(REQUEST.seize, tid, 0, OPTION.sysgood | OPTION.clone)) request(REQUEST.interrupt, tid, 0, 0)
      isNew = true
    }
  }
}

/** Waits for the next stop of any traced thread. Null if nothing is traced any more. */
export function nextStop(): Stop | null {
  const tid = libc().waitpid(-1, ptr(status.buffer), anyThread)
  if (tid === -1) {
    if (errno() === constants.errno.EINTR) return { kind: 'other', tid: 0 }
    return null
  }
  const word = status.getInt32(0, true)
  if ((word & 0xff) !== stopped) return { kind: 'ended', tid }
  const signal = (word >> 8) & 0xff
  const event = word >> 16
  if (signal === sysgoodTrap) return systemCallStop(tid)
  if (event === EVENT.stop) return { kind: groupStops.includes(signal) ? 'group' : 'other', tid }
  return event === 0 ? { kind: 'signal', tid, signal } : { kind: 'other', tid }
}

/** Lets a thread go on to the next system call, with the signal that it was stopped for. */
export function resume({ tid, ...stop }: Stop): void {
  if (stop.kind === 'ended' || tid === 0) return
  if (stop.kind === 'group') request(REQUEST.listen, tid, 0, 0)
  else request(REQUEST.syscall, tid, 0, stop.kind === 'signal' ? stop.signal : 0)
}

function systemCallStop(tid: number): Stop {
  if (!request(REQUEST.syscallInfo, tid, INFO.bytes, ptr(info.buffer))) return { kind: 'other', tid }
  const kind = info.getUint8(INFO.kind)
  if (kind === INFO.exit) return { kind: 'leave', tid, value: Number(info.getBigInt64(INFO.value, true)) }
  if (kind !== INFO.entry) return { kind: 'other', tid }
  const args = Array.from({ length: argCount }, (_, at) => Number(info.getBigUint64(INFO.args + 8 * at, true)))
  return { kind: 'enter', tid, number: Number(info.getBigUint64(INFO.number, true)), args }
}

/** False if the thread is gone, or not stopped. */
function request(what: number, tid: number, address: number, data: number): boolean {
  return Number(libc().ptrace(what, tid, address, data)) !== -1
}
