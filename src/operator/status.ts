// The response of `strongroom status`. Effects: reads the store.

import { toHex } from '../base/bytes.ts'
import { type Clock, iso, isoOrNull } from '../base/clock.ts'
import { REMEDIES } from '../base/remedies.ts'
import { storageCodeOf } from '../base/storage-failure.ts'
import { version } from '../base/version.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import type { Config, Platform } from '../config/schema.ts'
import type { AdminStatus } from '../contract/admin/admin.ts'
import { criticalProblem, type FoundProblem, isReady } from '../contract/admin/problems.ts'
import { collateralProblem, type KeptCollateral } from '../host/kds/kept.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import type { Tls } from '../http/certificate.ts'
import type { LedgerDb, Store } from '../store/db.ts'
import { buildDiskBytes, countBuildsByState } from '../store/directory/build.query.ts'
import { countInstances } from '../store/directory/instance.query.ts'
import { prepareInstanceFailures } from '../store/directory/instance-failures.query.ts'
import { listOrganizations } from '../store/directory/organization.query.ts'
import { restsAt } from '../store/ledger/address.query.ts'
import { countVms, reservedBy, vmById } from '../store/ledger/vm.query.ts'
import type { WatchedLog } from '../transparency/health.ts'
import type { Capacity } from '../vm/admission.plan.ts'
import { clockView } from './clock.ts'
import type { AdminDeps } from './deps.ts'
import { gatewaySummary, gatewayView } from './inference.ts'
import { logSummary, unwritableLog } from './log.ts'
import type { MaintenanceMode } from './maintenance/mode.ts'
import { servedNames } from './problems/certificates.plan.ts'
import type { ObservedUpstream } from './problems/gateway.plan.ts'
import type { ProblemJournal } from './problems/journal.ts'
import { type JournalFacts, type ProblemFacts, problemsIn } from './problems/problems.plan.ts'
import type { ProblemWatch } from './problems/watch.ts'

export type PoolSummary = Pick<AdminStatus['pool'], 'wanted' | 'warm' | 'booting' | 'lacking'> & {
  readonly lastFailure: { readonly atMs: number; readonly reason: string } | null
  readonly nextAttemptAtMs: number | null
}

export type BuildVmsSummary = Pick<
  NonNullable<AdminStatus['builds']>,
  'wanted' | 'warm' | 'booting' | 'reserved' | 'lacking'
>

export type StatusDeps = {
  readonly config: Pick<Config, 'domain' | 'listen'> & {
    readonly inference: Pick<Config['inference'], 'placement'>
    readonly console: Pick<Config['console'], 'names'>
    readonly network: Pick<Config['network'], 'address_rest_s'>
    readonly vm: Pick<Config['vm'], 'memory_mib' | 'vcpus'>
    readonly tls: Pick<Config['tls'], 'names' | 'certificate_file' | 'key_file'> & {
      readonly acme: Pick<Config['tls']['acme'], 'directory' | 'http_listen'>
    }
  }
  readonly store: Store
  readonly engine: {
    readonly platform: Platform
    readonly tpm: () => AdminStatus['tpm']
    readonly capacity: Pick<Capacity, 'memoryMib' | 'vcpus' | 'addresses'>
    readonly collateral: { readonly describe: () => KeptCollateral } | null
  }
  /** Summary of the warm pool, times in milliseconds. */
  readonly pool: { readonly status: () => PoolSummary }
  readonly gateway: AdminDeps['gateway']
  /** Returns the upstreams that must show evidence, as the gateway reports them. */
  readonly attestedUpstreams: () => AdminStatus['gateway']['attested_upstreams']
  /** Returns the gateway's trace export; null if it is off. */
  readonly traces: () => AdminStatus['gateway']['traces']
  /** Returns the build VMs that no build has taken; null if service C is off. */
  readonly buildVms: (() => BuildVmsSummary) | null
  /** Null if there is no list of names that instances may reach. */
  readonly names: (() => NonNullable<AdminStatus['names']>) | null
  readonly tls: Pick<Tls, 'source' | 'current' | 'caFile' | 'expiries' | 'former' | 'acme'>
  readonly operatorKey: Pick<OperatorKey, 'digest' | 'publicPem'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly clockGuard: Pick<ClockGuard, 'view' | 'certainMs'>
  readonly transparency: WatchedLog
  readonly maintenance: Pick<MaintenanceMode, 'view'>
  readonly backups: () => AdminStatus['backups']
  /** Returns the budgets that are nearly spent. */
  readonly budgetsNear: () => NonNullable<AdminStatus['budgets_near']>
  /** Returns this host's part in its fleet; null if it is in none. */
  readonly fleetStatus: () => AdminStatus['fleet']
  /** Returns the upstreams and the worker of the gateway, as the daemon observes them. */
  readonly upstreams: () => readonly ObservedUpstream[]
  /** Returns the problems of sources that look themselves. */
  readonly problems: () => readonly FoundProblem[]
  readonly journal: Pick<ProblemJournal, 'facts'>
  /** Returns when each VM was paused for lack of disk space; one that ended since may be among them. */
  readonly pausedVms: () => ReadonlyMap<string, number>
  readonly problemWatch: Pick<ProblemWatch, 'dated'>
  /** The address of each service; null for one that is switched off. */
  readonly listening: AdminStatus['listen']
}

