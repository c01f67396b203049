// Puts service A together: decisions, reconciler, HTTPS listener, background work. Effects: those of its parts.

import { newUuid } from '../base/ids.ts'
import type { Runtime } from '../base/runtime.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { modelContextTokens } from '../config/context.ts'
import { listenAddress } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { egressLimitBytes } from '../contract/http/instance.ts'
import { notTaken } from '../fleet/acting.ts'
import { directoryAway } from '../fleet/failures.ts'
import type { Peers } from '../fleet/peers/peers.ts'
import { probeSsh } from '../host/network/ssh-probe.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import { createPublishedPorts } from '../http/acme/published-ports.ts'
import type { AnonymousLogLimit } from '../http/anonymous-log-limit.ts'
import type { Tls } from '../http/certificate.ts'
import type { EdgeFetch, EdgeRoute } from '../http/edge.ts'
import { createRequestRate } from '../http/rate.ts'
import { type FetchHandler, serveTls, type TlsServer } from '../http/serve.ts'
import type { InstanceKeys } from '../inference/keys/instance-keys.ts'
import type { Metering } from '../inference/metering/ledger.ts'
import { Attestations } from '../instances/attestation.ts'
import type { Names } from '../instances/dns/names.ts'
import { runEgressSampler } from '../instances/egress.ts'
import type { AttestationTrustOf } from '../instances/evidence.verify.ts'
import { createAuthenticate } from '../instances/http/auth.ts'
import { openapiDocument } from '../instances/http/openapi.ts'
import { createHttp } from '../instances/http/server.ts'
import { runIdleEnds } from '../instances/idle-ends.ts'
import type { InstanceStart } from '../instances/pool.plan.ts'
import type { WarmPool } from '../instances/pool.ts'
import { InstanceReconciler } from '../instances/reconciler.ts'
import { restartOnOtherHost } from '../instances/restart-on-other-host.ts'
import { noteRemoval, runRetention } from '../instances/retention.ts'
import { createInstancesService, type InstancesService } from '../instances/service.ts'
import type { Snapshots } from '../instances/snapshots/snapshots.ts'
import type { MaintenanceMode } from '../operator/maintenance/mode.ts'
import type { RequestCounts } from '../operator/metrics/request-counts.ts'
import type { Store } from '../store/db.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import type { LogPeer } from '../transparency/routes.ts'
import type { ChangeGate } from '../upgrade/gate.ts'
import type { VmEngine, VmSpec } from '../vm/engine.ts'
import type { FirewallWatch } from '../vm/firewall-probe/watch.ts'
import { runPurge } from '../vm/machine/purge.driver.ts'
import type { Engine } from './engine.ts'
import type { DirectoryLink } from './fleet/directory.ts'
import type { GatewayVmWorkloads } from './gateway-vm/workloads.ts'
import { composeGuestGateway } from './guest-gateway.ts'
import { composePool } from './pool.ts'
import { createPublished } from './published.ts'
import { composeSnapshots } from './snapshots/snapshots.ts'

export type InstancesParts = Runtime & {
  readonly gate: Pick<ChangeGate, 'admitChange'>
  readonly maintenance: Pick<MaintenanceMode, 'admitNew' | 'noticed'>
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly engine: Engine
  readonly clockGuard: ClockGuard
  readonly metering: Metering
  readonly keys: InstanceKeys
  /** CA certificate that instances need to reach this appliance's gateway. */
  readonly guestCaPem: string
  readonly tls: Pick<Tls, 'publish' | 'forgetPublished'>
  readonly names: Pick<Names, 'instanceChanged'>
  readonly link: DirectoryLink
  readonly peers: Pick<Peers, 'forward'>
  readonly trust: AttestationTrustOf
  /** Null if the gateway has no VM. */
  readonly workloads: Pick<GatewayVmWorkloads, 'textFor'> | null
  readonly operatorKey: Pick<OperatorKey, 'digest'>
  readonly firewall: Pick<FirewallWatch, 'cutOff'>
  readonly simulatedPlatform: () => Promise<Pick<SimulatedHost, 'root'>>
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  readonly logRoutes: readonly EdgeRoute<LogPeer>[]
}

