// The admin sockets: HTTP on UNIX sockets whose peers the kernel identifies. Effects: a listening socket.
//
// Bun.serve exposes no descriptor of a connection, so a net.Server accepts it, reads the peer from the kernel, and then
// hands it to an HTTP server that does not listen. A connection's peer never changes, whatever is sent over it.

import { chmodSync, chownSync, lstatSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { createServer, type Server, type Socket } from 'node:net'
import { Fault, messageOf } from '../../base/fault.ts'
import type { AdminProblem } from '../../contract/admin/admin.ts'
import { type Peer, peerOf } from '../../host/peer.ts'
import { checkSocketPath } from '../../host/qemu/socket-path.ts'
import { removeFile } from '../../linux/files/removal.ts'
import type { AdminSocket, Caller } from './caller.ts'
import { exchange } from './exchange.ts'

/** The part of the admin interface that a socket needs. */
export type AskedAdmin = {
  readonly handle: (request: Request, caller: Caller) => Promise<Response>
  /**
   * Returns the problem for a caller without any role, before anything of the connection is read; null if it has one.
   */
  readonly turnAway: (caller: Caller) => AdminProblem | null
}

export type AdminServer = { readonly path: string; readonly stop: () => Promise<void> }

export type ListenOptions = {
  readonly socket: AdminSocket
  readonly mode: number
  /** Group of the socket's file; null means the daemon's own. */
  readonly gid: number | null
}

/** Connections of one user except root. Share: this limit is the share of one user. */
const connectionsPerUserMax = 32
/** Share: `connectionsPerUserMax` for one user; root is not counted and always finds room. */
const connectionsOfUsersMax = 128

/** Time in which a client that is turned away must send its first byte and leave. */
const turnAwayMs = 1_000

const OWNER_ONLY: ListenOptions = { socket: 'admin', mode: 0o600, gid: null }

/**
 * Listens at `path`, mode 0600 unless given. Replaces a socket left behind by a dead daemon, but never that of a
 * running one. Faults: conflict (another daemon listens there), host.unsupported (the path is too long or cannot be
 * used).
 */
export async function listenAdmin(path: string, admin: AskedAdmin, options = OWNER_ONLY): Promise<AdminServer> {
  checkSocketPath(path)
  if (await isListenedOn(path)) {
    throw new Fault('conflict', `another strongroom already serves this state directory (${path} accepts connections)`)
  }
  if (isSocket(path)) removeFile(path)
  const callers = new WeakMap<object, Caller>()
  const http = createHttpServer((incoming, outgoing) => {
    const caller = callers.get(incoming.socket)
    if (caller === undefined) return void incoming.socket.destroy()
    void exchange({ incoming, outgoing }, request => admin.handle(request, caller))
  })
  http.on('clientError', (_error, socket) => void socket.destroy())
  // A followed console may be silent for hours.
  Object.assign(http, { timeout: 0, requestTimeout: 0, keepAliveTimeout: 0 })
  const connections = new Connections()
  const front = createServer(socket => {
    socket.on('error', () => void socket.destroy())
    const peer = peerOf(descriptorOf(socket))
    // Without a peer, the caller is unknown.
    if (peer === null || !connections.add(socket, peer)) return void socket.destroy()
    const caller: Caller = { ...peer, socket: options.socket }
    const problem = admin.turnAway(caller)
    if (problem !== null) return turnAway(socket, problem)
    callers.set(socket, caller)
    http.emit('connection', socket)
  })
  await listen(front, path, options)
  return {
    path,
    stop: async () => {
      await stop(front, connections)
      removeFile(path)
    },
  }
}

/** Returns the connection's descriptor, from a handle that Bun and Node both have; -1 if the connection has ended. */
function descriptorOf(socket: Socket): number {
  const handle: unknown = Reflect.get(socket, '_handle')
  const fd: unknown = Reflect.get(Object(handle), 'fd')
  return typeof fd === 'number' ? fd : -1
}

async function listen(front: Server, path: string, { mode, gid }: ListenOptions): Promise<void> {
  // With this umask no other user can connect at any moment: bind(2) runs before `listen` returns.
  const umask = process.umask(0o177)
  try {
    await new Promise<void>((resolve, reject) => {
      front.once('error', reject)
      front.listen({ path }, resolve)
      process.umask(umask)
    })
  } catch (error) {
    throw new Fault('host.unsupported', `listen on ${path}: ${messageOf(error)}`, { cause: error })
  } finally {
    process.umask(umask)
  }
  if (gid !== null) chownSync(path, process.getuid?.() ?? 0, gid)
  chmodSync(path, mode)
}

async function stop(front: Server, connections: Connections): Promise<void> {
  const closed = new Promise<void>(resolve => front.close(() => resolve()))
  connections.endAll()
  await closed
}

/**
 * Answers every request with the problem and discards the request. Waits for its first byte, because clients do not
 * read before they have written.
 */
function turnAway(socket: Socket, problem: object): void {
  const body = JSON.stringify(problem)
  const head = `HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n`
  socket.setTimeout(turnAwayMs, () => void socket.destroy())
  socket.once('data', () => {
    socket.end(head + body)
    socket.resume()
  })
}

/** Open connections by their user. */
class Connections {
  readonly #open = new Map<Socket, number>()

  /** Adds a connection. False if there are too many of this user or of all users. Root's are not counted. */
  add(socket: Socket, { uid }: Peer): boolean {
    const users = [...this.#open.values()].filter(user => user !== 0)
    const isFull =
      users.length >= connectionsOfUsersMax || users.filter(user => user === uid).length >= connectionsPerUserMax
    if (uid !== 0 && isFull) return false
    this.#open.set(socket, uid)
    socket.on('close', () => this.#open.delete(socket))
    return true
  }

  endAll(): void {
    for (const socket of this.#open.keys()) socket.destroy()
  }
}

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
