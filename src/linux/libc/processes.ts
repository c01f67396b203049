// System calls on children and descriptors that neither Bun nor its node: modules offer. Effects: each function is one
// call into glibc. fcntl is variadic in C, which makes no difference to integers and pointers (libc.ts).

import { FFIType, ptr } from 'bun:ffi'
import { libcOf, result, type SystemResult } from '../ffi.ts'

/** fcntl(2): reads and writes of `fd` wait from now on, for every process that shares it. */
export function makeBlocking(fd: number): SystemResult {
  return result(libc().fcntl(fd, FCNTL.setFlags, 0))
}

/** waitid(2) that collects nothing: a child that has ended and waits to be collected, or null. */
export function endedChild(): number | null {
  const info = new DataView(new ArrayBuffer(SIGINFO.bytes))
  const asked = result(libc().waitid(WAIT.all, 0, ptr(info.buffer), WAIT.noHang | WAIT.exited | WAIT.noWait))
  const pid = info.getInt32(SIGINFO.pid, true)
  return asked.ok && pid > 0 ? pid : null
}

/** waitpid(2) for a child that has ended; no effect on any other. */
export function collectChild(pid: number): void {
  libc().waitpid(pid, null, WAIT.noHang)
}

export const FCNTL = { setFlags: 4 } as const satisfies Record<string, number>

/** include/uapi/linux/wait.h; `all` is P_ALL. */
export const WAIT = { all: 0, noHang: 1, exited: 4, noWait: 0x0100_0000 } as const satisfies Record<string, number>
/** siginfo_t, include/uapi/asm-generic/siginfo.h: `si_pid` stands behind three ints and their padding. */
export const SIGINFO = { bytes: 128, pid: 16 } as const satisfies Record<string, number>

const { i32, u32, ptr: pointer } = FFIType
const libc = libcOf({
  fcntl: { args: [i32, i32, i32], returns: i32 },
  waitid: { args: [i32, u32, pointer, i32], returns: i32 },
  waitpid: { args: [i32, pointer, i32], returns: i32 },
})
