// Puts the fleet's directory in the place of a single host's, and hands what others changed to the parts of this
// appliance. Effects: connections to PostgreSQL, SQL on the host's database.

import { pause } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { newUuid } from '../../base/ids.ts'
import type { Runtime } from '../../base/runtime.ts'
import type { Platform } from '../../config/schema.ts'
import { type FleetDirectory, openFleetDirectory } from '../../fleet/directory/directory.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import { listenForChanges } from '../../fleet/listener.ts'
import type { Postgres } from '../../fleet/postgres.ts'
import type { ChangedInstance } from '../../fleet/replica/changed-instance.ts'
import { type AppliedChanges, copiedFleetOf, type ReplicaDeps } from '../../fleet/replica/replica.ts'
import type { InstanceStart } from '../../instances/pool.plan.ts'
import type { ClaimedVm } from '../../instances/pool.ts'
import type { DirectoryDb, Store } from '../../store/db.ts'
import { instanceById } from '../../store/directory/instance.query.ts'
import type { Instance } from '../../store/directory/instance.table.ts'
import type { Fleet } from './hosts.ts'

/** The directory of a fleet, as the services of this appliance need it. */
export type FleetLink = Pick<FleetDirectory, 'hosts' | 'waitsFor'> & {
  /** Before `start`: the parts that act on what others changed. */
  readonly connect: (parts: FleetParts) => void
  /** Gateway keys or organizations have changed. */
  readonly onKeys: (listener: () => void) => void
  /** Calls `act` once the directory can be read here; at once where it can. */
  readonly whenThere: (act: () => void) => void
  /** Timeline of the server that the copy here comes from: another one after each failover. */
  readonly timeline: () => number
  /** Rows of these builds have changed. The listener must not throw. */
  readonly onBuilds: (listener: (ids: readonly string[]) => void) => void
}

export type FleetParts = {
  /** The VM of a new instance of this host, in the transaction that adds it. */
  readonly adopt: ReplicaDeps['adopt']
  /** Must not throw. */
  readonly onInstances: (instances: AppliedChanges['instances']) => void
}

export type ServedDirectory = {
  readonly store: Store
  /** Null for a standalone host. */
  readonly link: FleetLink | null
  readonly start: () => void
} & AsyncDisposable

/** Until the first copy is whole. */
const waitPollMs = 500

type JoinDeps = Pick<Runtime, 'clock' | 'log'> & {
  /** This host's own. */
  readonly store: Store
  readonly postgres: Postgres
  readonly target: PostgresTarget
  readonly platform: Platform
}

export type FleetDirectoryParts = Pick<Runtime, 'clock' | 'log'> & {
  readonly fleet: Pick<Fleet, 'database'>
  /** This host's own. */
  readonly store: Store
  readonly platform: Platform
}

/**
 * The directory of the services: this host's own where it is in no fleet. Faults: those of `joinDirectory`, `conflict`
 * (the records are a fleet's, and none is configured).
 */
export function composeDirectory(parts: FleetDirectoryParts): ServedDirectory {
  const { fleet, store } = parts
  if (fleet.database !== null) return joinDirectory({ ...parts, ...fleet.database })
  refuseCopyAlone(store)
  return { store, link: null, start: () => {}, [Symbol.asyncDispose]: async () => {} }
}

/**
 * Serves from the copy at once where there is one; before there is, requests that need it get 503. Fault `conflict`
 * (records of another fleet, or of no fleet).
 */
function joinDirectory(deps: JoinDeps): ServedDirectory {
  const { store, postgres, target, platform, clock } = deps
  const log = deps.log.unit('fleet')
  const parts: { current: FleetParts | null } = { current: null }
  const keyListeners: (() => void)[] = []
  const buildListeners: ((ids: readonly string[]) => void)[] = []
  const connected = (): FleetParts => {
    if (parts.current === null)
      throw new Fault('internal', 'changes of the fleet arrived before the services had started')
    return parts.current
  }
  const directory = openFleetDirectory(
    {
      directory: store.directory,
      hostId: store.hostId,
      postgres,
      platform,
      clock,
      log,
      adopt: (tx, instanceId) => connected().adopt(tx, instanceId),
      onApplied: ({ instances, touchesKeys, builds }) => {
        if (instances.length > 0) connected().onInstances(instances)
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
      hosts: directory.hosts,
      waitsFor: directory.waitsFor,
      whenThere: act => (directory.waitsFor() === null ? act() : void waitThen(act)),
      timeline: () => directory.view().timeline,
      connect: given => {
        parts.current = given
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

export type FollowDeps = Pick<Runtime, 'random' | 'log'> & {
  readonly directory: Pick<Store['directory'], 'db'>
  /** Takes a VM out of the warm pool; null: there is none. */
  readonly take: (tx: DirectoryDb) => ClaimedVm | null
  /** As on a single host; called on the host that has the VM. */
  readonly onCreated: (instance: Instance, start: InstanceStart) => void
  readonly onDeleted: (instance: Instance) => void
  /** A VM is to be ended whose instance this host does not have any more. */
  readonly onLeft: () => void
  /** For any other change of any host's instance. */
  readonly onChanged: (instanceId: string) => void
}

/** Acts on what others changed as a single host acts on its own changes. */
export function followFleet(fleet: FleetLink, deps: FollowDeps): void {
  const { directory, random, log } = deps
  /** How the VMs of new instances began, between the transaction and what follows it. */
  const starts = new Map<string, InstanceStart>()
  const follow = ({ id, isOwn, isNew, isLeft, isDismissed }: ChangedInstance) => {
    const instance = instanceById(directory.db, id)
    const start = starts.get(id)
    starts.delete(id)
    if (isLeft) deps.onLeft()
    if (instance === null || !isOwn) deps.onChanged(id)
    else if (isNew && start !== undefined) deps.onCreated(instance, start)
    else if (isDismissed) deps.onDeleted(instance)
    else deps.onChanged(id)
  }
  fleet.connect({
    adopt: (tx, instanceId) => {
      const { vmId, start } = deps.take(tx) ?? { vmId: newUuid(random), start: 'cold' as const }
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
  })
}

/** Fault `conflict`: the records of this host are a copy of a fleet's, whose database is not configured any more. */
function refuseCopyAlone({ directory }: Pick<Store, 'directory'>): void {
  const fleetId = copiedFleetOf(directory)
  if (fleetId === null) return
  const message = `the records of this host are a copy of the fleet ${fleetId}, but fleet.database is not set`
  throw new Fault('conflict', `${message}; set it, or take the records out with \`strongroom fleet leave\``)
}
