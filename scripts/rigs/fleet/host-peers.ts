// A host of a fleet for the other hosts of its rig: as the daemon has it, on a free local port. Effects: files of a
// directory, a port, calls to the others.

import type { Clock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { Logger } from '../../../src/base/log.ts'
import { type OpenPeers, openPeers } from '../../../src/fleet/peers/open.ts'
import { openPeerKey } from '../../../src/fleet/peers/peer-key.ts'
import type { PeerServerDeps } from '../../../src/fleet/peers/peer-server.ts'
import { watchServing } from '../../../src/fleet/peers/serving.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'

/** Local ports by which another host is reached, by its name; absent: where it says. */
export type PeerWays = Readonly<Record<string, number>>

export type HostPeers = OpenPeers & {
  /** Answers the others from now on, on a port. */
  readonly serve: (services: PeerServerDeps['services']) => {
    readonly port: number
    readonly end: () => Promise<void>
  }
}

export async function openHostPeers(host: {
  readonly directory: string
  readonly hostId: string
  readonly postgres: Postgres
  /** Publishes its address. */
  readonly acting: Pick<Postgres, 'query'>
  readonly clock: Clock
  readonly log: Logger
  readonly ways?: PeerWays
}): Promise<HostPeers> {
  const { directory: stateDir, hostId, postgres, acting, clock, log, ways = {} } = host
  const runtime = { clock, random: systemRandom, log }
  const key = await openPeerKey({ stateDir, hostId, nowMs: Date.now(), random: systemRandom })
  const peers = openPeers({ ...runtime, key, acting, postgres: ledBy(postgres, ways) })
  return {
    ...peers,
    serve: services => {
      const server = peers.answering(services)
      const listener = Bun.serve({
        hostname: '127.0.0.1',
        port: 0,
        development: false,
        tls: { cert: key.certificate, key: key.privateKey },
        maxRequestBodySize: Number.MAX_SAFE_INTEGER,
        fetch: (request, socket) => server.fetch(request, () => socket.timeout(request, 255)),
      })
      const stopping = new AbortController()
      const own = { address: `127.0.0.1:${listener.port}`, certificate: key.certificate }
      const { list } = peers
      const running = Promise.all([
        peers.watch.run(own, stopping.signal),
        watchServing({ hostId, list, clock, onLook: () => {} }, stopping.signal),
      ])
      return {
        port: listener.port ?? 0,
        end: async () => {
          stopping.abort()
          await Promise.all([listener.stop(true), running])
        },
      }
    },
  }
}

/** Rows of hosts have the address of the way to them. */
function ledBy(postgres: Postgres, ways: PeerWays): Pick<Postgres, 'query'> {
  return {
    query: async (...asked) => {
      const rows = await postgres.query(...asked)
      for (const row of rows) {
        const port = ways[String(Reflect.get(row, 'name'))]
        if (port !== undefined && typeof Reflect.get(row, 'address') === 'string')
          Reflect.set(row, 'address', `127.0.0.1:${port}`)
      }
      return rows as never
    },
  }
}
