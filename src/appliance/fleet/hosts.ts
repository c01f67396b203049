// Puts this host's part in a fleet together: the database, the lease, what the operator sees of it. Effects:
// connections to PostgreSQL; renews the lease from `start` on.

import { toHex } from '../../base/bytes.ts'
import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { harmless } from '../../base/harmless.ts'
import type { LogFields } from '../../base/log.ts'
import { family, metricsText } from '../../base/prometheus.ts'
import type { Runtime } from '../../base/runtime.ts'
import { version } from '../../base/version.ts'
import type { ClockGuard } from '../../base/work/clock-guard.ts'
import { databaseText } from '../../config/fleet/database-url.ts'
import { serviceAddresses } from '../../config/listen.ts'
import type { Config } from '../../config/schema.ts'
import type { FleetStatus, HostReport } from '../../contract/admin/fleet.ts'
import { criticalProblem, type FoundProblem } from '../../contract/admin/problems.ts'
import type { FleetDirectory } from '../../fleet/directory/directory.ts'
import type { PostgresTarget } from '../../fleet/driver.ts'
import { createFleetAdmin, type FleetAdmin, NO_FLEET_ADMIN } from '../../fleet/hosts/fleet-admin.ts'
import { failAllOf } from '../../fleet/hosts/give-up.ts'
import { Lease } from '../../fleet/hosts/lease.ts'
import { checkSchema, newestOf } from '../../fleet/migrations.ts'
import type { PeerReach } from '../../fleet/peers/watch.ts'
import { openPostgres, type Postgres } from '../../fleet/postgres.ts'
import { fleetName, fleetTarget } from '../../fleet/target.ts'
import { hostChipId } from '../../host/chip-id.ts'
import { defaultRouteAddress } from '../../host/network/default-route.ts'
import type { OperatorKey } from '../../host/operator-key.ts'
import type { WarmPool } from '../../instances/pool.ts'
import type { Store } from '../../store/db.ts'
import { placesTaken } from '../../store/directory/instance.query.ts'
import { reservedBy } from '../../store/ledger/vm.query.ts'
import { roomOn } from '../../vm/capacity.query.ts'
import { imageDigest } from '../../vm/launch/image-digest.driver.ts'
import type { Engine } from '../engine.ts'

export type FleetDatabase = {
  readonly postgres: Postgres
  readonly target: PostgresTarget
  /** This host's name. */
  readonly name: string
}

/** `database` null: this host is in no fleet. */
export type Fleet = { readonly database: FleetDatabase | null } & AsyncDisposable

/** Opens no connection yet. Faults: `config.file`, `config.invalid`. */
export async function openFleet({
  config,
  clock,
  log,
}: Pick<Runtime, 'clock' | 'log'> & { readonly config: Config }): Promise<Fleet> {
  const target = fleetTarget(config)
  if (target === null) return { database: null, [Symbol.asyncDispose]: async () => {} }
  const postgres = await openPostgres({ target, clock, log: log.unit('fleet') })
  return { database: { postgres, target, name: fleetName(config) }, [Symbol.asyncDispose]: () => postgres.close() }
}

export type FleetHostParts = Pick<Runtime, 'clock' | 'log'> & {
  readonly fleet: Pick<Fleet, 'database'>
  readonly link: Pick<FleetDirectory, 'waitsFor' | 'contradiction' | 'unreadSums' | 'setMember' | 'setOlder'> & {
    /** Version of the directory that the copy here has. */
    readonly version: () => number
  }
  readonly peers: {
    readonly view: () => readonly PeerReach[]
    readonly address: () => string | null
    readonly render: () => string
  }
  readonly config: Config
  readonly store: Store
  readonly engine: Pick<Engine, 'platform' | 'capacity' | 'diskGibMax'>
  readonly operatorKey: Pick<OperatorKey, 'digest'>
  readonly stateDir: string
  /** Identifies this process among those that have the host's identity. Default: a random number. */
  readonly process?: string
  readonly pool: Pick<WarmPool, 'status'>
  readonly clockGuard: Pick<ClockGuard, 'certainMs'>
  readonly onEvent: (kind: string, detail: LogFields) => void
}

