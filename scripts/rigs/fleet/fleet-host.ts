// One host of a fleet without QEMU: its database, its copy of the directory, service A over HTTP on a free local port,
// VMs that are files. Effects: files of a directory, connections, a port.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { createLogger, type Logger, silentLogger } from '../../../src/base/log.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import { actingFor } from '../../../src/fleet/acting.ts'
import type { CopyWaits } from '../../../src/fleet/directory/copy.ts'
import { type FleetDirectory, openFleetDirectory } from '../../../src/fleet/directory/directory.ts'
import type { PostgresLimits } from '../../../src/fleet/driver.ts'
import { failAllOf } from '../../../src/fleet/hosts/give-up.ts'
import { Lease, type LeaseView } from '../../../src/fleet/hosts/lease.ts'
import { listenForChanges } from '../../../src/fleet/listener.ts'
import { openPostgres, type Postgres } from '../../../src/fleet/postgres.ts'
import { type AppliedChanges, copiedFleetOf } from '../../../src/fleet/replica/replica.ts'
import { AnonymousLogLimit } from '../../../src/http/anonymous-log-limit.ts'
import { createRequestRate } from '../../../src/http/rate.ts'
import { Attestations } from '../../../src/instances/attestation.ts'
import { NameTableReader } from '../../../src/instances/dns/name-table.ts'
import { Names } from '../../../src/instances/dns/names.ts'
import { runEgressSampler } from '../../../src/instances/egress.ts'
import { createAuthenticate } from '../../../src/instances/http/auth.ts'
import { openapiDocument } from '../../../src/instances/http/openapi.ts'
import { createHttp } from '../../../src/instances/http/server.ts'
import { restartOnOtherHost } from '../../../src/instances/restart-on-other-host.ts'
import { createInstancesService, type InstancesService } from '../../../src/instances/service.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { simulatedTrust } from '../guest/attested-guest.ts'
import { claimless } from '../instances/claimless.ts'
import { limits, settings } from '../instances/instances-service.ts'
import { noSnapshots } from '../instances/no-snapshots.ts'
import { admitHost, patientLimits, urlOfHost } from '../postgres/fleet.ts'
import { report, unhurried } from '../postgres/hosts.ts'
import { until } from '../until.ts'
import { type AttestedVms, attestedVms } from './attested-vms.ts'
import { type FakeVms, openFakeVms } from './fake-vms.ts'
import { type HostBudgets, openHostBudgets } from './host-budgets.ts'
import { type HostPeers, openHostPeers, type PeerWays } from './host-peers.ts'
import { type LedgerVms, openLedgerVms } from './ledger-vms.ts'

export type FleetHost = AsyncDisposable & {
  readonly hostId: string
  readonly name: string
  readonly url: string
  /** Address of the directory for its owner. */
  readonly database: string
  readonly store: Store
  readonly fleet: FleetDirectory
  readonly postgres: Postgres
  readonly service: InstancesService
  readonly vms: FakeVms
  readonly peers: HostPeers
  readonly lease: () => LeaseView
  /** Where it answers other hosts. */
  readonly peerPort: number
  readonly attested: AttestedVms
  readonly books: HostBudgets
  /** By the name table that the DNS server answers from. */
  readonly addressOf: (hostname: string) => string | null
  /** It is said that there is no such name. */
  readonly isAbsent: (hostname: string) => boolean
  /** As kill -9 as far as it goes in one process: nothing is reported, nothing ends. */
  readonly abandon: () => Promise<void>
}

const firstCopyMs = 60_000
const leaseMs = 60_000
/** So long do hosts wait that no outage holds up. */
const patientWaits: CopyWaits = { freshMs: 30_000, soonMs: 30_000 }
const sampleEveryMs = 1_000

/** So that tests of an outage need not wait as long as hosts do; longer than a busy machine holds a statement up. */
export const impatientLimits = { connectMs: 2_500, statementMs: 3_500, lockMs: 3_400, transactionMs: 7_000 }

export type FleetHostOptions = {
  readonly directory: string
  /** postgres://… of the directory, as its owner; the host signs in as a role of its own. */
  readonly database: string
  readonly name: string
  readonly places?: number
  readonly log?: (line: string) => void
  readonly settings?: Partial<typeof settings>
  readonly bootMs?: number
  /** VMs that are files do not begin to boot before. */
  readonly mayBoot?: Promise<unknown>
  /** False to keep VMs in memory instead of in files, which costs next to nothing. */
  readonly areVmsKept?: boolean
  /** Its VMs give evidence, of the simulated platform. A number: one in so many instances. */
  readonly isAttested?: boolean | number
  readonly attestationsPerMinute?: number
  /** No VM of it ever becomes ready. */
  readonly isBroken?: boolean
  /** As long as hosts have by default for a statement. */
  readonly isPatient?: boolean
  /** It waits for the database for as long as that takes: where nothing waits for an outage to end. */
  readonly isUnhurried?: boolean
  readonly lostAfterMs?: number
  /** Network of its VMs' addresses: the engine is the host's own, with a ledger and egress. Default: no engine. */
  readonly pool?: string
  readonly peerWays?: PeerWays
  readonly sumsEveryMs?: number
  readonly checkEveryMs?: number
  /** Parts of budgets that it does not use are given back. */
  readonly hasBudgets?: boolean
  /** By how much its wall clock is wrong, asked each time. */
  readonly wrongMs?: () => number
  /** It is in the fleet already, so that it starts without the database. */
  readonly isJoined?: boolean
  /** Holds the password of its role, as `fleet.password_file`. */
  readonly passwordFile?: string
  /** See Renewal. */
  readonly process?: string
  readonly renewEveryMs?: number
  /** Default: as the daemon's. */
  readonly budgetsIdleMs?: number
}

