// System calls on processes by descriptor that neither Bun nor its node: modules offer. Effects: each function is one
// call into glibc. Numbers: x86-64 and aarch64 share those of pidfd (include/uapi/asm-generic/unistd.h). fcntl and
// syscall are variadic in C, which makes no difference to integers and pointers (libc.ts).

import { FFIType } from 'bun:ffi'
import { libcOf, result, type SystemResult } from '../ffi.ts'

/** pidfd_open(2): a descriptor of this process, never of a later one with its number. ESRCH: there is none. */
export function pidfdOpen(pid: number): SystemResult {
  return syscall(SYSCALL.pidfdOpen, pid, 0, 0, 0)
}

/** pidfd_send_signal(2). Fails with ESRCH when the process is gone, recycled number or not. */
export function pidfdSendSignal(pidfd: number, signal: number): SystemResult {
  return syscall(SYSCALL.pidfdSendSignal, pidfd, signal, 0, 0)
}

/** A close-on-exec copy of `fd`, numbered `fdMin` or above. */
export function duplicateFd(fd: number, fdMin: number): SystemResult {
  return result(libc().fcntl(fd, FCNTL.duplicateCloseOnExec, fdMin))
}

export const SYSCALL = { pidfdSendSignal: 424, pidfdOpen: 434 } as const satisfies Record<string, number>
export const FCNTL = { duplicateCloseOnExec: 1030 } as const satisfies Record<string, number>

function syscall(number: number, a: number, b: number, c: number, d: number): SystemResult {
  return result(Number(libc().syscall(number, a, b, c, d)))
}

const { i32, i64 } = FFIType
const libc = libcOf({
  fcntl: { args: [i32, i32, i32], returns: i32 },
  syscall: { args: [i64, i64, i64, i64, i64], returns: i64 },
})
