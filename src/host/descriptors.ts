// Text with descriptors over a UNIX stream socket (unix(7), SCM_RIGHTS). Effects: system calls on a blocking socket.

import { FFIType, ptr } from 'bun:ffi'
import { closeSync } from 'node:fs'
import { Fault } from '../base/fault.ts'
import { errno, libcOf } from '../linux/ffi.ts'
import { unixStreamSocket } from '../linux/libc/sockets.ts'
import { errnoName } from '../linux/libc.ts'

/** Connects at once or not at all. The caller closes the socket. Throws Fault host.command_failed. */
export function connectedUnix(path: string): number {
  const address = Buffer.alloc(addressBytes)
  address.writeUInt16LE(unixFamily)
  if (Buffer.byteLength(path) >= addressBytes - 2) throw new Fault('host.command_failed', `${path}: too long`)
  address.write(path, 2)
  const socket = unixStreamSocket()
  if (!socket.ok) throw new Fault('host.command_failed', `socket: ${errnoName(socket.errno)}`)
  if (libc().connect(socket.value, ptr(address), 2 + Buffer.byteLength(path) + 1) === 0) return socket.value
  const reason = errnoName(errno())
  closeSync(socket.value)
  throw new Fault('host.command_failed', `connect ${path}: ${reason}`)
}

/** Sends all bytes, with copies of the descriptors next to the first one. Throws Fault host.command_failed. */
export function sendWithDescriptors(socket: number, bytes: Uint8Array, fds: readonly number[]): void {
  for (let sent = 0; sent < bytes.length; ) {
    const message = messageOf(Buffer.from(bytes.subarray(sent)), sent === 0 ? controlOf(fds) : Buffer.alloc(0))
    const result = Number(libc().sendmsg(socket, ptr(message.header), noSignal))
    if (result < 0) throw new Fault('host.command_failed', `sendmsg: ${errnoName(errno())}`)
    sent += result
  }
}

/**
 * Waits for a line. Returns everything up to a line feed, without it, and the descriptors sent with it, close-on-exec;
 * the caller closes them. Throws Fault host.command_failed if the sender ended, or sent more than `bytesMax`.
 */
export function receiveLine(socket: number, bytesMax: number): { readonly line: string; readonly fds: number[] } {
  const fds: number[] = []
  const chunks: Buffer[] = []
  try {
    for (let length = 0; length <= bytesMax; ) {
      const bytes = Buffer.alloc(chunkBytes)
      const message = messageOf(bytes, Buffer.alloc(controlBytes(fdCountMax)))
      const received = Number(libc().recvmsg(socket, ptr(message.header), closeOnExec))
      if (received < 0) throw new Fault('host.command_failed', `recvmsg: ${errnoName(errno())}`)
      fds.push(...fdsIn(message.control, Number(message.header.readBigUInt64LE(HEADER.controlBytes))))
      if (received === 0) throw new Fault('host.command_failed', 'the sender ended in the middle')
      chunks.push(bytes.subarray(0, received))
      length += received
      if (bytes[received - 1] === lineFeed) return { line: Buffer.concat(chunks).toString('utf8').slice(0, -1), fds }
    }
    throw new Fault('host.command_failed', `more than ${bytesMax} bytes in a line`)
  } catch (error) {
    for (const fd of fds) closeSync(fd)
    throw error
  }
}

type Message = { readonly header: Buffer; readonly bytes: Buffer; readonly control: Buffer; readonly vector: Buffer }

/** Builds a message, which keeps references to the buffers. */
function messageOf(bytes: Buffer, control: Buffer): Message {
  const vector = Buffer.alloc(16)
  vector.writeBigUInt64LE(BigInt(ptr(bytes)), 0)
  vector.writeBigUInt64LE(BigInt(bytes.length), 8)
  const header = Buffer.alloc(HEADER.bytes)
  header.writeBigUInt64LE(BigInt(ptr(vector)), HEADER.vector)
  header.writeBigUInt64LE(1n, HEADER.vectorCount)
  if (control.length > 0) header.writeBigUInt64LE(BigInt(ptr(control)), HEADER.control)
  header.writeBigUInt64LE(BigInt(control.length), HEADER.controlBytes)
  return { header, bytes, control, vector }
}

function controlOf(fds: readonly number[]): Buffer {
  if (fds.length > fdCountMax) throw new Fault('host.command_failed', `more than ${fdCountMax} descriptors`)
  if (fds.length === 0) return Buffer.alloc(0)
  const control = Buffer.alloc(controlBytes(fds.length))
  control.writeBigUInt64LE(BigInt(controlHeadBytes + 4 * fds.length), 0)
  control.writeInt32LE(socketLevel, 8)
  control.writeInt32LE(rights, 12)
  for (const [at, fd] of fds.entries()) control.writeInt32LE(fd, controlHeadBytes + 4 * at)
  return control
}

function fdsIn(control: Buffer, length: number): number[] {
  if (length < controlHeadBytes) return []
  if (control.readInt32LE(8) !== socketLevel || control.readInt32LE(12) !== rights) return []
  const count = (Number(control.readBigUInt64LE(0)) - controlHeadBytes) / 4
  return Array.from({ length: count }, (_, at) => control.readInt32LE(controlHeadBytes + 4 * at))
}

/** Returns the size of a control message (cmsg(3)): a head of 16 bytes, the numbers, and padding to 8. */
function controlBytes(count: number): number {
  return controlHeadBytes + Math.ceil((4 * count) / 8) * 8
}

export const controlHeadBytes = 16
/** A VM has thirteen; the kernel accepts 253. No share: limits one start. */
const fdCountMax = 32
const chunkBytes = 65_536
const lineFeed = 0x0a
/** struct msghdr of x86-64 and aarch64 (recvmsg(2)). */
export const HEADER = { vector: 16, vectorCount: 24, control: 32, controlBytes: 40, bytes: 56 } as const
/** SOL_SOCKET, SCM_RIGHTS, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC, AF_UNIX: include/linux/socket.h. */
export const [socketLevel, rights, noSignal, closeOnExec, unixFamily] = [1, 1, 0x4000, 0x4000_0000, 1]
export const addressBytes = 110

const { i32, u32, i64, ptr: pointer } = FFIType
const libc = libcOf({
  connect: { args: [i32, pointer, u32], returns: i32 },
  sendmsg: { args: [i32, pointer, i32], returns: i64 },
  recvmsg: { args: [i32, pointer, i32], returns: i64 },
})
