// A socket for the kernel's notifications about networking (netlink(7)). Effects: opens a socket of the network
// namespace that the caller is in, and reads it.
//
// No callback: the owner polls the socket. The glibc calls are here because the measured images do not need them
// (linux/libc.ts).

import { FFIType, ptr } from 'bun:ffi'
import { closeSync } from 'node:fs'
import { constants } from 'node:os'
import { Fault } from '../../base/fault.ts'
import { errno, libcOf } from '../../linux/ffi.ts'
import { errnoName } from '../../linux/libc.ts'

/** Sources of notifications: protocol, and groups as bits. */
export const NETLINK = {
  /** NETLINK_NETFILTER, NFNLGRP_NFTABLES. */
  nftables: { protocol: 12, groups: 1 << 6 },
  /**
   * NETLINK_ROUTE; RTMGRP_LINK, _IPV4_IFADDR, _IPV4_RULE, _IPV6_IFADDR, and RTNLGRP_IPV6_RULE. An address counts while
   * its interface is up.
   */
  addresses: { protocol: 0, groups: 0x191 | (1 << 18) },
} as const

export type NetlinkRead = {
  /** One or more messages each (netlink-message.ts). */
  readonly packets: readonly Uint8Array[]
  /** Whether some messages did not fit into the socket's buffer, or wait for the next read. */
  readonly lost: boolean
}

export class NetlinkSocket implements Disposable {
  readonly #fd: number
  readonly #buffer = new Uint8Array(packetBytesMax)

  /** Opens the socket. Throws Fault host.unsupported. */
  constructor({ protocol, groups }: (typeof NETLINK)[keyof typeof NETLINK]) {
    this.#fd = succeeded('socket', libc().socket(family, type, protocol))
    const address = new DataView(new ArrayBuffer(12))
    address.setUint16(0, family, true)
    address.setUint32(8, groups, true)
    try {
      const size = Int32Array.of(bufferBytes)
      succeeded('setsockopt', libc().setsockopt(this.#fd, SOCKET.level, SOCKET.receiveBufferForce, ptr(size), 4))
      succeeded('bind', libc().bind(this.#fd, ptr(address.buffer), address.byteLength))
    } catch (error) {
      closeSync(this.#fd)
      throw error
    }
  }

  /** Returns all waiting messages, up to the buffer's size. Does not wait. Throws Fault host.unsupported. */
  read(): NetlinkRead {
    const packets: Uint8Array[] = []
    let lost = false
    for (let count = 0; count < packetCountMax; count += 1) {
      const bytes = Number(libc().recv(this.#fd, ptr(this.#buffer), this.#buffer.length, 0))
      if (bytes >= 0) {
        packets.push(this.#buffer.slice(0, bytes))
        continue
      }
      const code = errno()
      if (code === constants.errno.EAGAIN) return { packets, lost }
      if (code === constants.errno.ENOBUFS) lost = true
      else if (code !== constants.errno.EINTR) throw failed('recv', code)
    }
    return { packets, lost: true }
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd)
  }
}

/** A transaction over a thousand VMs is 3 MB of messages. */
const bufferBytes = 16_777_216
/** The kernel sends 8 KiB at a time, or one larger message. */
const packetBytesMax = 65_536
/** No share: an answer of the kernel. */
const packetCountMax = 8_192

/** include/linux/socket.h, include/linux/net.h, include/uapi/asm-generic/socket.h; the same on x86-64 and aarch64. */
export const family = 16
/** SOCK_RAW, SOCK_CLOEXEC, SOCK_NONBLOCK. */
export const type = 3 | 0o2000000 | 0o4000
export const SOCKET = { level: 1, receiveBufferForce: 33 } as const satisfies Record<string, number>

const { i32, u32, i64, u64, ptr: pointer } = FFIType
const libc = libcOf({
  socket: { args: [i32, i32, i32], returns: i32 },
  bind: { args: [i32, pointer, u32], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
  recv: { args: [i32, pointer, u64, i32], returns: i64 },
})

function succeeded(call: string, value: number): number {
  if (value >= 0) return value
  throw failed(call, errno())
}

function failed(call: string, code: number): Fault {
  return new Fault('host.unsupported', `netlink: ${call}: ${errnoName(code)}`)
}
