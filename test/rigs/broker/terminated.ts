// A terminator as the broker runs it, between programs of a test and an upstream with TLS that the test scripts.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect as connectTcp, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { systemRandom } from '../../../src/base/ids.ts'
import { carryConnection } from '../../../src/broker/connection.ts'
import { createAuthority } from '../../../src/broker/secrets/authority.ts'
import { certifyHost } from '../../../src/broker/secrets/certificates.ts'
import { createTerminator } from '../../../src/broker/secrets/terminate.ts'
import type { LogEntry } from '../../../src/broker/types.ts'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'

export const rigHost = 'api.test'

/** Answers one connection of the upstream. */
export type Answer = (socket: TLSSocket) => void

/** Answers requests of programs. */
export type OnRequest = (request: Request) => Response | Promise<Response>

export type Rig = AsyncDisposable & {
  /** Programs connect here, by TLS with the name `rigHost`. */
  readonly port: number
  /** Files that programs trust. */
  readonly own: string
  readonly all: string
  /** Reasons of refused connections and requests. */
  readonly refused: () => readonly (string | null)[]
  /** Closes the programs' connections, as the broker does after a change. */
  readonly closeAll: () => void
  /** Number of connections to the upstream. */
  readonly connections: () => number
}

export type RigOptions = {
  readonly secrets: readonly Secret[]
  /** The upstream's connections. */
  readonly answer?: Answer
  /** For real programs instead: its requests. The destination is then the port where the rig listens, not 443. */
  readonly requests?: OnRequest
  /** The name in the upstream's certificate. */
  readonly upstreamName?: string
  /** False for an upstream of another authority. */
  readonly isTrusted?: boolean
}

export async function startRig({ secrets, answer, upstreamName = rigHost, isTrusted = true, requests }: RigOptions) {
  const making = { nowMs: Date.now(), random: systemRandom }
  const server = certifyHost(upstreamName, making)
  // Its root is one of several.
  const roots =
    certifyHost('other.test', making).authority + (isTrusted ? server : certifyHost(upstreamName, making)).authority
  const directory = mkdtempSync(join(tmpdir(), 'srt-secrets-'))
  await Bun.write(`${directory}/system.pem`, roots)
  const authority = createAuthority({
    directory,
    systemRoots: `${directory}/system.pem`,
    nowMs: Date.now,
    random: systemRandom,
  })
  authority.certify([rigHost])
  let connections = 0
  const pair = { cert: server.certificate, key: server.key }
  const upstream =
    requests !== undefined
      ? Bun.serve({ port: 0, hostname: '127.0.0.1', tls: pair, fetch: requests })
      : createTlsServer({ ...pair, ALPNProtocols: ['h2', 'http/1.1'] }, socket => {
          connections += 1
          socket.on('error', () => {})
          answer?.(socket)
        })
  const upstreamPort = 'fetch' in upstream ? (upstream.port ?? 0) : await listening(upstream)
  const log: Omit<LogEntry, 'atMs'>[] = []
  const serveTerminated = createTerminator({ authority, roots })
  const sockets = new Set<Socket>()
  const broker = createServer({ allowHalfOpen: true, pauseOnConnect: true }, client => {
    sockets.add(client)
    client.on('error', () => {})
    const port = requests === undefined ? 443 : brokerPort
    void carryConnection(
      { client, host: rigHost, port, secrets },
      {
        serveTerminated,
        egressLog: { add: entry => void log.push(entry) },
        firstBytesTimeoutMs: 20_000,
        openUpstream: () =>
          new Promise((resolve, reject) => {
            const socket = connectTcp(upstreamPort, '127.0.0.1')
            socket.once('connect', () => resolve(socket))
            socket.once('error', reject)
          }),
      },
    )
  })
  const brokerPort = await listening(broker)
  const closeAll = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: brokerPort,
    own: `${directory}/authority.pem`,
    all: `${directory}/roots.pem`,
    refused: () => log.filter(({ verdict }) => verdict === 'refused').map(({ reason }) => reason),
    closeAll,
    connections: () => connections,
    [Symbol.asyncDispose]: async () => {
      closeAll()
      broker.close()
      if ('fetch' in upstream) await upstream.stop(true)
      else upstream.close()
      rmSync(directory, { recursive: true })
    },
  } satisfies Rig
}

async function listening(server: Server): Promise<number> {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** Calls `respond` with each head that arrives, and the number of the request on this connection, from 1. */
export function eachHead(respond: (head: string, socket: TLSSocket, count: number) => void): Answer {
  return socket => {
    let text = ''
    let count = 0
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
      for (let end = text.indexOf('\r\n\r\n'); end !== -1; end = text.indexOf('\r\n\r\n')) {
        const head = text.slice(0, end)
        text = text.slice(end + 4)
        count += 1
        respond(head, socket, count)
      }
    })
  }
}

/** Sends bytes as a program, and returns all that comes until the connection ends. */
export async function sendRaw(rig: Rig, ...parts: readonly (string | Uint8Array)[]): Promise<string> {
  const socket = await connectProgram(rig)
  for (const part of parts) socket.write(part)
  return received(socket)
}

export async function connectProgram(
  { port, own }: Rig,
  options: { servername?: string; ALPNProtocols?: string[] } = {},
) {
  const socket = connect({ host: '127.0.0.1', port, servername: rigHost, ca: readFileSync(own, 'utf8'), ...options })
  await new Promise<void>((resolve, reject) => {
    socket.once('secureConnect', resolve)
    socket.once('error', reject)
  })
  return socket
}

/** Everything that arrives until the other side ends the connection. */
export function received(socket: TLSSocket): Promise<string> {
  return new Promise(resolve => {
    let text = ''
    socket.on('data', chunk => {
      text += chunk.toString('latin1')
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(text))
  })
}
