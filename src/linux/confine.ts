// Drops for good every right that work on hostile text does not need. Effects: system calls on this process.

import { dlopen, FFIType, ptr } from 'bun:ffi'
import { constants } from 'node:os'
import { Fault } from '../base/fault.ts'

/**
 * No new files, sockets or pipes; no new privileges, also by exec; user `nobody` instead of root; no core dump; killed
 * with the parent. Open files, threads and memory stay. Fault host.unsupported: not, or only partly, confined.
 */
export function confineForGood(): void {
  const { i32, u64, ptr: pointer } = FFIType
  const { symbols: libc, close } = dlopen('libc.so.6', {
    setrlimit: { args: [i32, pointer], returns: i32 },
    setgroups: { args: [u64, pointer], returns: i32 },
    setresgid: { args: [i32, i32, i32], returns: i32 },
    // glibc changes the identity of all threads (nptl(7)).
    setresuid: { args: [i32, i32, i32], returns: i32 },
    prctl: { args: [i32, u64, u64, u64, u64], returns: i32 },
  })
  const must = (what: string, result: number) => {
    if (result !== 0) throw new Fault('host.unsupported', `cannot confine the process: ${what} failed`)
  }
  const limit = (what: string, resource: number, value: number) =>
    must(what, libc.setrlimit(resource, ptr(new BigUint64Array([BigInt(value), BigInt(value)]))))
  limit('RLIMIT_CORE', RLIMIT.core, 0)
  limit('RLIMIT_FSIZE', RLIMIT.fileBytes, 0)
  if (process.geteuid?.() === 0) {
    must('setgroups', libc.setgroups(0, null))
    must('setresgid', libc.setresgid(NOBODY, NOBODY, NOBODY))
    must('setresuid', libc.setresuid(NOBODY, NOBODY, NOBODY))
  }
  must('PR_SET_NO_NEW_PRIVS', libc.prctl(PRCTL.noNewPrivileges, 1, 0, 0, 0))
  must('PR_SET_DUMPABLE', libc.prctl(PRCTL.dumpable, 0, 0, 0, 0))
  // After setresuid(2), which clears this signal (prctl(2)).
  must('PR_SET_PDEATHSIG', libc.prctl(PRCTL.parentDeathSignal, constants.signals.SIGKILL, 0, 0, 0))
  // Every descriptor below is in use: stdin, stdout and stderr.
  limit('RLIMIT_NOFILE', RLIMIT.files, 3)
  close()
}

/** include/uapi/asm-generic/resource.h; the same on x86-64 and aarch64. */
export const RLIMIT = { fileBytes: 1, core: 4, files: 7 } as const satisfies Record<string, number>
/** include/uapi/linux/prctl.h. */
export const PRCTL = { parentDeathSignal: 1, dumpable: 4, noNewPrivileges: 38 } as const satisfies Record<
  string,
  number
>
const NOBODY = 65_534
