// Terminates TLS for a host that has secrets, and inserts them into requests. Effects: the connections.
//
// The program in the VM sees a certificate of this VM's authority for that host. The upstream has to prove its name by
// the system's roots before it gets a byte.

import { connect, createSecureContext, TLSSocket } from 'node:tls'
import { messageOf } from '../../base/fault.ts'
import type { Terminated } from '../types.ts'
import type { Authority } from './authority.ts'
import { exchange, headEnd, type Upstreams } from './exchange.ts'
import { Connection } from './http/connection.ts'
import { HttpProblem, headBytesMax, readRequestHead, writeResponseHead } from './http/head.codec.ts'
import { TooLong } from './http/source.ts'
import { within } from './http/within.ts'
import { prepareRequest } from './insert.plan.ts'
import { maskedForms } from './mask.ts'

export type TerminatorDeps = {
  readonly authority: Pick<Authority, 'certificateOf'>
  /** PEM of the roots that vouch for upstreams. */
  readonly roots: string
}

const handshakeMs = 15_000
/** How long a program may wait with its next request. */
const keepAliveMs = 120_000
/** No share: of one connection, which programs open again. */
const requestsMax = 10_000
/** HTTP/2 has other frames than this proxy checks: programs that offer both take HTTP/1.1. */
const ALPNProtocols = ['http/1.1']

/** Makes the function that serves a connection to its end. It never rejects. */
export function createTerminator({ authority, roots }: TerminatorDeps): (terminated: Terminated) => Promise<void> {
  let loaded: ReturnType<typeof createSecureContext> | null = null
  // Once, as a system has more than a hundred roots; and not before there is a secret.
  const secureContext = () => {
    loaded ??= createSecureContext({ ca: roots, minVersion: 'TLSv1.2' })
    return loaded
  }
  return async terminated => {
    const { client, first, hostname, port, log } = terminated
    const certificate = authority.certificateOf(hostname)
    const opened: Connection[] = []
    const closeAll = () => {
      for (const connection of opened) connection.close()
      client.destroy()
    }
    // The broker closes it when the policy or a secret changed.
    client.once('close', closeAll)
    try {
      if (certificate === null) return
      client.on('error', () => {})
      client.unshift(first)
      const { certificate: cert, key } = certificate
      const tls = new TLSSocket(client, { isServer: true, cert, key, ALPNProtocols, minVersion: 'TLSv1.2' })
      const program = new Connection(tls)
      opened.push(program)
      await handshake(tls, 'secure')
      await serveRequests(program, terminated, upstreamsOf(terminated, opened, secureContext))
    } catch (error) {
      log.add({ verdict: 'refused', host: hostname, port, reason: messageOf(error) })
    } finally {
      closeAll()
    }
  }
}

async function serveRequests(program: Connection, terminated: Terminated, upstreams: Upstreams): Promise<void> {
  const { hostname, port, secrets, log } = terminated
  const forms = maskedForms(secrets)
  try {
    for (let requests = 0; requests < requestsMax; requests += 1) {
      const bytes = await program.source.until(headEnd, headBytesMax, keepAliveMs)
      if (bytes === null) return
      const head = readRequestHead(bytes)
      const prepared = prepareRequest(head, { hostname, port, secrets })
      if (!(await exchange({ program, head, prepared, upstreams, forms }))) break
    }
  } catch (error) {
    const problem = error instanceof TooLong ? new HttpProblem(431, 'the head of the message is too long') : error
    if (!(problem instanceof HttpProblem)) return
    log.add({ verdict: 'refused', host: hostname, port, reason: problem.message })
    await program.send(refusal(problem))
  }
  await program.end()
}

function refusal({ status, message }: HttpProblem): Uint8Array {
  const body = Buffer.from(`strongroom: ${message}\n`)
  const head = writeResponseHead({
    status,
    reason: 'Refused',
    fields: [
      ['Content-Type', 'text/plain; charset=utf-8'],
      ['Content-Length', String(body.length)],
      ['Connection', 'close'],
    ],
  })
  return Buffer.concat([head, body])
}

/** Connections to the upstream of one program's connection, of which one is open at a time. */
function upstreamsOf(
  { client, hostname, openUpstream }: Terminated,
  opened: Connection[],
  secureContext: () => ReturnType<typeof createSecureContext>,
): Upstreams {
  let kept: Connection | null = null
  return {
    take: async wanted => {
      const connection = kept
      kept = null
      if (connection?.isIdle === true && wanted === 'any') return { connection, isFresh: false }
      connection?.close()
      try {
        const socket = await openUpstream()
        const tls = connect({
          socket,
          servername: hostname,
          secureContext: secureContext(),
          ALPNProtocols,
          rejectUnauthorized: true,
        })
        const fresh = new Connection(tls)
        opened.splice(1, opened.length - 1, fresh)
        await handshake(tls, 'secureConnect')
        // Closed meanwhile, perhaps because the secret was removed.
        if (client.destroyed) throw new Error('the program is gone')
        return { connection: fresh, isFresh: true }
      } catch (error) {
        throw new HttpProblem(502, `no verified connection to the server: ${messageOf(error)}`)
      }
    },
    keep: connection => {
      kept = connection
    },
  }
}

/** Resolves when TLS is set up. Throws an Error, with the problem of a certificate that is not valid. */
async function handshake(tls: TLSSocket, event: 'secure' | 'secureConnect'): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  tls.once(event, resolve)
  tls.once('error', reject)
  tls.once('close', () => reject(new Error('the other side ended the TLS handshake')))
  await within(promise, handshakeMs)
}
