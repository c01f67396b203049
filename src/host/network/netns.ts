// Work inside another network namespace (network_namespaces(7), setns(2)). Effects: moves the calling thread there and
// back.
//
// A socket, an opened /dev/net/tun, a started process and an open file of /proc/thread-self/net belong to the namespace
// in which the thread was when they were created, and stay there. Moving there and back takes 10 µs.

import { FFIType } from 'bun:ffi'
import { closeSync, openSync, statfsSync } from 'node:fs'
import { Fault, wrapFault } from '../../base/fault.ts'
import { errno, libcOf } from '../../linux/ffi.ts'
import { errnoName } from '../../linux/libc.ts'

export type Netns = {
  /**
   * Calls `work` inside the namespace until it returns; after an `await` it is outside. Throws Fault host.unsupported.
   */
  readonly run: <T>(work: () => T) => T
}

/** The namespace of the process. */
export const hereNetns: Netns = { run: work => work() }

/** Returns the namespace that is mounted on `file`. It may be mounted later, because each call opens it. */
export function netnsAt(file: string): Netns {
  return {
    run: work => {
      const [own, other] = [open('/proc/thread-self/ns/net'), open(file)]
      try {
        enter(other, file)
        try {
          return work()
        } finally {
          comeBack(own)
        }
      } finally {
        closeSync(own)
        closeSync(other)
      }
    },
  }
}

/** Reports whether a namespace is mounted on `file`. */
export function isNetns(file: string): boolean {
  try {
    return statfsSync(file).type === nsfsMagic
  } catch {
    return false
  }
}

/** NSFS_MAGIC, include/uapi/linux/magic.h. */
export const nsfsMagic = 0x6e73_6673
/** CLONE_NEWNET, include/uapi/linux/sched.h. */
export const networkKind = 0x4000_0000

const { i32 } = FFIType
const libc = libcOf({ setns: { args: [i32, i32], returns: i32 } })

function open(file: string): number {
  try {
    return openSync(file, 'r')
  } catch (error) {
    throw wrapFault(error, `open the network namespace ${file}`, 'host.unsupported')
  }
}

function enter(fd: number, file: string): void {
  if (libc().setns(fd, networkKind) === 0) return
  throw new Fault('host.unsupported', `enter the network namespace ${file}: ${errnoName(errno())}`)
}

/** Returns to the process's namespace. A thread that stayed there would open the daemon's sockets to VMs. */
function comeBack(fd: number): void {
  if (libc().setns(fd, networkKind) !== 0) process.abort()
}
