// The admin socket: HTTP on a UNIX socket that only its owner reaches. Effects: one listening socket.

import { chmodSync, lstatSync } from 'node:fs'
import { Fault, messageOf } from '../base/fault.ts'
import { checkSocketPath } from '../host/qemu/unix-socket.ts'
import { removeFile } from '../linux/files.ts'
import type { AdminHandler } from './api.ts'

export type AdminServer = { readonly path: string; readonly stop: () => Promise<void> }

/**
 * Listens at `path`, mode 0600. A socket left behind by a dead daemon is replaced, that of a running one never.
 * Faults: conflict (another daemon listens there), host.unsupported (the path is too long or cannot be used).
 */
export async function listenAdmin(path: string, handler: AdminHandler): Promise<AdminServer> {
  checkSocketPath(path)
  if (await isListenedOn(path)) {
    throw new Fault('conflict', `another strongroom already serves this state directory (${path} accepts connections)`)
  }
  if (isSocket(path)) removeFile(path)
  // Bun.serve binds before it returns, so with this umask there is no moment in which others may connect.
  const umask = process.umask(0o177)
  let server: Bun.Server<undefined>
  try {
    server = Bun.serve({
      unix: path,
      maxRequestBodySize: requestBodyBytesMax,
      ...NEVER_IDLE,
      fetch: request => handler(request),
    })
  } catch (error) {
    throw new Fault('host.unsupported', `listen on ${path}: ${messageOf(error)}`, { cause: error })
  } finally {
    process.umask(umask)
  }
  chmodSync(path, 0o600)
  return {
    path,
    stop: async () => {
      await server.stop(true)
      removeFile(path)
    },
  }
}

/** Bun refuses a larger body by itself, without a problem document; the handler's own limit is well below. */
const requestBodyBytesMax = 1_048_576
/** A followed console may be quiet for hours. Works for UNIX sockets too (Bun 1.4.5), unlike its types say. */
const NEVER_IDLE: object = { idleTimeout: 0 }

function isSocket(path: string): boolean {
  try {
    return lstatSync(path).isSocket()
  } catch {
    return false
  }
}

async function isListenedOn(path: string): Promise<boolean> {
  try {
    const socket = await Bun.connect({ unix: path, socket: { data: () => {} } })
    socket.terminate()
    return true
  } catch {
    return false
  }
}
