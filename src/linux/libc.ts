// Linux system calls that neither Bun nor its node: modules offer. Effects: each function is one call into glibc.
// Numbers: x86-64 and aarch64 share those of pidfd (include/uapi/asm-generic/unistd.h). ioctl, fcntl and syscall are
// variadic in C; integer and pointer arguments travel in the same registers either way on both (System V x86-64 psABI
// 3.2.3, AAPCS64 6.4).

import { FFIType, ptr } from 'bun:ffi'
import { readdirSync } from 'node:fs'
import { constants } from 'node:os'
import { assert } from '../base/assert.ts'
import { errno, libcOf } from './ffi.ts'

/** `errno` is the number of errno(3); compare with `os.constants.errno`. */
type SystemResult = { readonly ok: true; readonly value: number } | { readonly ok: false; readonly errno: number }

/** pidfd_open(2): a descriptor of this process, never of a later one with its number. ESRCH: there is none. */
export function pidfdOpen(pid: number): SystemResult {
  return syscall(SYSCALL.pidfdOpen, pid, 0, 0, 0)
}

/** pidfd_send_signal(2). Fails with ESRCH when the process is gone, recycled number or not. */
export function pidfdSendSignal(pidfd: number, signal: number): SystemResult {
  return syscall(SYSCALL.pidfdSendSignal, pidfd, signal, 0, 0)
}

/** ioctl(2) on a buffer that the kernel reads and writes. */
export function ioctl(fd: number, request: number, argument: Uint8Array): SystemResult {
  return result(libc().ioctl(fd, request, ptr(argument)))
}

/** flock(2). Fails with EWOULDBLOCK when another open file holds the lock. */
export function flock(fd: number, operation: number): SystemResult {
  return result(libc().flock(fd, operation))
}

/** socket(2): a UNIX stream socket, close-on-exec. */
export function unixStreamSocket(): SystemResult {
  return result(libc().socket(UNIX.family, UNIX.stream | UNIX.closeOnExec, 0))
}

/** bind(2) to a path (unix(7)). The caller has checked that it fits. Fails with EADDRINUSE when anything is there. */
export function bindUnix(fd: number, path: string): SystemResult {
  const family = Buffer.alloc(2)
  family.writeUInt16LE(UNIX.family)
  const address = Buffer.concat([family, Buffer.from(path), Buffer.alloc(1)])
  return result(libc().bind(fd, ptr(address), address.length))
}

/**
 * poll(2) without a timeout, once for at most `polledMax` sockets: reports for each whether it has unread bytes, an end
 * or an error. Leaves all of it unread. Every socket counts as unread if poll fails.
 */
export function haveUnread(fds: readonly number[]): boolean[] {
  assert(fds.length <= polledMax, 'one call polls a bounded number of sockets')
  fds.forEach((fd, at) => {
    pollfds[2 * at] = fd
    pollfds[2 * at + 1] = POLL.in | POLL.peerClosed
  })
  const found = libc().poll(ptr(pollfds), fds.length, 0)
  return fds.map((fd, at) => fd < 0 || (found !== 0 && (found < 0 || (pollfds[2 * at + 1] ?? 0) >>> 16 !== 0)))
}

/** listen(2). */
export function listen(fd: number, backlog: number): SystemResult {
  return result(libc().listen(fd, backlog))
}

/** socketpair(2): two connected UNIX stream sockets, close-on-exec. */
export function unixSocketPair():
  | { readonly ok: true; readonly fds: readonly [number, number] }
  | (SystemResult & { readonly ok: false }) {
  const fds = new Int32Array(2)
  const made = result(libc().socketpair(UNIX.family, UNIX.stream | UNIX.closeOnExec, 0, ptr(fds)))
  return made.ok ? { ok: true, fds: [fds[0] ?? -1, fds[1] ?? -1] } : made
}

/** Talks over a connected socket, which it then owns. Bun's declarations have the options and no overload for them. */
export const adoptSocket = Bun.connect as unknown as (options: Bun.FdSocketOptions) => Promise<Bun.Socket>

/** A close-on-exec copy of `fd`, numbered `fdMin` or above. */
export function duplicateFd(fd: number, fdMin: number): SystemResult {
  return result(libc().fcntl(fd, FCNTL.duplicateCloseOnExec, fdMin))
}

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

/**
 * Bun repeats a read of a socket in the same turn of the event loop while it fills nearly all of its 512 KiB (tried on
 * 1.4.5): 32 MiB of a fast client took one turn of 40 ms. The kernel doubles this number, the largest that Linux grants
 * by default; no read is then as long.
 */
const receiveBytes = 212_992