export async function startFleetHost(options: FleetHostOptions): Promise<FleetHost> {
  const { directory, name } = options
  const { wrongMs = () => 0 } = options
  const clock: Clock = { ...systemClock, nowMs: () => systemClock.nowMs() + wrongMs() }
  const log: Logger =
    options.log === undefined ? silentLogger : createLogger({ level: 'debug', sink: options.log, nowMs: clock.nowMs })
  const alone = openStore(join(directory, 'strongroom.db'))
  const { hostId } = alone
  const parsed = parseDatabaseUrl(urlOfHost(options.database, hostId))
  if (!parsed.ok) throw new Error(parsed.problem)
  const { passwordFile } = options
  const password = passwordFile === undefined ? null : () => readFileSync(passwordFile, 'utf8')
  const target = { ...parsed.address, password, caPem: null, applicationName: name }
  if (options.isJoined !== true) await admitHost(options.database, { id: hostId, name })
  const { isUnhurried = false } = options
  const postgres = await openPostgres({ target, limits: limitsOf(options), clock, log })
  const membership = { set: (_isMember: boolean, _reported: number | null) => {} }
  const lease = await enter(postgres, {
    hostId,
    name,
    places: options.places ?? 1_000,
    lostAfterMs: options.lostAfterMs ?? 60_000,
    isJoined: options.isJoined ?? false,
    isUnhurried,
    ...(options.process === undefined ? {} : { process: options.process }),
    ...(options.renewEveryMs === undefined ? {} : { renewEveryMs: options.renewEveryMs }),
    log,
    onMembership: (isMember, reported) => membership.set(isMember, reported),
  })
  const { bootMs = 5, mayBoot, pool } = options
  const ledgerVms: LedgerVms | null =
    pool === undefined ? null : openLedgerVms({ directory, bootMs, pool }, { store: alone, clock, log })
  const vms = ledgerVms ?? openFakeVms(options.areVmsKept === false ? null : join(directory, 'vms'), bootMs, mayBoot)
  const fleet = openFleetDirectory(
    {
      directory: alone.directory,
      hostId,
      postgres,
      ...(options.sumsEveryMs === undefined ? {} : { sumsEveryMs: options.sumsEveryMs }),
      ...(options.checkEveryMs === undefined ? {} : { checkEveryMs: options.checkEveryMs }),
      ...(isUnhurried ? { waits: patientWaits } : {}),
      clock,
      log,
      adopt: () => ({ vmId: newUuid() }),
      onApplied: applied => onApplied(applied),
    },
    copiedFleetOf(alone.directory),
  )
  membership.set = fleet.setMember
  if (lease.isHeld()) fleet.setMember(true)
  const store: Store = { ...alone, directory: fleet.store }
  const attested = attestedVms(store)
  const { isAttested = false, peerWays = {} } = options
  const acting = actingFor(postgres, fleet.isMember)
  const peers = await openHostPeers({ directory, hostId, postgres, acting, clock, log, ways: peerWays })
  const timeline = () => fleet.view().timeline
  const books = openHostBudgets({
    ...{ directory: alone.directory, hostId, postgres: acting, timeline, clock, log },
    ...(options.budgetsIdleMs === undefined ? {} : { idleMs: options.budgetsIdleMs }),
  })
  const attestationRate = createRequestRate({
    clock,
    requestsPerMinute: options.attestationsPerMinute ?? 1_000_000,
    what: 'fresh attestations',
  })
  const reconciler = claimless({
    ...{ store, clock, engine: vms },
    claim: async ({ vmId, claimId }) => {
      if (options.isBroken === true) throw new Error('no VM of this host takes a claim')
      if (isOneOf(isAttested, claimId)) await attested.claimed(claimId)
      ledgerVms?.claimed(vmId, claimId)
    },
    elsewhere: (instance, code) => restartOnOtherHost({ directory: fleet.store, platform: 'tcg' }, instance, code),
  })
  const names = new Names({
    db: store.directory.db,
    hostId,
    engine: vms,
    report: write => store.directory.transact(write),
    isPartial: () => fleet.waitsFor() !== null,
    namesMax: 10_000,
    hostAddresses: () => ({ ns: null, instances: null, inference: null, builds: null }),
    clock,
    log,
  })
  vms.onChange(vmId => names.vmChanged(vmId))
  const onApplied = ({ instances }: AppliedChanges) => {
    for (const { id, isOwn, isLeft } of instances) {
      if (isLeft) reconciler.endLeft()
      names.instanceChanged(id)
      if (isOwn) reconciler.wake(id)
    }
  }
  const service = createInstancesService({
    directory: fleet.store,
    platform: 'tcg',
    clock,
    admitNew: () => {},
    isClockTrusted: () => true,
    random: systemRandom,
    log,
    settings: { ...settings, ...options.settings },
    takeVm: () => ({ vmId: null, start: 'cold' }),
    onCreated: () => {},
    onDeleted: () => {},
    inferenceCostMicroUsd: () => 0n,
  })
  const strangers = new AnonymousLogLimit({ clock, log })
  const http = createHttp({
    log,
    clock,
    random: systemRandom,
    admitChange: () => {},
    strangers,
    limits,
    rate: createRequestRate({ clock, requestsPerMinute: 1_000_000 }),
    authenticate: createAuthenticate({ directory: store.directory, clock, log }),
    directory: fleet.store,
    service,
    attestations: new Attestations({
      directory: fleet.store,
      hostId,
      engine: attested.engine,
      trust: simulatedTrust,
      admit: keyPrefix => attestationRate.take(keyPrefix),
      clock,
      log,
    }),
    peers: peers.caller,
    snapshots: noSnapshots({ directory: fleet.store, hostId, clock }),
    openapi: openapiDocument(),
    published: () => '{}',
  })
  const listener = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    fetch: request => http(request, { address: () => '127.0.0.1' }),
  })
  const answering = peers.serve({ instances: http, builds: null, handover: null })
  const listening = new AbortController()
  const heard = listenForChanges({
    target,
    limits: impatientLimits,
    clock,
    log,
    onChange: fleet.wake,
    signal: listening.signal,
  })
  await names.start()
  fleet.start()
  if (options.isJoined !== true) await until('the first copy is whole', firstCopyMs, () => fleet.waitsFor() === null)
  const renewing = lease.run(listening.signal)
  reconciler.start()
  const working = [renewing]
  if (options.hasBudgets === true) working.push(books.shares.run(listening.signal))
  if (ledgerVms !== null) {
    const { sample } = ledgerVms
    ledgerVms.start()
    const sampling = { store, clock, log, intervalMs: sampleEveryMs, sample, handEgress: async () => {} }
    working.push(runEgressSampler(sampling, listening.signal))
  }
  const end = async () => {
    listening.abort()
    await Promise.all([listener.stop(true), answering.end()])
    await books.metering.stop()
    await Promise.all([names.stop(), reconciler.stop(), fleet.stop(), heard, ...working])
    vms.stop()
    strangers[Symbol.dispose]()
    await postgres.close()
    store.close()
  }
  let ending: Promise<void> | null = null
  return {
    hostId,
    name,
    url: `http://127.0.0.1:${listener.port}`,
    database: options.database,
    store,
    fleet,
    postgres,
    service,
    vms,
    isAbsent: hostname =>
      new NameTableReader(names.memory).find(hostname.split('.').slice(0, 2).join('.')).kind === 'absent',
    peers,
    lease: () => lease.view(),
    peerPort: answering.port,
    attested,
    books,
    addressOf: hostname => {
      const found = new NameTableReader(names.memory).find(hostname.split('.').slice(0, 2).join('.'))
      return found.kind === 'found' && found.v4 !== null ? found.v4.join('.') : null
    },
    abandon: () => (ending ??= end()),
    [Symbol.asyncDispose]: () => (ending ??= end()),
  }
}

