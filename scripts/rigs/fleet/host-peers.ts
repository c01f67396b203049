// A host of a fleet for the other hosts of its rig: as the daemon has it, on a free local port. Effects: files of a
// directory, a port, calls to the others.

import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { Logger } from '../../../src/base/log.ts'
import { type OpenPeers, openPeers } from '../../../src/fleet/peers/open.ts'
import { openPeerKey } from '../../../src/fleet/peers/peer-key.ts'
import type { PeerServerDeps } from '../../../src/fleet/peers/peer-server.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'

export type HostPeers = OpenPeers & {
  /** Answers the others from now on. Returns what ends that. */
  readonly serve: (services: PeerServerDeps['services']) => () => Promise<void>
}

export async function openHostPeers(host: {
  readonly directory: string
  readonly hostId: string
  readonly postgres: Postgres
  readonly log: Logger
}): Promise<HostPeers> {
  const { directory: stateDir, hostId, postgres, log } = host
  const runtime = { clock: systemClock, random: systemRandom, log }
  const key = await openPeerKey({ stateDir, hostId, nowMs: Date.now(), random: systemRandom })
  const peers = openPeers({ ...runtime, key, postgres })
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
      const running = peers.watch.run(own, stopping.signal)
      return async () => {
        stopping.abort()
        await Promise.all([listener.stop(true), running])
      }
    },
  }
}
