// Replaces a single host's directory by the fleet's, and passes changes of other hosts to the parts of this
// appliance. Effects: connections to PostgreSQL, SQL on the host's database.

import { pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { Runtime } from '../../base/runtime.ts'
import { type FleetDirectory, openFleetDirectory } from '../../fleet/directory/directory.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import { listenForChanges } from '../../fleet/listener.ts'
import type { Postgres } from '../../fleet/postgres.ts'
import type { ChangedInstance } from '../../fleet/replica/changed-instance.ts'
import { type AppliedChanges, copiedFleetOf, type ReplicaDeps } from '../../fleet/replica/replica.ts'
import type { InstanceStart } from '../../instances/pool.plan.ts'
import type { ClaimedVm } from '../../instances/pool.ts'
import type { InstancesDeps } from '../../instances/service.ts'
import type { DirectoryDb, Store } from '../../store/db.ts'
import { instanceById } from '../../store/directory/instance.query.ts'
import type { Fleet } from './hosts.ts'

/** Between the directory and the services of this appliance. On a single host nothing comes from others. */
export type DirectoryLink = Pick<
  FleetDirectory,
  'waitsFor' | 'contradiction' | 'unreadSums' | 'setMember' | 'setOlder' | 'isMember' | 'isShutOut'
> & {
  /** Whether the database answered the last statement. */
  readonly isReached: () => boolean
  /** Whether other hosts read what this one reports. */
  readonly isShared: boolean
  /** Before `start`: the parts that act on changed instances. Returns how service A reaches them. */
  readonly follow: (parts: FollowParts) => Pick<InstancesDeps, 'takeVm' | 'onCreated' | 'onDeleted'>
  /** Gateway keys or organizations have changed. */
  readonly onKeys: (listener: () => void) => void
  /** Calls `act` once the directory can be read here; at once where it can. */
  readonly whenThere: (act: () => void) => void
  /** Timeline of the server that the copy here comes from: another one after each failover. 0 on a single host. */
  readonly timeline: () => number
  /** Version of the directory that the copy here has. 0 on a single host. */
  readonly version: () => number
  /** Rows of these builds have changed. The listener must not throw. */
  readonly onBuilds: (listener: (ids: readonly string[]) => void) => void
}

export type FollowParts = Pick<InstancesDeps, 'onCreated' | 'onDeleted'> & {
  readonly take: (tx: DirectoryDb) => ClaimedVm
  /** A VM is to be ended whose instance this host does not have any more. */
  readonly onLeft: () => void
  /** For any other change of any host's instance. */
  readonly onChanged: (instanceId: string) => void
}

export type ServedDirectory = {
  readonly store: Store
  readonly link: DirectoryLink
  readonly start: () => void
} & AsyncDisposable

/** Until the first copy is whole. */
const waitPollMs = 500

type JoinDeps = Pick<Runtime, 'clock' | 'log'> & {
  /** This host's own. */
  readonly store: Store
  readonly postgres: Postgres
  readonly target: PostgresTarget
}

export type FleetDirectoryParts = Pick<Runtime, 'clock' | 'log'> & {
  readonly fleet: Pick<Fleet, 'database'>
  /** This host's own. */
  readonly store: Store
}

export const SINGLE_HOST_LINK: DirectoryLink = {
  isReached: () => true,
  isShared: false,
  follow: ({ take, onCreated, onDeleted }) => ({ takeVm: take, onCreated, onDeleted }),
  onKeys: () => {},
  onBuilds: () => {},
  whenThere: act => act(),
  timeline: () => 0,
  version: () => 0,
  waitsFor: () => null,
  contradiction: () => null,
  unreadSums: () => null,
  setMember: () => {},
  setOlder: () => {},
  isMember: () => true,
  isShutOut: () => false,
}

/**
 * The directory of the services: this host's own where it is in no fleet. Faults: those of `joinDirectory`, `conflict`
 * (the records are a fleet's, and none is configured).
 */
export function composeDirectory(parts: FleetDirectoryParts): ServedDirectory {
  const { fleet, store } = parts
  if (fleet.database !== null) return joinDirectory({ ...parts, ...fleet.database })
  refuseCopyAlone(store)
  return { store, link: SINGLE_HOST_LINK, start: () => {}, [Symbol.asyncDispose]: async () => {} }
}

/**
 * Serves from the copy at once where there is one; before there is, requests that need it get 503. Fault `conflict`
 * (records of another fleet, or of no fleet).
 */
function joinDirectory(deps: JoinDeps): ServedDirectory {
  const { store, postgres, target, clock } = deps
  const log = deps.log.unit('fleet')
  const followed: { by: Follower | null } = { by: null }
  const keyListeners: (() => void)[] = []
  const buildListeners: ((ids: readonly string[]) => void)[] = []
  const follower = (): Follower => {
    if (followed.by === null)
      throw new Fault('internal', 'changes of the fleet arrived before the services had started')
    return followed.by
  }
  const directory = openFleetDirectory(
    {
      directory: store.directory,
      hostId: store.hostId,
      postgres,
      clock,
      log,
      adopt: (tx, instanceId) => follower().adopt(tx, instanceId),
      onApplied: ({ instances, touchesKeys, builds }) => {
        if (instances.length > 0) follower().onInstances(instances)
        if (touchesKeys) for (const listener of keyListeners) listener()
        if (builds.length > 0) for (const listener of buildListeners) listener(builds)
      },
    },
    copiedFleetOf(store.directory),
  )
  const stopping = new AbortController()
  const { signal } = stopping
  const waitThen = async (act: () => void) => {
    while (directory.waitsFor() !== null && !signal.aborted) await pause(clock, waitPollMs, signal)
    if (!signal.aborted) act()
  }
  let listening: Promise<void> = Promise.resolve()
  return {
    store: { ...store, directory: directory.store },
    link: {
      isShared: true,
      isReached: () => postgres.view().isReachable,
      waitsFor: directory.waitsFor,
      contradiction: directory.contradiction,
      unreadSums: directory.unreadSums,
      setMember: directory.setMember,
      setOlder: directory.setOlder,
      isMember: directory.isMember,
      isShutOut: directory.isShutOut,
      whenThere: act => (directory.waitsFor() === null ? act() : void waitThen(act)),
      timeline: () => directory.view().timeline,
      version: () => directory.view().version,
      follow: parts => {
        followed.by = createFollower(store.directory.db, parts, log)
        // The host that has an instance acts once it has the row.
        return { takeVm: () => ({ vmId: null, start: 'cold' }), onCreated: () => {}, onDeleted: () => {} }
      },
      onKeys: listener => {
        keyListeners.push(listener)
      },
      onBuilds: listener => {
        buildListeners.push(listener)
      },
    },
    start: () => {
      directory.start()
      listening = listenForChanges({ target, clock, log, onChange: directory.wake, signal })
    },
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await Promise.all([directory.stop(), listening])
    },
  }
}

