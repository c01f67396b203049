// A stand-in for the virtio-serial port: two FIFOs. Like the port, a reader gets 0 bytes without a writer and EAGAIN
// from a silent writer.

import * as fs from 'node:fs'
import { join } from 'node:path'
import { systemErrorCode } from '../../../src/base/fault.ts'
import { until } from '../until.ts'
import { type Sandbox, succeed } from './root.ts'

/** For a process that starts, or works, on a busy machine. */
const waitMs = 120_000

export type PortPaths = { readonly toGuest: string; readonly fromGuest: string }
type GuestEnd = { readonly readFd: number; readonly writeFd: number }
type Port = PortPaths & GuestEnd & Disposable

export type HostEnd = Disposable & {
  readonly write: (text: string) => void
  /** As fast as the guest reads it. */
  readonly writeAll: (bytes: Uint8Array) => Promise<void>
  /** The next lines that are not empty; throws where they do not come in time. */
  readonly readLines: (count: number, timeoutMs?: number) => Promise<string[]>
}

export function makePortPaths(sandbox: Sandbox): PortPaths {
  const paths = { toGuest: join(sandbox.root, 'to-guest'), fromGuest: join(sandbox.root, 'from-guest') }
  succeed(['mkfifo', paths.toGuest, paths.fromGuest])
  return paths
}

/** The caller closes the descriptors. */
export function openGuestEnd({ toGuest, fromGuest }: PortPaths): GuestEnd {
  const { O_RDONLY, O_RDWR, O_NONBLOCK } = fs.constants
  // O_RDWR: a FIFO without a reader refuses to be opened for writing alone.
  return { readFd: fs.openSync(toGuest, O_RDONLY | O_NONBLOCK), writeFd: fs.openSync(fromGuest, O_RDWR | O_NONBLOCK) }
}

export function makePort(sandbox: Sandbox): Port {
  const paths = makePortPaths(sandbox)
  const { readFd, writeFd } = openGuestEnd(paths)
  const close = () => {
    fs.closeSync(readFd)
    fs.closeSync(writeFd)
  }
  return { ...paths, readFd, writeFd, [Symbol.dispose]: close }
}

/** Connects; waits until a guest reads. */
export async function makeHostEnd({ toGuest, fromGuest }: PortPaths): Promise<HostEnd> {
  const { O_WRONLY, O_RDONLY, O_NONBLOCK } = fs.constants
  let writeFd = -1
  await until('a guest reads', waitMs, () => {
    try {
      writeFd = fs.openSync(toGuest, O_WRONLY | O_NONBLOCK)
      return true
    } catch {
      return false
    }
  })
  const readFd = fs.openSync(fromGuest, O_RDONLY | O_NONBLOCK)
  const buffer = new Uint8Array(65_536)
  let held = ''
  const lines: string[] = []
  const pump = () => {
    held += new TextDecoder().decode(buffer.subarray(0, readNow(readFd, buffer)))
    const ended = held.split('\n')
    held = ended.pop() ?? ''
    lines.push(...ended.filter(text => text !== ''))
  }
  return {
    write: text => void fs.writeSync(writeFd, text),
    writeAll: async bytes => {
      let at = 0
      await until('written', waitMs, () => {
        at += writeNow(writeFd, bytes.subarray(at))
        return at === bytes.length
      })
    },
    readLines: async (count, timeoutMs = waitMs) => {
      await until(`${count} lines`, timeoutMs, () => {
        pump()
        return lines.length >= count
      })
      return lines.splice(0, count)
    },
    [Symbol.dispose]: () => {
      fs.closeSync(writeFd)
      fs.closeSync(readFd)
    },
  }
}

function readNow(fd: number, buffer: Uint8Array): number {
  return nowOrZero(() => fs.readSync(fd, buffer))
}

function writeNow(fd: number, bytes: Uint8Array): number {
  return nowOrZero(() => fs.writeSync(fd, bytes))
}

function nowOrZero(transfer: () => number): number {
  try {
    return transfer()
  } catch (error) {
    if (systemErrorCode(error) === 'EAGAIN') return 0
    throw error
  }
}
