// One host of a fleet as the others reach it, without a daemon: its key, its row in the directory, its listener on a
// free local port. Effects: files of a directory, connections, a port.

import { mkdirSync } from 'node:fs'
import { admitHost, connect } from '../../../scripts/rigs/postgres/fleet.ts'
import type { PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { type OpenPeers, openPeers } from '../../../src/fleet/peers/open.ts'
import { openPeerKey, type PeerKey } from '../../../src/fleet/peers/peer-key.ts'
import type { ForwardedFetch, PeerServer } from '../../../src/fleet/peers/peer-server.ts'
import type { Publication } from '../../../src/fleet/peers/peers.query.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'

export type PeerHost = AsyncDisposable & {
  readonly hostId: string
  readonly name: string
  readonly key: PeerKey
  readonly port: number
  readonly peers: OpenPeers
  readonly answering: PeerServer
  readonly postgres: Postgres
  readonly own: Publication
  /** Publishes it and asks all others once. */
  readonly look: () => Promise<void>
  /** As if its process ended: connections break. */
  readonly stop: () => Promise<void>
  /** An end of TCP for clients, whose requests go to `hostId` through this host. */
  readonly front: (hostId: string) => string
}

/** The caller that each front says to have authenticated. */
export const frontPrincipal = { organizationId: 'o-1', keyPrefix: 'abcd1234', scope: 'write' } as const

export type PeerHostOptions = {
  /** Each host gets a directory there. */
  readonly root: string
  readonly name: string
  readonly service: ForwardedFetch
  readonly clock?: Clock
  readonly hostId?: string
}

export async function startPeerHost(
  server: PostgresServer,
  database: string,
  { root, name, service, clock = systemClock, hostId = newUuid() }: PeerHostOptions,
): Promise<PeerHost> {
  const stateDir = `${root}/${name}`
  mkdirSync(stateDir, { recursive: true })
  const key = await openPeerKey({ stateDir, hostId, nowMs: Date.now(), random: systemRandom })
  const postgres = await connect(server, await admitHost(database, { id: hostId, name }))
  const peers = openPeers({ key, postgres, clock, random: systemRandom, log: silentLogger })
  const answering = peers.answering({ instances: service, builds: null, handover: null })
  const listener = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    tls: { cert: key.certificate, key: key.privateKey },
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    fetch: (request, socket) => answering.fetch(request, () => socket.timeout(request, 255)),
  })
  const own = { address: `127.0.0.1:${listener.port}`, certificate: key.certificate }
  const fronts: Bun.Server<undefined>[] = []
  const stop = async () => {
    await Promise.all([listener, ...fronts].map(each => each.stop(true)))
  }
  const host: PeerHost = {
    ...{ hostId, name, key, port: listener.port ?? 0, peers, answering, postgres, own, stop },
    look: () => peers.watch.look(own, new AbortController().signal),
    front: to => {
      const front = Bun.serve({
        hostname: '127.0.0.1',
        port: 0,
        development: false,
        maxRequestBodySize: Number.MAX_SAFE_INTEGER,
        fetch: async (request, socket) => {
          socket.timeout(request, 255)
          const clientAddress = socket.requestIP(request)?.address ?? ''
          try {
            return await peers.caller.forward(to, request, {
              service: 'instances',
              clientAddress,
              principal: frontPrincipal,
            })
          } catch (error) {
            return Response.json({ code: Reflect.get(Object(error), 'code') }, { status: 503 })
          }
        },
      })
      fronts.push(front)
      return `http://127.0.0.1:${front.port}`
    },
    [Symbol.asyncDispose]: async () => {
      await stop()
      await postgres.close()
    },
  }
  await host.look()
  return host
}