type Follower = Pick<ReplicaDeps, 'adopt'> & {
  /** Never throws. */
  readonly onInstances: (instances: AppliedChanges['instances']) => void
}

/** Acts on what others changed as a single host acts on its own changes. */
function createFollower(db: DirectoryDb, parts: FollowParts, log: Logger): Follower {
  /** How the VMs of new instances began, between the transaction and what follows it. */
  const starts = new Map<string, InstanceStart>()
  const follow = ({ id, isOwn, isNew, isLeft, isDismissed }: ChangedInstance) => {
    const instance = instanceById(db, id)
    const start = starts.get(id)
    starts.delete(id)
    if (isLeft) parts.onLeft()
    if (instance === null || !isOwn) parts.onChanged(id)
    else if (isNew && start !== undefined) parts.onCreated(instance, start)
    else if (isDismissed) parts.onDeleted(instance)
    else parts.onChanged(id)
  }
  return {
    adopt: (tx, instanceId) => {
      const { vmId, start } = parts.take(tx)
      starts.set(instanceId, start)
      return { vmId }
    },
    onInstances: instances => {
      for (const touched of instances) {
        try {
          follow(touched)
        } catch (error) {
          log.error('a change of the fleet could not be followed', { instance: touched.id, error })
        }
      }
    },
  }
}

/**
 * Throws Fault `conflict` if the records of this host are a copy of a fleet's, whose database is no longer configured.
 */
function refuseCopyAlone({ directory }: Pick<Store, 'directory'>): void {
  const fleetId = copiedFleetOf(directory)
  if (fleetId === null) return
  const message = `the records of this host are a copy of the fleet ${fleetId}, but fleet.database is not set`
  throw new Fault('conflict', `${message}; set it, or take the records out with \`strongroom fleet leave\``)
}
