// Role `published`: serves this VM's published ports by TLS until it is stopped. Effects: a port of the VM, connections
// to programs of the owner.
//
// Strangers reach it. So it runs as a user of its own, with the keys of the ports and no other secret, and each
// connection has bounds. A change of the ports starts it again.

import { connect, createServer, type Server, type Socket } from 'node:net'
import { createSecureContext, TLSSocket, type TLSSocketOptions } from 'node:tls'
import { publicTlsPort } from '../../contract/vm/orders/published.ts'
import type { GuestPaths } from '../paths.ts'
import { type PublishedPort, readPublished } from './state.ts'

/** Connections in progress. Share: the host's firewall bounds those of one source. */
const connectionsMax = 256
const times = { handshakeMs: 10_000, idleMs: 300_000 }

export function servePublished(paths: Pick<GuestPaths, 'published'>): void {
  listenPublished(readPublished(paths), { listenPort: publicTlsPort, ...times }).on('error', error => {
    process.stderr.write(`${JSON.stringify({ level: 'error', unit: 'published', reason: error.message })}\n`)
    process.exit(1)
  })
}

export function listenPublished(
  ports: readonly PublishedPort[],
  { listenPort, handshakeMs, idleMs }: { readonly listenPort: number } & typeof times,
): Server {
  const served = new Map(
    ports.flatMap(({ host, port, key, chain }) => {
      return chain === null ? [] : [[host, { port, context: createSecureContext({ key, cert: chain, minVersion }) }]]
    }),
  )
  const serve = (client: Socket) => {
    const opened: Socket[] = [client]
    const end = () => {
      for (const socket of opened) socket.destroy()
    }
    const late = setTimeout(end, handshakeMs)
    client
      .on('error', () => {})
      .once('close', () => {
        clearTimeout(late)
        end()
      })
    const tls = new TLSSocket(client, { isServer: true, minVersion, SNICallback } as TLSSocketOptions)
    opened.push(tls)
    tls.on('error', end).once('secure', () => {
      clearTimeout(late)
      const target = served.get(String(Reflect.get(tls, 'servername')).toLowerCase())
      if (target === undefined) return end()
      const program = connect(target.port, '127.0.0.1')
      opened.push(program)
      for (const socket of [tls, program]) socket.setTimeout(idleMs, end)
      program.on('error', end)
      tls.pipe(program).pipe(tls)
    })
  }
  /** A client that names nothing published gets no certificate, and its handshake fails. */
  const SNICallback: TLSSocketOptions['SNICallback'] = (name, done) => {
    const target = served.get(name.toLowerCase())
    done(target === undefined ? new Error('no such name') : null, target?.context)
  }
  const server = createServer(serve)
  server.maxConnections = connectionsMax
  return server.listen(listenPort)
}

const minVersion = 'TLSv1.2' as const
