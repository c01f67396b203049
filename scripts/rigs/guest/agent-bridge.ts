// QEMU's socket of an agent port, without QEMU: the guest's FIFOs have a host while a client is connected. Effects: a
// socket, two FIFOs.

import * as fs from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { until } from '../until.ts'
import type { PortPaths } from './agent-port.ts'

/** Sees every byte that passes. */
export type BridgeTap = (direction: 'to-guest' | 'from-guest', bytes: Uint8Array) => void

type BridgeOptions = {
  readonly path: string
  readonly port: PortPaths
  readonly tap?: BridgeTap
}

/** Listens at `path` until disposed of. A new client ends the one before it. */
export function bridgeSocket({ path, port, tap = () => {} }: BridgeOptions): Disposable {
  let current: Socket | null = null
  const server = createServer(socket => {
    current?.destroy()
    current = socket
    socket.on('error', () => {})
    void carry(socket, port, tap)
  })
  server.listen(path)
  return {
    [Symbol.dispose]: () => {
      current?.destroy()
      server.close()
    },
  }
}

async function carry(socket: Socket, { toGuest, fromGuest }: PortPaths, tap: BridgeTap): Promise<void> {
  const { O_WRONLY, O_RDONLY, O_NONBLOCK } = fs.constants
  let writeFd = -1
  await until('the guest reads', 120_000, () => {
    try {
      writeFd = fs.openSync(toGuest, O_WRONLY | O_NONBLOCK)
      return true
    } catch {
      return socket.destroyed
    }
  })
  const readFd = fs.openSync(fromGuest, O_RDONLY | O_NONBLOCK)
  const close = () => {
    clearInterval(timer)
    for (const fd of [writeFd, readFd]) if (fd >= 0) fs.closeSync(fd)
  }
  const buffer = Buffer.alloc(262_144)
  const waiting: Buffer[] = []
  const step = () => {
    try {
      while (waiting[0] !== undefined) {
        const written = fs.writeSync(writeFd, waiting[0])
        waiting[0] = waiting[0].subarray(written)
        if (waiting[0].length === 0) waiting.shift()
      }
    } catch {
      // The FIFO is full, or nobody reads it any more.
    }
    try {
      for (let got = fs.readSync(readFd, buffer); got > 0; got = fs.readSync(readFd, buffer)) {
        const chunk = Buffer.from(buffer.subarray(0, got))
        tap('from-guest', chunk)
        socket.write(chunk)
      }
    } catch {
      // Nothing to read now.
    }
  }
  const timer = setInterval(step, 1)
  socket.on('data', chunk => {
    const copy = Buffer.from(chunk)
    tap('to-guest', copy)
    waiting.push(copy)
    step()
  })
  socket.once('close', close)
  if (socket.destroyed) close()
}