function limitsOf({ isPatient, isUnhurried }: FleetHostOptions): Partial<PostgresLimits> {
  if (isUnhurried === true) return patientLimits
  return isPatient === true ? {} : impatientLimits
}

function isOneOf(attested: boolean | number, id: string): boolean {
  return typeof attested === 'boolean' ? attested : Bun.hash.crc32(id) % attested === 0
}

type Entered = {
  readonly hostId: string
  readonly name: string
  readonly places: number
  readonly lostAfterMs: number
  readonly isJoined: boolean
  readonly isUnhurried: boolean
  readonly process?: string
  readonly renewEveryMs?: number
  readonly log: Logger
  readonly onMembership: (isMember: boolean, reported: number | null) => void
}

/** A lease of its own, which is renewed. */
async function enter(postgres: Postgres, host: Entered): Promise<Lease> {
  const { hostId, lostAfterMs, process, renewEveryMs, log } = host
  const lease = new Lease({
    ...{ hostId, lostAfterMs, log },
    ...(process === undefined ? {} : { process }),
    ...(renewEveryMs === undefined ? {} : { renewEveryMs }),
    postgres: host.isUnhurried ? unhurried(postgres) : postgres,
    platform: 'tcg',
    report: () => ({ places: host.places, report }),
    giveUp: failAllOf,
    clock: systemClock,
    onEvent: () => {},
    onMembership: host.onMembership,
  })
  if (!host.isJoined) {
    await until('it has its lease', leaseMs, async () => {
      await lease.renew()
      return lease.isHeld()
    })
  }
  return lease
}