export function createStatus(deps: StatusDeps): () => AdminStatus {
  const { config, store, engine, tls } = deps
  const startedAt = iso(deps.clock.nowMs())
  const failures = prepareInstanceFailures(store.directory.db, store.hostId)
  return () => {
    const { db: directory } = store.directory
    const { db: ledger } = store.ledger
    const reserved = unlessDamaged(() => reservedBy(ledger, store.hostId), null)
    const restMs = config.network.address_rest_s * 1000
    const rests = unlessDamaged(() => restsAt(ledger, { nowMs: deps.clockGuard.certainMs(), restMs }), NO_REST)
    const status = {
      version,
      pid: process.pid,
      host_id: store.hostId,
      platform: engine.platform,
      evidence_simulated: engine.platform !== 'snp',
      tpm: engine.tpm(),
      domain: config.domain,
      started_at: startedAt,
      clock: clockView(deps.clockGuard),
      listen: deps.listening,
      tls: {
        former: formerStatus(tls.former()),
        source: tls.source,
        expires_at: iso(tls.current().notAfterMs),
        ca_file: tls.caFile,
        certificates: tls.expiries().map(({ name, notAfterMs }) => ({ name, expires_at: iso(notAfterMs) })),
        acme: acmeStatus(tls.acme()),
      },
      operator_key: { digest: toHex(deps.operatorKey.digest), public_key: deps.operatorKey.publicPem },
      collateral:
        engine.collateral === null ? null : collateralStatus(engine.collateral.describe(), deps.clock.nowMs()),
      organizations: unlessDamaged(() => listOrganizations(directory).length, null),
      instances: unlessDamaged(() => countInstances(directory), null),
      vms: unlessDamaged(() => countVms(ledger), null),
      capacity: {
        memory_mib_used: reserved?.memoryMib ?? null,
        memory_mib_total: engine.capacity.memoryMib,
        vcpus_used: reserved?.vcpus ?? null,
        vcpus_total: engine.capacity.vcpus,
        addresses_used: reserved?.vms ?? null,
        addresses_total: engine.capacity.addresses,
        addresses_resting: rests.count,
        next_address_free_at: isoOrNull(rests.nextFreeMs),
      },
      pool: poolStatus(unlessDamaged(() => deps.pool.status(), UNKNOWN_POOL)),
      gateway: {
        ...unlessDamaged(() => gatewaySummary(deps.gateway), UNKNOWN_GATEWAY),
        attested_upstreams: unlessDamaged(deps.attestedUpstreams, []),
        traces: deps.traces(),
      },
      builds:
        deps.buildVms === null
          ? null
          : {
              ...unlessDamaged(deps.buildVms, UNKNOWN_BUILD_VMS),
              states: unlessDamaged(() => countBuildsByState(directory, store.hostId), null),
              disk_bytes: unlessDamaged(() => buildDiskBytes(directory, store.hostId), null),
            },
      names: deps.names === null ? null : deps.names(),
      log: unlessDamaged(() => logSummary(deps.transparency, deps.clock.nowMs()), null),
      backups: deps.backups(),
      budgets_near: deps.budgetsNear(),
      maintenance: deps.maintenance.view(),
      fleet: deps.fleetStatus(),
    }
    const judged = problemsIn({
      status,
      nowMs: deps.clock.nowMs(),
      failures: unlessDamaged(failures, null),
      gateway: {
        upstreams: unlessDamaged(deps.upstreams, []),
        gatewayVms: unlessDamaged(() => gatewayView(deps.gateway).gateways, []),
      },
      journal: unlessDamaged(() => deps.journal.facts(), UNKNOWN_JOURNAL),
      pausedVms: unlessDamaged(() => runningOf(ledger, deps.pausedVms()), []),
      instance: { memoryMib: config.vm.memory_mib, vcpus: config.vm.vcpus },
      acme: { directory: config.tls.acme.directory, httpListen: config.tls.acme.http_listen },
      ownCertificate: {
        certificateFile: config.tls.certificate_file,
        keyFile: config.tls.key_file,
        names: servedNames(config),
      },
    })
    // The damage last, because the reads above may be the first to find it.
    const found = [...unwritableLog(deps.transparency), ...deps.problems(), ...judged]
    const problems = deps.problemWatch.dated([...databaseProblems(store), ...found])
    return { ...status, ready: isReady(problems), problems }
  }
}