/** Service A over HTTPS. Fault host.unsupported: the address cannot be listened on. */
export function serveInstances(
  { service, snapshots }: Pick<Instances, 'service' | 'snapshots'>,
  parts: InstancesParts & {
    readonly tls: Tls
    readonly operatorKey: Pick<OperatorKey, 'publicPem'>
    readonly requests: RequestCounts
  },
): TlsServer & { readonly fetch: EdgeFetch<LogPeer> } {
  const { config, store, engine, clock, random, log, tls, trust } = parts
  const attestationRate = createRequestRate({
    clock,
    requestsPerMinute: config.instances.attestations_per_minute,
    what: 'fresh attestations',
  })
  const attestations = new Attestations({
    directory: store.directory,
    hostId: store.hostId,
    engine: engine.reconciler,
    trust,
    admit: keyPrefix => {
      // Fresh evidence takes the engine, which does not run on trial.
      parts.gate.admitChange()
      attestationRate.take(keyPrefix)
    },
    clock,
    log: log.unit('instances'),
  })
  const serving = createHttp({
    log: log.unit('http'),
    clock,
    random,
    strangers: parts.strangers,
    limits: {
      bytesMax: config.http.body_bytes_max,
      timeoutMs: config.http.body_timeout_ms,
      depthMax: config.http.json_depth_max,
    },
    rate: createRequestRate({ clock, requestsPerMinute: config.instances.requests_per_minute }),
    admitChange: parts.gate.admitChange,
    directory: store.directory,
    authenticate: createAuthenticate({ directory: store.directory, clock, log: log.unit('auth') }),
    service,
    attestations,
    snapshots,
    peers: parts.peers,
    others: parts.logRoutes,
    published: createPublished({ config, operatorKey: parts.operatorKey, caFile: tls.caFile, clock }),
    openapi: openapiDocument(),
  })
  const edge = parts.maintenance.noticed(serving)
  const http = parts.requests.counted('instances', edge)
  const handler: FetchHandler = (request, socket) =>
    http(request, { address: () => socket.requestIP(request)?.address ?? '' })
  const server = serveTls(handler, {
    ...listenAddress(config.listen.instances),
    tls,
    idleTimeoutSeconds: config.http.idle_timeout_s,
    // Service A itself limits the body while it arrives, so that the refusal is in its own words.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: log.unit('http'),
  })
  return { ...server, fetch: http }
}

/** `watch`: what is kept up without a change of any instance: the firewall, the count of egress. */
export type Background = {
  readonly watch: () => void
  readonly start: () => void
  readonly stop: () => Promise<void>
}

export type Instances = {
  readonly service: InstancesService
  readonly pool: WarmPool
  readonly snapshots: Snapshots
  readonly background: Background
}

export function composeInstances(parts: InstancesParts): Instances {
  const { config, store, engine, clock, random, log } = parts
  const { directory } = store
  const { platform } = engine
  const { vcpus, memory_mib: memoryMib, scratch_gib: scratchGib } = config.vm
  const vmSpec = { image: 'instance', vcpus, memoryMib, scratchGib }
  const pool = composePool({ ...parts, operatorKey: parts.operatorKey.digest }, vmSpec)
  const reconciler = new InstanceReconciler({
    store,
    engine: engine.reconciler,
    vmSpec,
    /**
     * Two rounds of boots: one that runs, and one that is ready to follow. Share: this limit is the
     * share of one organization.
     */
    bootingPerOrganizationMax: 2 * config.vm.start_concurrency_max,
    trust: parts.trust,
    onReady: id => parts.names.instanceChanged(id),
    probe: probeSsh,
    clock,
    random,
    log: log.unit('instances'),
    gateway: composeGuestGateway(parts),
    egress: { limitBytes: egressLimitBytes, names: config.network.allow_names.length === 0 ? 'any' : 'listed' },
    // Without a gateway of this appliance a key opens nothing.
    drawsKeys: config.listen.inference !== '',
    registerKey: parts.keys.registerKey,
    contextTokens: model => modelContextTokens(config, model),
    claimTimeoutMs: config.vm.claim_timeout_ms,
    sshTimeoutMs: config.vm.ssh_timeout_ms,
    cutOff: () => parts.firewall.cutOff(),
    elsewhere: async (instance, failureCode) => {
      // A new instance has no VM before the fleet takes this process for the host.
      if (instance.vmId === null && !parts.link.isMember()) throw directoryAway(notTaken())
      return await restartOnOtherHost({ directory, platform }, instance, failureCode)
    },
  })
  const onCreated = (instance: Instance, start: InstanceStart) => {
    pool.accepted(instance, start)
    // A VM of the pool has its address already: no change of it will follow.
    parts.names.instanceChanged(instance.id)
    reconciler.wake(instance.id)
  }
  const onDeleted = (instance: Instance) => {
    // First, so that the name is gone when the response to the delete is sent.
    parts.names.instanceChanged(instance.id)
    parts.keys.revokeDeleted()
    reconciler.wakeDeleted(instance)
  }
  const followed = parts.link.follow({
    take: tx => pool.take(tx) ?? { vmId: newUuid(random), start: 'cold' },
    onCreated,
    onDeleted,
    onLeft: () => reconciler.endLeft(),
    onChanged: id => {
      parts.names.instanceChanged(id)
      reconciler.wake(id)
    },
  })
  const service = createInstancesService({
    directory,
    platform,
    clock,
    admitNew: () => parts.maintenance.admitNew('instances'),
    isClockTrusted: () => parts.clockGuard.mayDelete(),
    random,
    log: log.unit('instances'),
    settings: {
      domain: config.domain,
      inferenceModels: config.instances.inference_models,
      instancesPerOrganizationMax: config.capacity.instances_per_organization_max,
      createsPerDayMax: config.instances.creates_per_day_max,
      recordsPerOrganizationMax: config.instances.records_per_organization_max,
      retentionDays: config.instances.retention_days,
      instanceMemoryMib: config.vm.memory_mib,
      buildMemoryMib: config.builds.memory_mib,
      subscriptionCostUsd: config.billing.subscription_cost_usd,
      instanceHoursIncluded: config.billing.instance_hours_included,
      overagePerHourUsd: config.billing.overage_per_hour_usd,
    },
    ...followed,
    inferenceCostMicroUsd: (organizationId, period) => parts.metering.inferenceCostMicroUsd(organizationId, period),
  })
  const { snapshots, run } = composeSnapshots(parts)
  const working = { reconciler, pool, vmSpec, service, snapshots, runSnapshots: run }
  return { service, pool, snapshots, background: backgroundWork(parts, working) }
}

