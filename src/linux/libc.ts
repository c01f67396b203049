// Linux system calls that neither Bun nor its node: modules offer. Effects: each function is one call into glibc.
// ioctl is variadic in C: integer and pointer arguments travel in the same registers either way (System V x86-64 psABI
// 3.2.3, AAPCS64 6.4). Sockets and processes have modules of their own in libc/.

import { FFIType, ptr } from 'bun:ffi'
import { constants } from 'node:os'
import { libcOf, result, type SystemResult } from './ffi.ts'

/** ioctl(2) on a buffer that the kernel reads and writes. */
export function ioctl(fd: number, request: number, argument: Uint8Array): SystemResult {
  return result(libc().ioctl(fd, request, ptr(argument)))
}

/** flock(2). Fails with EWOULDBLOCK when another open file holds the lock. */
export function flock(fd: number, operation: number): SystemResult {
  return result(libc().flock(fd, operation))
}

/** reboot(2): restarts the machine at once, without syncing disks. Returns only on failure. */
export function restartMachine(): SystemResult {
  return result(libc().reboot(rebootAutoboot))
}

/** mount(2) of a device, without data for the file system. `flags` of MOUNT. */
export function mount(source: string, target: string, type: string, flags: number): SystemResult {
  const [from, to, name] = [source, target, type].map(text => Buffer.from(`${text}\0`)) as [Buffer, Buffer, Buffer]
  return result(libc().mount(ptr(from), ptr(to), ptr(name), flags, null))
}

/** `ESRCH`, `EBUSY`, …; the number when it has no name here. */
export function errnoName(errno: number): string {
  return Object.entries(constants.errno).find(([, value]) => value === errno)?.[0] ?? `errno ${errno}`
}

export const LOCK = { exclusive: 2, nonBlocking: 4, unlock: 8 } as const satisfies Record<string, number>

/** include/uapi/linux/mount.h. */
export const MOUNT = { readOnly: 1, noSuid: 2, noDevices: 4, noExecution: 8 } as const satisfies Record<string, number>

/** include/uapi/linux/reboot.h: LINUX_REBOOT_CMD_RESTART. */
export const rebootAutoboot = 0x0123_4567

const { i32, u64, ptr: pointer } = FFIType
const libc = libcOf({
  ioctl: { args: [i32, u64, pointer], returns: i32 },
  flock: { args: [i32, i32], returns: i32 },
  mount: { args: [pointer, pointer, pointer, u64, pointer], returns: i32 },
  reboot: { args: [i32], returns: i32 },
})