export type FleetHostService = {
  /** False on a host that is in no fleet. */
  readonly hasLease: () => boolean
  readonly admin: FleetAdmin
  /** Null if this host is in no fleet. */
  readonly status: () => FleetStatus | null
  readonly problems: () => readonly FoundProblem[]
  /** Metrics. */
  readonly render: () => string
  readonly start: () => void
} & AsyncDisposable

const NO_FLEET: FleetHostService = {
  hasLease: () => false,
  admin: NO_FLEET_ADMIN,
  status: () => null,
  problems: () => [],
  render: () => '',
  start: () => {},
  [Symbol.asyncDispose]: async () => {},
}

export function composeFleetHost(parts: FleetHostParts): FleetHostService {
  const { config, store, engine, peers, clock, onEvent } = parts
  const { database } = parts.fleet
  if (database === null) return NO_FLEET
  const { postgres } = database
  const lease = new Lease({
    postgres,
    hostId: store.hostId,
    ...(parts.process === undefined ? {} : { process: parts.process }),
    platform: engine.platform,
    lostAfterMs: config.fleet.host_lost_after_s * 1000,
    check: async () => {
      await checkSchema(postgres).catch((error: unknown) => {
        // Until `fleet migrate` the host goes on as its former executable did.
        if (error instanceof Fault && error.code === 'fleet.older') parts.link.setOlder()
        throw error
      })
      // Before that it could bring up none of the instances that others gave to it.
      const waited = parts.link.waitsFor()
      if (waited !== null) throw new Error(`it waits for ${waited}`)
    },
    report: () => reportOf(parts),
    giveUp: failAllOf,
    clock,
    log: parts.log.unit('fleet'),
    onEvent,
    onMembership: parts.link.setMember,
  })
  const stopping = new AbortController()
  let running: Promise<void> = Promise.resolve()
  const status = () => statusOf(database, lease, peers)
  return {
    hasLease: () => lease.isHeld(),
    admin: createFleetAdmin({ postgres, hostId: store.hostId, clock, reached: () => peers.view() }),
    status,
    problems: () => [...problemsOf(status()), ...copyProblems(parts.link), ...sumsProblems(parts.link)],
    render: () => metricsOf(database, lease) + peers.render(),
    start: () => {
      running = lease.run(stopping.signal)
    },
    [Symbol.asyncDispose]: async () => {
      stopping.abort()
      await running
    },
  }
}

/** Instances that this host has and can take besides, and what the operator compares. */
function reportOf({ config, store, engine, operatorKey, pool, clock, clockGuard, link, ...parts }: FleetHostParts): {
  readonly places: number
  readonly report: HostReport
} {
  const { vcpus, memory_mib: memoryMib, scratch_gib: diskGib } = config.vm
  const room = roomOn(
    store.ledger.db,
    { vcpus, memoryMib, diskGib },
    {
      hostId: store.hostId,
      capacity: engine.capacity,
      diskGibMax: engine.diskGibMax,
      addressRestMs: config.network.address_rest_s * 1000,
      nowMs: clockGuard.certainMs(),
    },
  )
  const reserved = reservedBy(store.ledger.db, store.hostId)
  const { warm, booting } = pool.status()
  const chipId = hostChipId(parts.stateDir, engine.platform)
  const taken = placesTaken(store.directory.db).get(store.hostId) ?? 0
  return {
    // VMs of the pool become instances without more room.
    places: taken + warm + booting + room.count,
    report: {
      version,
      schema: newestOf(),
      copied_version: link.version(),
      now_ms: clock.nowMs(),
      domain: config.domain,
      lacking: warm + booting + room.count === 0 ? room.lacking : null,
      warm,
      memory_mib_used: reserved.memoryMib,
      memory_mib_total: engine.capacity.memoryMib,
      vcpus_used: reserved.vcpus,
      vcpus_total: engine.capacity.vcpus,
      image: imageOf(config),
      operator_key: toHex(operatorKey.digest),
      ...(chipId === null ? {} : { chip_id: chipId }),
      addresses: serviceAddresses(config, defaultRouteAddress()),
    },
  }
}

