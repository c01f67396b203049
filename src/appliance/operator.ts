// Puts the operator's side together: the admin interface on its socket. Effects: one listening socket.

import { readBackups } from '../backup/last.ts'
import { toHex } from '../base/bytes.ts'
import { isoOrNull } from '../base/clock.ts'
import type { Collector } from '../base/prometheus.ts'
import type { Runtime } from '../base/runtime.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import type { Builds } from '../builds/builds.ts'
import { createBuildMetrics } from '../builds/metrics.ts'
import type { Config } from '../config/schema.ts'
import type { AdminLeak, AdminStatus } from '../contract/admin/admin.ts'
import { findGatewayVmLeaks } from '../enclave-host/leaks.ts'
import { nameChip, reportedChips } from '../host/chip-id.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import { mintGatewayKey } from '../inference/keys/authenticate.ts'
import { readAttested } from '../inference/metrics/attested-read.ts'
import { createDnsMetrics } from '../instances/dns/metrics.ts'
import type { DnsServer } from '../instances/dns/server.ts'
import { sampleEgress } from '../instances/egress.ts'
import { exportInstanceHours, type HoursDeps } from '../instances/hours.ts'
import { mintKey } from '../instances/http/auth.ts'
import type { WarmPool } from '../instances/pool.ts'
import { createPoolMetrics } from '../instances/pool-metrics.ts'
import { removedBeforeMs } from '../instances/retention.ts'
import { type InstancesService, operatorPrefix } from '../instances/service.ts'
import { createSnapshotMetrics } from '../instances/snapshots/metrics.ts'
import type { Snapshots } from '../instances/snapshots/snapshots.ts'
import type { AdminServer } from '../operator/access/socket.ts'
import { administratorsOf, listenSockets } from '../operator/access/sockets.ts'
import { createAdmin } from '../operator/api.ts'
import { BudgetWatch } from '../operator/budget-watch.ts'
import { createCertificateMetrics } from '../operator/certificates.ts'
import { createClockMetrics } from '../operator/clock.ts'
import type { AdminDeps } from '../operator/deps.ts'
import type { MaintenanceMode } from '../operator/maintenance/mode.ts'
import { createHostMetrics } from '../operator/metrics/host.ts'
import { renderProblems } from '../operator/metrics/problems.ts'
import type { RequestCounts } from '../operator/metrics/request-counts.ts'
import { runAuditRetention } from '../operator/record/audit-retention.ts'
import { takeHostCommands } from '../operator/record/host-commands.ts'
import { Removal } from '../operator/removal.ts'
import { createStatus, type StatusDeps } from '../operator/status.ts'
import type { Store } from '../store/db.ts'
import { prepareInstanceFailures } from '../store/directory/instance-failures.query.ts'
import { resourceOf } from '../store/ledger/resource.query.ts'
import { createLogMetrics } from '../transparency/metrics.ts'
import type { ChangeGate } from '../upgrade/gate.ts'
import type { FirewallWatch } from '../vm/firewall-probe/watch.ts'
import { vmPaths } from '../vm/launch.plan.ts'
import { findLeaks } from '../vm/machine/leaks.driver.ts'
import { unownedVm } from '../vm/machine/leaks.plan.ts'
import { configuredModels, unpricedModels } from './configured-models.ts'
import type { Console } from './console/console.ts'
import { reportFailures } from './crash-output.ts'
import { type Engine, poolsOf } from './engine.ts'
import { createFirewallMetrics } from './firewall.ts'
import type { FleetHostService } from './fleet/hosts.ts'
import type { FleetPeers } from './fleet/peers.ts'
import type { SharedBudgets } from './fleet/shared-budgets.ts'
import type { FleetShares } from './fleet/shares.ts'
import type { GuestDns } from './guest-dns.ts'
import { composeProblems } from './monitoring/problems.ts'