/** Bounds the receive buffers of connections that this port accepts from now on. Fault host.unsupported. */
export function boundReceiveBuffers(port: number): void {
  for (const name of readdirSync('/proc/self/fd')) {
    const fd = Number(name)
    if (isListening(fd) && portOf(fd) === port) {
      libc().setsockopt(fd, SOCKET.level, SOCKET.receiveBuffer, ptr(new Int32Array([receiveBytes])), 4)
    }
  }
}

/** socket(7), SO_ACCEPTCONN. False for a descriptor that is no socket. */
function isListening(fd: number): boolean {
  const value = new Int32Array(1)
  const size = new Uint32Array([4])
  return libc().getsockopt(fd, SOCKET.level, SOCKET.isListening, ptr(value), ptr(size)) === 0 && value[0] === 1
}

/** Null for a socket without a port. */
function portOf(fd: number): number | null {
  const address = new Uint8Array(ADDRESS.bytes)
  const size = new Uint32Array([ADDRESS.bytes])
  if (libc().getsockname(fd, ptr(address), ptr(size)) !== 0) return null
  const view = new DataView(address.buffer)
  const hasPort = ADDRESS.families.includes(view.getUint16(0, true))
  return hasPort ? view.getUint16(ADDRESS.port, false) : null
}

export const LOCK = { exclusive: 2, nonBlocking: 4, unlock: 8 } as const satisfies Record<string, number>

/** include/uapi/linux/mount.h. */
export const MOUNT = { readOnly: 1, noSuid: 2, noDevices: 4, noExecution: 8 } as const satisfies Record<string, number>

/** include/linux/socket.h, include/linux/net.h; the same on x86-64 and aarch64. */
const UNIX = { family: 1, stream: 1, closeOnExec: 0o2000000 } as const satisfies Record<string, number>
const SYSCALL = { pidfdSendSignal: 424, pidfdOpen: 434 } as const satisfies Record<string, number>
/** include/uapi/asm-generic/poll.h. */
const POLL = { in: 0x0001, peerClosed: 0x2000 } as const satisfies Record<string, number>
/** include/uapi/asm-generic/socket.h. */
const SOCKET = { level: 1, receiveBuffer: 8, isListening: 30 } as const satisfies Record<string, number>
/** struct sockaddr_storage; AF_INET and AF_INET6 have the port in the same place. */
const ADDRESS = { bytes: 128, port: 2, families: [2, 10] as readonly number[] } as const
const FCNTL = { setFlags: 4, duplicateCloseOnExec: 1030 } as const satisfies Record<string, number>

/** include/uapi/linux/wait.h; `all` is P_ALL. */
const WAIT = { all: 0, noHang: 1, exited: 4, noWait: 0x0100_0000 } as const satisfies Record<string, number>
/** siginfo_t, include/uapi/asm-generic/siginfo.h: `si_pid` stands behind three ints and their padding. */
const SIGINFO = { bytes: 128, pid: 16 } as const satisfies Record<string, number>
/** include/uapi/linux/reboot.h: LINUX_REBOOT_CMD_RESTART. */
const rebootAutoboot = 0x0123_4567

/** No share: limits one system call. */
export const polledMax = 64
/**
 * Each struct pollfd has the descriptor, then two shorts, the events that are polled and those that are found
 * (little-endian). All calls share one array, as none waits. The address is taken at each call because the runtime's
 * compiler moves small arrays.
 */
const pollfds = new Int32Array(2 * polledMax)

const { i32, u32, i64, u64, ptr: pointer } = FFIType
const libc = libcOf({
  ioctl: { args: [i32, u64, pointer], returns: i32 },
  flock: { args: [i32, i32], returns: i32 },
  fcntl: { args: [i32, i32, i32], returns: i32 },
  mount: { args: [pointer, pointer, pointer, u64, pointer], returns: i32 },
  socket: { args: [i32, i32, i32], returns: i32 },
  socketpair: { args: [i32, i32, i32, pointer], returns: i32 },
  bind: { args: [i32, pointer, u32], returns: i32 },
  listen: { args: [i32, i32], returns: i32 },
  getsockname: { args: [i32, pointer, pointer], returns: i32 },
  getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
  poll: { args: [pointer, u64, i32], returns: i32 },
  waitid: { args: [i32, u32, pointer, i32], returns: i32 },
  waitpid: { args: [i32, pointer, i32], returns: i32 },
  reboot: { args: [i32], returns: i32 },
  syscall: { args: [i64, i64, i64, i64, i64], returns: i64 },
})

function syscall(number: number, a: number, b: number, c: number, d: number): SystemResult {
  return result(Number(libc().syscall(number, a, b, c, d)))
}

function result(value: number): SystemResult {
  return value === -1 ? { ok: false, errno: errno() } : { ok: true, value }
}