function imageOf({ vm }: Config): string | null {
  try {
    return imageDigest(vm.image_dir)
  } catch {
    return null
  }
}

function statusOf(
  { postgres, target, name }: FleetDatabase,
  lease: Pick<Lease, 'view'>,
  peers: FleetHostParts['peers'],
): FleetStatus {
  const { isReachable, problem, sinceMs } = postgres.view()
  const view = lease.view()
  return {
    database: databaseText(target),
    name,
    is_reachable: isReachable,
    since: iso(sinceMs),
    problem: problem ?? view.problem,
    has_lease: view.hasLease,
    is_draining: view.isDraining,
    epoch: view.epoch,
    peer_address: peers.address(),
    peers: peers.view().map(({ name, isReached, problem }) => ({ name, is_reached: isReached, problem })),
  }
}

function problemsOf({ has_lease: hasLease, problem, database }: FleetStatus): FoundProblem[] {
  if (hasLease) return []
  const detail = `this host has no lease in the fleet, so it takes no new instances: ${harmless(problem ?? 'none was given')}`
  const remedy = `look whether ${database} is reached and has this host (\`strongroom doctor\`, \`strongroom fleet list\`)`
  return [criticalProblem({ name: 'fleet', detail, remedy })]
}

function copyProblems({ contradiction }: FleetHostParts['link']): FoundProblem[] {
  const found = contradiction()
  if (found === null) return []
  const outcome = found.isCopied ? 'so it was copied whole' : 'and a copy within a day before did not mend that'
  const detail = `rows of this host differed from the directory, ${outcome}: ${harmless(found.problem)}`
  const remedy = 'report this with the log of this host; this warning ends a day after the last difference'
  return [{ name: 'fleet', subject: 'copy', severity: 'warning', sinceMs: found.sinceMs, detail, remedy }]
}

function sumsProblems({ unreadSums }: FleetHostParts['link']): FoundProblem[] {
  const found = unreadSums()
  if (found === null) return []
  const detail = `what other hosts spend is not read, so usage and budgets of days and weeks lack it: ${harmless(found.problem)}`
  const remedy = 'look whether the database is reached (`strongroom doctor`); if it is, report this with the log'
  return [{ name: 'fleet', subject: 'sums', severity: 'warning', sinceMs: found.sinceMs, detail, remedy }]
}

function metricsOf({ postgres }: FleetDatabase, lease: Pick<Lease, 'view'>): string {
  const { isReachable, statementCount, failureCount } = postgres.view()
  const { hasLease, isDraining } = lease.view()
  const gauge = (name: string, help: string, is: boolean) => family(name, help, 'gauge', [[{}, is ? 1 : 0]])
  const counter = (name: string, help: string, count: number) => family(name, help, 'counter', [[{}, count]])
  return metricsText([
    gauge(
      'strongroom_fleet_database_up',
      'Whether the database of the fleet answered the last statement.',
      isReachable,
    ),
    gauge('strongroom_fleet_lease', 'Whether this host has its lease, without which it takes no instances.', hasLease),
    gauge('strongroom_fleet_draining', 'Whether this host drains.', isDraining),
    counter('strongroom_fleet_statements_total', 'Statements sent to the database of the fleet.', statementCount),
    counter(
      'strongroom_fleet_failures_total',
      'Statements that the database of the fleet did not answer.',
      failureCount,
    ),
  ])
}
