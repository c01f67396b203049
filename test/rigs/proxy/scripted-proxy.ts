// A proxy that answers CONNECT as a test says, and a far side that it leads to. Effects: free ports of 127.0.0.1.

import { mkdtempSync, rmSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'

export const farName = 'far.example'

export type FarSide = AsyncDisposable & {
  readonly port: number
  /** PEM of the authority that issued its certificate. */
  readonly ca: string
  /** Requests that came: method, path, and the names of their headers. */
  readonly requests: string[]
  respond: (request: Request) => Response | Promise<Response>
}

/** An HTTPS server whose certificate is for these names and addresses alone. */
export async function startFarSide(names: readonly string[] = [farName]): Promise<FarSide> {
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-far-'))
  const deps = { nowMs: systemClock.nowMs, random: systemRandom }
  const authority = await openAuthority({ kind: 'clients', stateDir, names: [farName, ...names], ...deps })
  const { cert, key } = await authority.issue(names, 1)
  const requests: string[] = []
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: { cert, key },
    fetch: request => {
      const { pathname } = new URL(request.url)
      requests.push(`${request.method} ${pathname} ${[...request.headers.keys()].sort().join(',')}`)
      return self.respond(request)
    },
  })
  const self: FarSide = {
    port: server.port ?? 0,
    ca: authority.caPem,
    requests,
    respond: () => new Response('the far side'),
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      rmSync(stateDir, { recursive: true })
    },
  }
  return self
}

/** Answers the head of a request. `tunnel`: accepts, and carries bytes to the far side. */
export type Answer = (client: Socket, tunnel: () => void) => void

export type ScriptedProxy = AsyncDisposable & {
  readonly url: string
  /** Heads of the requests that came. */
  readonly heads: string[]
  readonly openCount: () => number
}

export async function startScriptedProxy(farPort: number, answer: Answer): Promise<ScriptedProxy> {
  const heads: string[] = []
  const open = new Set<Socket>()
  const keep = (socket: Socket) => {
    open.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => open.delete(socket))
  }
  const server = createServer(client => {
    keep(client)
    let head = ''
    const read = (bytes: Buffer) => {
      head += bytes.toString('latin1')
      if (!head.includes('\r\n\r\n')) return
      client.off('data', read)
      heads.push(head)
      answer(client, () => {
        const far = connect(farPort, '127.0.0.1')
        keep(far)
        client.on('close', () => far.destroy())
        client.write('HTTP/1.1 200 Connection established\r\n\r\n')
        client.pipe(far)
        far.pipe(client)
      })
    }
    client.on('data', read)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy listens on a port')
  return {
    url: `http://127.0.0.1:${address.port}`,
    heads,
    openCount: () => open.size,
    [Symbol.asyncDispose]: async () => {
      for (const socket of open) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
}
