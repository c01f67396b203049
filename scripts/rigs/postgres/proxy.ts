// A way to PostgreSQL that tests can break: it swallows what comes (a firewall that drops), or ends a connection
// around a commit. Effects: a listener on loopback and connections.

import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

/**
 * `open`: bytes pass. `hole`: what comes either way is dropped, and new connections are accepted without an answer.
 * `before-commit`, `after-commit`: the next COMMIT of a client ends its connection, without or with the server's
 * having got it.
 */
export type Way = 'open' | 'hole' | 'before-commit' | 'after-commit'

export type DatabaseProxy = {
  readonly port: number
  readonly set: (way: Way) => void
  /** New connections lead to another server; those that are open end. */
  readonly lead: (serverPort: number) => void
  /** Connections that clients have open. */
  readonly openCount: () => number
} & AsyncDisposable

/** `localAddress`: the server sees connections come from there. */
export async function startProxy(firstPort: number, localAddress = '127.0.0.1'): Promise<DatabaseProxy> {
  let way: Way = 'open'
  let serverPort = firstPort
  const sockets = new Set<Socket>()
  const track = (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
    return socket
  }
  const clients = new Set<Socket>()
  const server = createServer(client => {
    track(client)
    clients.add(client)
    client.once('close', () => clients.delete(client))
    const upstream = track(connect({ port: serverPort, host: '127.0.0.1', localAddress }))
    client.on('data', bytes => {
      if (way === 'hole') return
      const commits = bytes.includes('COMMIT')
      if (commits && way === 'before-commit') {
        way = 'open'
        client.destroy()
        return upstream.destroy()
      }
      if (commits && way === 'after-commit') {
        way = 'open'
        // The server answers into the void; it has what it was sent.
        upstream.removeAllListeners('data')
        upstream.once('data', () => {
          client.destroy()
          upstream.destroy()
        })
      }
      upstream.write(bytes)
    })
    upstream.on('data', bytes => {
      if (way !== 'hole') client.write(bytes)
    })
    client.once('close', () => way !== 'hole' && upstream.destroy())
    upstream.once('close', () => way !== 'hole' && client.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  return {
    port: address.port,
    set: to => {
      way = to
    },
    lead: port => {
      serverPort = port
      for (const client of clients) client.destroy()
    },
    openCount: () => clients.size,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
