// Puts this host's part among the other hosts of its fleet together: what it passes on to them, and the listener on
// which it answers them. Effects: two files of the state directory, a listening socket, calls to other hosts.

import { Fault } from '../../base/fault.ts'
import { family, metricsText } from '../../base/prometheus.ts'
import type { Runtime } from '../../base/runtime.ts'
import { listenAddress } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import { actingFor } from '../../fleet/acting.ts'
import { type OpenPeers, openPeers } from '../../fleet/peers/open.ts'
import { openPeerKey, type PeerKey } from '../../fleet/peers/peer-key.ts'
import type { PeerServer, PeerServerDeps } from '../../fleet/peers/peer-server.ts'
import type { Peers } from '../../fleet/peers/peers.ts'
import { type ServingDeps, watchServing } from '../../fleet/peers/serving.ts'
import type { PeerReach } from '../../fleet/peers/watch.ts'
import { pauseSecondsMax, serveTls, type TlsServer } from '../../http/serve.ts'
import type { Store } from '../../store/db.ts'
import { startAt } from '../listening.ts'
import type { DirectoryLink } from './directory.ts'
import type { Fleet } from './hosts.ts'

export type FleetPeers = Peers & {
  /** Other hosts as this one reached them last. */
  readonly view: () => readonly PeerReach[]
  /** Where this host answers others; null if it does not. */
  readonly address: () => string | null
  /** Answers other hosts with these services from now on, if configured. Fault `host.listen_failed`. */
  readonly listen: (services: PeerServerDeps['services']) => Promise<void>
  /** Metrics. */
  readonly render: () => string
  /** `onServing`: gets the other hosts that serve now, again and again; must not throw. */
  readonly start: (onServing: ServingDeps['onLook']) => void
} & AsyncDisposable

/** Records of a fleet that this host has left may name other hosts. */
export const NO_FLEET_PEERS: FleetPeers = {
  forward: async (_hostId, _request, { service }) => {
    // A build whose source another host had goes on as if that host were lost.
    const code = service === 'handover' ? 'fleet.unavailable' : 'not_found'
    throw new Fault(code, 'The host that had this is not there any more.')
  },
  view: () => [],
  address: () => null,
  listen: async () => {},
  render: () => '',
  start: () => {},
  [Symbol.asyncDispose]: async () => {},
}

export type FleetPeersParts = Runtime & {
  readonly fleet: Pick<Fleet, 'database'>
  readonly link: Pick<DirectoryLink, 'isMember'>
  readonly config: Config
  readonly stateDir: string
  readonly store: Pick<Store, 'hostId'>
}

/** Composes the calls between hosts. Throws Fault internal if this host's key cannot be read or created. */
export async function composePeers(parts: FleetPeersParts): Promise<FleetPeers> {
  const { fleet, link, config, stateDir, store, clock, random } = parts
  if (fleet.database === null) return NO_FLEET_PEERS
  const log = parts.log.unit('fleet')
  const key = await openPeerKey({ stateDir, hostId: store.hostId, nowMs: clock.nowMs(), random })
  const { postgres } = fleet.database
  const acting = actingFor(postgres, link.isMember)
  const peers = openPeers({ key, postgres, acting, clock, random, log })
  const stopping = new AbortController()
  let listener: Listener | null = null
  let running: Promise<unknown> = Promise.resolve()
  const address = () => (listener === null ? null : addressOf(config, listener.tls.port))
  return {
    forward: (hostId, request, options) => peers.caller.forward(hostId, request, options),
    view: () => peers.watch.view(),
    address,
    listen: async services => {
      const { peer_listen: own } = config.fleet
      if (own === '') return
      const server = peers.answering(services)
      const start = () => listenOn(server, { key, config, log })
      listener = { server, tls: await startAt({ field: 'fleet.peer_listen', address: own }, start) }
    },
    render: () => metricsOf(peers, listener?.server ?? null),
    start: onLook => {
      const { signal } = stopping
      const own = { address: address(), certificate: key.certificate }
      const serving = { hostId: store.hostId, list: peers.list, clock, onLook }
      running = Promise.all([peers.watch.run(own, signal), watchServing(serving, signal)])
    },
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await Promise.all([listener?.tls.stop(false), running])
    },
  }
}

type Listener = { readonly server: PeerServer; readonly tls: TlsServer }

function listenOn(
  server: PeerServer,
  { key, config, log }: Pick<FleetPeersParts, 'config' | 'log'> & { readonly key: PeerKey },
): TlsServer {
  return serveTls((request, socket) => server.fetch(request, () => socket.timeout(request, pauseSecondsMax)), {
    ...listenAddress(config.fleet.peer_listen),
    tls: {
      current: () => ({ cert: key.certificate, key: key.privateKey }),
      // Never asked for: no client is a guest.
      guestCertificate: () => key.certificate,
      onChange: () => {},
    },
    idleTimeoutSeconds: config.http.idle_timeout_s,
    // Each service limits the body while it arrives.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log,
  })
}

/** By which others reach the listener; the kernel has chosen the port where it is 0. */
function addressOf({ fleet }: Pick<Config, 'fleet'>, port: number): string {
  if (fleet.peer_address !== '') return fleet.peer_address
  return `${fleet.peer_listen.slice(0, fleet.peer_listen.lastIndexOf(':'))}:${port}`
}

function metricsOf({ caller, watch }: OpenPeers, server: PeerServer | null): string {
  const reached = watch.view().map(({ name, isReached }) => [{ host: name }, isReached ? 1 : 0] as const)
  const sent = Object.entries(caller.view()).map(([outcome, count]) => [{ outcome }, count] as const)
  const answered = server?.view()
  const served = Object.entries(answered?.served ?? {}).map(([service, count]) => [{ service }, count] as const)
  const refused = [
    [{ caller: 'host' }, answered?.refused ?? 0],
    [{ caller: 'stranger' }, answered?.strangers ?? 0],
  ] as const
  return metricsText([
    family('strongroom_fleet_peer_up', 'Whether the last call to another host reached it.', 'gauge', reached),
    family(
      'strongroom_fleet_forwarded_total',
      'Requests of clients that were passed on to another host, or could not be.',
      'counter',
      sent,
    ),
    family('strongroom_fleet_peer_calls_total', 'Calls of other hosts that were answered.', 'counter', served),
    family('strongroom_fleet_peer_refused_total', 'Calls that were refused.', 'counter', refused),
  ])
}
