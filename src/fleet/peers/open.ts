// This host among the others of its fleet: calls to them, responses to theirs, and reachability. Effects: those of its
// parts.

import type { Runtime } from '../../base/runtime.ts'
import type { Postgres } from '../postgres.ts'
import { PeerCaller } from './caller.ts'
import type { PeerKey } from './peer-key.ts'
import { PeerList } from './peer-list.ts'
import { createPeerServer, type PeerServer, type PeerServerDeps } from './peer-server.ts'
import { SeenCalls } from './seen-calls.ts'
import { PeerWatch } from './watch.ts'

export type OpenPeersDeps = Runtime & {
  readonly key: PeerKey
  readonly postgres: Pick<Postgres, 'query'>
  /** Publishes this host's address. */
  readonly acting?: Pick<Postgres, 'query'>
}

export type OpenPeers = {
  readonly caller: PeerCaller
  readonly watch: PeerWatch
  readonly list: PeerList
  /** Creates the handler for a listener with the host's own certificate. */
  readonly answering: (services: PeerServerDeps['services']) => PeerServer
}

export function openPeers({ key, postgres, acting = postgres, clock, random, log }: OpenPeersDeps): OpenPeers {
  const { hostId } = key
  const list = new PeerList({ postgres, clock })
  const seen = new SeenCalls(clock.nowMs())
  const caller: PeerCaller = new PeerCaller({
    ...{ key, list, clock, random, log },
    onCall: (called, problem) => watch.noteCall(called, problem),
    isDown: called => watch.isDown(called),
  })
  const watch = new PeerWatch({
    ...{ hostId, postgres: acting, list, clock, log },
    greet: (called, signal) => caller.greet(called, signal),
  })
  return {
    caller,
    watch,
    list,
    answering: services => createPeerServer({ hostId, list, seen, services, clock, log }),
  }
}