type BackgroundParts = {
  readonly reconciler: InstanceReconciler
  readonly pool: WarmPool
  readonly vmSpec: VmSpec
  readonly service: Pick<InstancesService, 'endIdle'>
  readonly snapshots: Pick<Snapshots, 'isLost' | 'noteUsed' | 'takeBeforeEnd' | 'takeScheduled'>
  /** Resolves once the signal is aborted and nothing is under way. */
  readonly runSnapshots: (signal: AbortSignal) => Promise<void>
}

/** Everything that runs without a request. */
function backgroundWork(
  { config, store, engine, tls, clock, clockGuard: guard, log }: InstancesParts,
  { reconciler, pool, vmSpec, service, snapshots, runSnapshots }: BackgroundParts,
): Background {
  const stopping = new AbortController()
  const retention = {
    directory: store.directory,
    clock,
    guard,
    log: log.unit('retention'),
    retentionDays: config.instances.retention_days,
    onRemoval: (endedBeforeMs: number) => noteRemoval(store.ledger.db, endedBeforeMs),
  }
  const sampling = {
    store,
    clock,
    log: log.unit('egress'),
    intervalMs: config.network.sample_interval_ms,
    sample: async () => {
      const samples = await engine.network.sample()
      // Charts must not keep egress from being counted.
      try {
        engine.usage.add(samples)
      } catch (error) {
        log.unit('usage').warn('CPU and memory of VMs were not sampled', { error })
      }
      return samples
    },
    handEgress: (...count: Parameters<VmEngine['handEgress']>) => engine.reconciler.handEgress(...count),
  }
  const idle = {
    directory: store.directory,
    hostId: store.hostId,
    clock,
    log: log.unit('idle'),
    minutesOf: (slug: string) => idleMinutesOf(config.instances, slug),
    pollIdle: (...question: Parameters<VmEngine['pollIdle']>) => engine.reconciler.pollIdle(...question),
    isSnapshotLost: (instance: Instance) => snapshots.isLost(instance),
    noteUsed: (instance: Instance) => snapshots.noteUsed(instance),
    published: createPublishedPorts({
      certificateFor: request => tls.publish(request),
      forget: isGone => tls.forgetPublished(isGone),
      open: (vmId, egressBytes) => engine.network.setPublished(vmId, egressBytes),
      handCertificate: (vmId, ...handed) => engine.reconciler.guest(vmId).certificate(...handed),
      log: log.unit('published'),
    }),
    takeScheduled: (instance: Instance) => snapshots.takeScheduled(instance),
    beforeEnd: async (instance: Instance) =>
      config.snapshots.at_idle_end === 'off' || (await snapshots.takeBeforeEnd(instance)),
    endIdle: service.endIdle,
  }
  let watching: Promise<unknown> = Promise.resolve()
  let loops: Promise<unknown> = Promise.resolve()
  return {
    watch: () => {
      // A reboot of the host removed the firewall's table. It is rebuilt from the ledger before the first VM is
      // looked at.
      engine.network.sync().catch(error => log.error('the firewall could not be applied', { error }))
      watching = Promise.all([runEgressSampler(sampling, stopping.signal), engine.watchNetwork(stopping.signal)])
    },
    start: () => {
      pool.start()
      reconciler.start()
      engine.reconciler.start()
      loops = Promise.all([
        runRetention(retention, stopping.signal),
        runIdleEnds(idle, stopping.signal),
        runSnapshots(stopping.signal),
        engine.readAhead(vmSpec),
        guard.run(stopping.signal),
        runPurge({ ledger: store.ledger, clock, guard, log: log.unit('vm') }, stopping.signal),
      ])
    },
    stop: async () => {
      stopping.abort()
      await Promise.all([pool.stop(), reconciler.stop(), engine.reconciler.stop(), watching, loops])
    },
  }
}

/** Null for no end. */
function idleMinutesOf({ idle_minutes, idle }: Config['instances'], slug: string): number | null {
  const own = idle.find(({ organization }) => organization === slug)
  return (own?.minutes ?? idle_minutes) || null
}
