// Bounds the receive buffers of a port's connections. Effects: options of sockets of this process.

import { ptr } from 'bun:ffi'
import { readdirSync } from 'node:fs'
import { libcOf } from './ffi.ts'

/**
 * Bun reads a socket again and again in one turn of the event loop while each read fills nearly all of its 512 KiB
 * (tried on 1.4.5): 32 MiB of a fast client took one turn of 40 ms. The kernel doubles this number, which is the most
 * that Linux grants by default, so that no read is as long.
 */
const receiveBytes = 212_992

/** Connections to this port that are accepted from now on. Fault host.unsupported. */
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

/** include/uapi/asm-generic/socket.h. */
const SOCKET = { level: 1, receiveBuffer: 8, isListening: 30 } as const satisfies Record<string, number>
/** struct sockaddr_storage; AF_INET and AF_INET6 have the port in the same place. */
const ADDRESS = { bytes: 128, port: 2, families: [2, 10] as readonly number[] } as const

const libc = libcOf({
  getsockname: { args: ['i32', 'ptr', 'ptr'], returns: 'i32' },
  getsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'ptr'], returns: 'i32' },
  setsockopt: { args: ['i32', 'i32', 'i32', 'ptr', 'u32'], returns: 'i32' },
})
