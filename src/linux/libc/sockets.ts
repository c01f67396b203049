// System calls on sockets that neither Bun nor its node: modules offer. Effects: each function calls glibc.

import { FFIType, ptr } from 'bun:ffi'
import { readdirSync } from 'node:fs'
import { assert } from '../../base/assert.ts'
import { libcOf, result, type SystemResult } from '../ffi.ts'

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

/** include/linux/socket.h, include/linux/net.h; the same on x86-64 and aarch64. */
export const UNIX = { family: 1, stream: 1, closeOnExec: 0o2000000 } as const satisfies Record<string, number>
/** include/uapi/asm-generic/poll.h. */
export const POLL = { in: 0x0001, peerClosed: 0x2000 } as const satisfies Record<string, number>
/** include/uapi/asm-generic/socket.h. */
export const SOCKET = { level: 1, receiveBuffer: 8, isListening: 30 } as const satisfies Record<string, number>
/** struct sockaddr_storage; AF_INET and AF_INET6 have the port in the same place. */
export const ADDRESS = { bytes: 128, port: 2, families: [2, 10] as readonly number[] } as const

/** No share: limits one system call. */
export const polledMax = 64
/**
 * Each struct pollfd has the descriptor, then two shorts, the events that are polled and those that are found
 * (little-endian). All calls share one array, as none waits. The address is taken at each call because the runtime's
 * compiler moves small arrays.
 */
const pollfds = new Int32Array(2 * polledMax)

const { i32, u32, u64, ptr: pointer } = FFIType
const libc = libcOf({
  socket: { args: [i32, i32, i32], returns: i32 },
  socketpair: { args: [i32, i32, i32, pointer], returns: i32 },
  bind: { args: [i32, pointer, u32], returns: i32 },
  listen: { args: [i32, i32], returns: i32 },
  getsockname: { args: [i32, pointer, pointer], returns: i32 },
  getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
  poll: { args: [pointer, u64, i32], returns: i32 },
})
