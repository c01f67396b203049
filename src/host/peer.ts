// The peer of a UNIX socket, and the numbers of users and groups. Effects: calls into glibc.
//
// SO_PEERCRED (unix(7)): the kernel recorded these ids when the peer called connect(2); the peer cannot choose them.
// The process may have ended since, so its number is only for the record.

import { FFIType, ptr, read } from 'bun:ffi'
import { libcOf } from '../linux/ffi.ts'

export type Peer = { readonly pid: number; readonly uid: number; readonly gid: number }

/** Returns the peer; null if the descriptor is not a connected UNIX socket. */
export function peerOf(fd: number): Peer | null {
  if (!Number.isInteger(fd) || fd < 0) return null
  const credentials = new Int32Array(3)
  const lengthBytes = new Uint32Array([credentials.byteLength])
  const failed = libc().getsockopt(fd, SOCKET.level, SOCKET.peerCredentials, ptr(credentials), ptr(lengthBytes))
  if (failed !== 0 || lengthBytes[0] !== credentials.byteLength) return null
  const [pid = 0, uid = -1, gid = -1] = credentials
  // An unconnected socket has no process. uid_t and gid_t are unsigned.
  return pid <= 0 ? null : { pid, uid: uid >>> 0, gid: gid >>> 0 }
}

/**
 * Returns the id of a user, from wherever this host stores its users (nsswitch.conf(5)); null if there is none of this
 * name.
 */
export function uidOf(name: string): number | null {
  return idOf(name, (text, entry, buffer, found) => libc().getpwnam_r(text, entry, buffer, BigInt(BUFFER_BYTES), found))
}

/** Does the same for a group. */
export function gidOf(name: string): number | null {
  return idOf(name, (text, entry, buffer, found) => libc().getgrnam_r(text, entry, buffer, BigInt(BUFFER_BYTES), found))
}

type Pointer = ReturnType<typeof ptr>
type LookUp = (name: Pointer, entry: Pointer, buffer: Pointer, found: Pointer) => number

/** Looks up an id. struct passwd and struct group both begin with two pointers and then the id (pwd.h, grp.h). */
function idOf(name: string, lookUp: LookUp): number | null {
  const text = Buffer.from(`${name}\0`)
  const entry = Buffer.alloc(ENTRY.bytes)
  const buffer = Buffer.alloc(BUFFER_BYTES)
  const found = new BigUint64Array(1)
  const failed = lookUp(ptr(text), ptr(entry), ptr(buffer), ptr(found))
  if (failed !== 0 || found[0] === 0n) return null
  return read.u32(ptr(entry), ENTRY.id)
}

/** include/uapi/asm-generic/socket.h, the same on x86-64 and aarch64. */
export const SOCKET = { level: 1, peerCredentials: 17 } as const satisfies Record<string, number>
export const ENTRY = { bytes: 64, id: 16 } as const satisfies Record<string, number>
/** For the entry's strings, which include the members of a large group. */
const BUFFER_BYTES = 262_144

const { i32, u64, ptr: pointer } = FFIType
const libc = libcOf({
  getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
  getpwnam_r: { args: [pointer, pointer, pointer, u64, pointer], returns: i32 },
  getgrnam_r: { args: [pointer, pointer, pointer, u64, pointer], returns: i32 },
})