export type OperatorParts = Runtime & {
  readonly gate: ChangeGate
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly engine: Engine
  readonly service: InstancesService
  readonly pool: WarmPool
  readonly snapshots: Pick<Snapshots, 'counts' | 'problems'>
  /** Null if service C is switched off. */
  readonly builds: Builds | null
  readonly gateway: AdminDeps['gateway']
  readonly traces: StatusDeps['traces']
  /** Why the built-in worker does not serve; null if it does, or there is none. */
  readonly workerProblem: () => string | null
  readonly firewall: FirewallWatch
  /** Null if there is no list of names that instances may reach. */
  readonly guestDns: Pick<GuestDns, 'status' | 'render'> | null
  readonly collectors: readonly Collector[]
  readonly strangers: Pick<Collector, 'render'>
  /** Responses of the services by status. */
  readonly requests: Pick<RequestCounts, 'render'>
  /** Null if it is switched off. */
  readonly dns: Pick<DnsServer, 'answers'> | null
  readonly tls: StatusDeps['tls']
  readonly operatorKey: StatusDeps['operatorKey'] & Pick<OperatorKey, 'keys'>
  readonly listening: StatusDeps['listening']
  /** Null if it is off. */
  readonly console: Pick<Console, 'control' | 'attach'> | null
  readonly clockGuard: ClockGuard
  readonly maintenance: MaintenanceMode
  readonly transparency: AdminDeps['transparency']
  readonly member: FleetHostService
  readonly sharedBudgets: Pick<SharedBudgets, 'render'>
  /** Null if this host is in no fleet. */
  readonly shares: Pick<FleetShares, 'render'> | null
  readonly peers: Pick<FleetPeers, 'view'>
}

export type ServedOperator = AdminServer & { readonly metrics: () => string; readonly start: () => void }

function chipsOf({ config, stateDir, engine, operatorKey }: OperatorParts): AdminDeps['chips'] {
  const own = () => reportedChips(stateDir, engine.platform)
  return {
    own,
    name: chip => nameChip(stateDir, chip),
    keys: operatorKey.keys,
    digest: toHex(operatorKey.digest),
    isInFleet: config.fleet.database !== '',
  }
}

/** Answers at once; `start` begins what runs without a request. Faults: conflict (another daemon), host.unsupported. */
export async function serveOperator(parts: OperatorParts): Promise<ServedOperator> {
  const { config, stateDir, store, engine, service, builds, member, clock, random } = parts
  const log = parts.log.unit('admin')
  reportFailures({
    engine: engine.reconciler,
    ledger: store.ledger.db,
    qemuLog: vmId => vmPaths(stateDir, vmId).qemuLog,
    clock,
    log: parts.log.unit('vm'),
  })
  const deleteInstance: AdminDeps['deleteInstance'] = async (instance, organization) => {
    await service.remove({ organization, keyPrefix: operatorPrefix }, instance.name)
  }
  const cancelBuild: AdminDeps['cancelBuild'] = builds === null ? null : id => builds.service.cancelById(id)
  const removal = new Removal({
    store,
    clock,
    log,
    deleteInstance,
    cancelBuild,
    removeBuildFiles: builds === null ? null : id => builds.removeFilesOf(id),
  })
  const budgets = new BudgetWatch({ store, clock, log })
  const leaks = () => leaksOf(parts)
  const found = composeProblems({ ...parts, leaks })
  const admin = createAdmin({
    administrators: administratorsOf(config, log),
    admitChange: parts.gate.admitChange,
    ownerUid: process.getuid?.() ?? 0,
    takeHostCommands: () => takeHostCommands({ stateDir, ledger: store.ledger, log, mayWrite: parts.gate.isOpen }),
    removeOrganization: id => removal.wake(id),
    ...{ store, clock, random, log },
    ...{ clockGuard: parts.clockGuard, maintenance: parts.maintenance },
    transparency: parts.transparency,
    chips: chipsOf(parts),
    fleet: member.admin,
    hostName: id => hostNameOf(parts, id),
    ...{ mintKey, mintGatewayKey },
    ...{ offeredModels: configuredModels(config), unpricedModels: unpricedModels(config) },
    deleteInstance,
    applyEgressLimits: async () => {
      await engine.network.resync()
      await sampleEgress({ store, log: parts.log.unit('egress'), sample: () => engine.network.sample() })
    },
    ...{ gateway: parts.gateway, console: parts.console?.control ?? null, cancelBuild },
    buildLog: builds === null ? null : (build, options) => builds.logOf(build, options),
    instanceHours: query => exportInstanceHours(hoursDeps(parts), query),
    vm: id => engine.reconciler.view(id),
    vmUsage: id => engine.usage.of(id),
    status: createStatus({
      ...parts,
      buildVms: builds === null ? null : () => builds.vms.status(),
      names: parts.guestDns?.status ?? null,
      attestedUpstreams: () => attestedUpstreamsIn(parts.collectors),
      fleetStatus: member.status,
      ...{ backups: () => readBackups(stateDir, clock.nowMs()), budgetsNear: () => budgets.near() },
      ...{ ...found, pausedVms: engine.pausedVms },
    }),
    collectors: [...hostCollectors(parts, () => admin.status()), ...collectorsOf(parts), budgets],
    leaks,
    testAlerts: found.testAlerts,
    consoleDir: vmId => vmPaths(stateDir, vmId).directory,
  })
  parts.console?.attach(admin)
  const server = await listenSockets(admin, { config, stateDir, log })
  const stopping = new AbortController()
  let running: Promise<unknown> = Promise.resolve()
  return {
    path: server.path,
    metrics: admin.metrics,
    start: () => {
      removal.start()
      const { events_days: keptDays } = config.operator
      const auditing = { ledger: store.ledger, clock, guard: parts.clockGuard, log, keptDays }
      const { signal } = stopping
      running = Promise.all([
        runAuditRetention(auditing, signal),
        budgets.run(signal),
        found.run(() => admin.status(), signal),
      ])
    },
    stop: async () => {
      stopping.abort()
      await Promise.all([server.stop(), removal.stop(), running])
    },
  }
}