function runningOf(ledger: LedgerDb, paused: ReadonlyMap<string, number>): ProblemFacts['pausedVms'] {
  return [...paused].flatMap(([vm, sinceMs]) => {
    const row = vmById(ledger, vm)
    return row?.desired === 'running' && row.state === 'running' ? [{ vm, sinceMs }] : []
  })
}

const damaged = 'the database is damaged'
const NO_REST = { count: 0, nextFreeMs: null }
const UNKNOWN_POOL: PoolSummary = {
  wanted: 0,
  warm: 0,
  booting: 0,
  lacking: damaged,
  lastFailure: null,
  nextAttemptAtMs: null,
}
const UNKNOWN_BUILD_VMS: BuildVmsSummary = { wanted: 0, warm: 0, booting: 0, reserved: 0, lacking: damaged }
const UNKNOWN_JOURNAL: JournalFacts = { tableRestoredMs: null, authorityReplacedMs: null }
const UNKNOWN_GATEWAY: ReturnType<typeof gatewaySummary> = {
  placement: 'vm',
  vm: null,
  state: null,
  problem: damaged,
}

/**
 * Returns `otherwise` if the database is damaged, because the status is needed most when the database cannot be read.
 */
export function unlessDamaged<Value, Otherwise>(read: () => Value, otherwise: Otherwise): Value | Otherwise {
  try {
    return read()
  } catch (error) {
    if (storageCodeOf(error) === 'store.corrupt') return otherwise
    throw error
  }
}

function databaseProblems(store: Pick<Store, 'damage'>): FoundProblem[] {
  const damage = store.damage()
  if (damage === null) return []
  const detail = `a statement met damage: ${damage}`
  return [criticalProblem({ name: 'database', detail, remedy: REMEDIES['store.corrupt'] })]
}

function formerStatus(former: ReturnType<Tls['former']>): AdminStatus['tls']['former'] {
  return former === null ? null : { names: former.names, until: iso(former.endsAtMs) }
}

function acmeStatus(names: ReturnType<Tls['acme']>): AdminStatus['tls']['acme'] {
  return (
    names?.map(({ name, holder, expiresAtMs, nextAtMs, failure }) => ({
      name,
      holder,
      expires_at: isoOrNull(expiresAtMs),
      next_at: isoOrNull(nextAtMs),
      failure: failure === null ? null : { at: iso(failure.atMs), type: failure.type, detail: failure.detail },
    })) ?? null
  )
}

function poolStatus({ lastFailure, nextAttemptAtMs, ...counts }: PoolSummary): AdminStatus['pool'] {
  const failure = lastFailure === null ? null : { at: iso(lastFailure.atMs), reason: lastFailure.reason }
  return { ...counts, last_failure: failure, next_attempt_at: isoOrNull(nextAttemptAtMs) }
}

function collateralStatus(kept: KeptCollateral, nowMs: number): NonNullable<AdminStatus['collateral']> {
  const problem = collateralProblem(kept, nowMs)
  return {
    product: kept.product,
    veks: kept.veks.count,
    vek_fetched_at: isoOrNull(kept.veks.fetchedAtMs),
    chain_fetched_at: isoOrNull(kept.chainFetchedAtMs),
    crl_fetched_at: isoOrNull(kept.crlFetchedAtMs),
    crl_next_update: isoOrNull(kept.crlNextUpdateMs),
    state: problem?.kind ?? 'good',
    problem: problem?.text ?? null,
    remedy: problem?.remedy ?? null,
  }
}
