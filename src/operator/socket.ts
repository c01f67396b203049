// The admin socket: HTTP on a UNIX socket that only its owner reaches. Effects: one listening socket.

import { chmodSync, lstatSync } from 'node:fs'
import { Fault, messageOf } from '../base/fault.ts'
import { checkSocketPath } from '../host/qemu/unix-socket.ts'
import { removeFile } from '../linux/files.ts'
import type { AdminHandler } from './api.ts'

export type AdminServer = { readonly path: string; readonly stop: () => Promise<void> }

/**
 * Listens at `path`, mode 0600. A socket left behind by a dead daemon is replaced, a living one never.
 * Faults: conflict (somebody answers there), host.unsupported (path too long, or not to be had).
 */
export async function listenAdmin(path: string, handler: AdminHandler): Promise<AdminServer> {
  checkSocketPath(path)
  if (await isAnswered(path)) {
    throw new Fault('conflict', `another strongroom already serves this state directory (${path} answers)`)
  }
  if (isSocket(path)) removeFile(path)
  // Bun.serve binds before it returns, so no moment is left in which others may connect.
  const umask = process.umask(0o177)
  let server: Bun.Server<undefined>
  try {
    server = Bun.serve({
      unix: path,
      maxRequestBodySize: bodyBytesMax,
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

const bodyBytesMax = 65_536
/** A console that is followed may be quiet for hours. Bun's types have this for ports only; it works for UNIX sockets (tried on 1.4.5). */
const NEVER_IDLE: object = { idleTimeout: 0 }

function isSocket(path: string): boolean {
  try {
    return lstatSync(path).isSocket()
  } catch {
    return false
  }
}

async function isAnswered(path: string): Promise<boolean> {
  try {
    const socket = await Bun.connect({ unix: path, socket: { data: () => {} } })
    socket.terminate()
    return true
  } catch {
    return false
  }
}