function hostCollectors(
  { store, stateDir, requests, dns }: OperatorParts,
  status: () => AdminStatus,
): Pick<Collector, 'render'>[] {
  return [
    { render: () => renderProblems(status()) },
    createHostMetrics({ status, failures: prepareInstanceFailures(store.directory.db, store.hostId), stateDir }),
    requests,
    ...(dns === null ? [] : [createDnsMetrics(dns)]),
  ]
}

function collectorsOf(parts: OperatorParts): Pick<Collector, 'render'>[] {
  const { store, pool, builds, guestDns, shares } = parts
  return [
    ...parts.collectors,
    createPoolMetrics(pool),
    createSnapshotMetrics(parts.snapshots),
    createFirewallMetrics(parts.firewall),
    createClockMetrics(parts.clockGuard),
    createCertificateMetrics(parts.tls),
    createLogMetrics(parts.transparency),
    parts.strangers,
    parts.member,
    parts.sharedBudgets,
    ...(shares === null ? [] : [shares]),
    ...(guestDns === null ? [] : [guestDns]),
    ...(builds === null ? [] : [createBuildMetrics({ db: store.directory.db, hostId: store.hostId }, builds)]),
  ]
}

/** Other hosts by the last look at them; this one by its configuration. */
function hostNameOf({ store, member, peers }: OperatorParts, id: string): string | null {
  if (id === store.hostId) return member.status()?.name ?? null
  return peers.view().find(({ hostId }) => hostId === id)?.name ?? null
}

/** Values of the gateway's metrics, in its VM or in the daemon. */
function attestedUpstreamsIn(collectors: readonly Collector[]): AdminStatus['gateway']['attested_upstreams'] {
  const ofGateway = collectors.filter(({ workload }) => workload === 'metrics-collector')
  return ofGateway
    .flatMap(collector => readAttested(collector.render()))
    .map(({ goodAtMs, ageMs, failures, ...upstream }) => ({
      ...upstream,
      last_good_at: isoOrNull(goodAtMs),
      age_s: ageMs === null ? null : Math.floor(ageMs / 1000),
      failures: [...failures],
    }))
}

function hoursDeps({ store, clock, config }: OperatorParts): HoursDeps {
  const { retention_days: keptDays } = config.instances
  return { db: store.directory.db, clock, keptDays, removedBeforeMs: removedBeforeMs(store.ledger.db) }
}

async function leaksOf({ config, stateDir, store, engine, pool }: OperatorParts): Promise<AdminLeak[]> {
  return [
    ...(await findLeaks({
      db: store.ledger.db,
      ...engine,
      stateDir,
      tapPrefix: config.network.tap_prefix,
      pools: poolsOf(config),
      uids: { min: config.vm.uid_min, max: config.vm.uid_max },
    })),
    ...findGatewayVmLeaks(store.ledger.db, store.hostId),
    ...pool.claimedOrphans().map(vmId => unownedVm(vmId, resourceOf(store.ledger.db, vmId, 'qemu')?.name ?? null)),
  ]
}
