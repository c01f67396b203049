// One appliance from its configuration. This folder is the only place that constructs things. Effects: all of them.

import { join } from 'node:path'
import { type Clock, systemClock } from '../base/clock.ts'
import { systemRandom } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { resultOr } from '../base/result-or.ts'
import { ClockGuard, type ClockGuardDeps } from '../base/work/clock-guard.ts'
import { listenAddress, localUrl } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { kernelClock, uptimeMs } from '../host/kernel-clock.ts'
import { openOperatorKey } from '../host/operator-key.ts'
import { databaseFile, leftoversOfRecords, restoringDir } from '../host/state-files.ts'
import { hostBootId, lockHolderId } from '../host/system.ts'
import { AnonymousLogLimit } from '../http/anonymous-log-limit.ts'
import { createTls } from '../http/certificate.ts'
import { createInstanceKeys } from '../inference/keys/instance-keys.ts'
import { removeTree } from '../linux/files/removal.ts'
import { ensureDir } from '../linux/files.ts'
import { lockFileOfDead } from '../linux/lock.ts'
import { MaintenanceMode } from '../operator/maintenance/mode.ts'
import { RequestCounts } from '../operator/metrics/request-counts.ts'
import { type LedgerDb, openStore, type Store } from '../store/db.ts'
import { listOrganizations } from '../store/directory/organization.query.ts'
import { readClockMark, writeClockMark } from '../store/ledger/clock-mark.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import { type ChangeGate, openGate, trialGate } from '../upgrade/gate.ts'
import { buildPeers, composeBuilds, dismissBuildVms, serveBuilds } from './builds.ts'
import { composeCollateral } from './collateral.ts'
import { serveConsole } from './console/console.ts'
import { composeNames, serveDns } from './dns.ts'
import { composeEngine, type Engine } from './engine.ts'
import { composeFirewall } from './firewall.ts'
import { composeDirectory, type ServedDirectory } from './fleet/directory.ts'
import { composeFleetHost, openFleet } from './fleet/hosts.ts'
import { composePeers } from './fleet/peers.ts'
import { composeSharedBudgets } from './fleet/shared-budgets.ts'
import { composeShares } from './fleet/shares.ts'
import { composeMetering, placeGateway, placementOf } from './gateway.ts'
import { composeGatewayVmWorkloads } from './gateway-vm/workloads.ts'
import { composeGuestDns } from './guest-dns.ts'
import { composeInstances, serveInstances } from './instances.ts'
import { startListener } from './listening.ts'
import { composeTransparency } from './log/transparency.ts'
import { serveMetrics } from './monitoring/metrics-listener.ts'
import { serveOperator } from './operator.ts'
import { createSimulatedPlatform } from './simulated-platform.ts'
import { createStarter, ownStarter } from './starter/client.ts'
import { createTrust } from './trust.ts'

export type ServeOptions = {
  readonly stateDir: string
  readonly log: Logger
  /** Changes are accepted once the upgrade under way is (upgrade/gate.ts). */
  readonly onTrial: boolean
  /** Socket of the starter. Null if this process starts everything itself. */
  readonly starterSocket?: string | null
}

export type Serving = {
  /** Where clients reach service A. */
  readonly instancesUrl: string
  /** Service B; null when it is switched off. */
  readonly inferenceUrl: string | null
  /** Service C; null when it is switched off. */
  readonly buildsUrl: string | null
  /** The console; null when it is switched off. */
  readonly consoleUrl: string | null
  /** The metrics over HTTPS; null when they are switched off. */
  readonly metricsUrl: string | null
  readonly dnsPort: number | null
  readonly adminSocket: string
  /** The authority that clients must trust; null while the operator's own certificate is served. */
  readonly caFile: string | null
  /** Reads certificate files again, now. */
  readonly reload: () => Promise<void>
  /** Stops serving. VMs continue to run, and the next start takes them over. Idempotent. */
  readonly stop: () => Promise<void>
}

const lockTimeoutMs = 2_000

/**
 * Starts the appliance. Faults: conflict (the state directory is in use), store.*, host.unsupported,
 * host.listen_failed, config.invalid, config.file, image.invalid.
 */
export async function serve(
  config: Config,
  { stateDir, log, onTrial, starterSocket = null }: ServeOptions,
): Promise<Serving> {
  await using undo = new AsyncDisposableStack()
  const opened = await openBasis(config, { stateDir, log, onTrial, starterSocket }, undo)
  const { basis, fleet, tls, simulatedPlatform, transparency, onEvent } = opened
  const { gate, clock } = basis
  const { beforeLaunch } = transparency
  const engine = composeEngine({
    ...basis,
    beforeLaunch,
    simulatedPlatform,
    collateral: platform => composeCollateral({ config, stateDir, platform, clock, log }),
    gatewayVmImageDir: placementOf(config) === 'vm' ? config.inference.worker.image_dir : null,
  })
  await engine.openNetwork()
  const { platform, capacity, collateral } = engine
  undo.defer(() => collateral?.stop())
  const directory = undo.use(composeDirectory({ ...basis, fleet }))
  const { store, link } = directory
  const peers = undo.use(await composePeers({ ...basis, fleet, link }))
  const parts = openShared({ ...opened, engine, store, link, peers }, undo)

  const { service, pool, snapshots, background } = composeInstances(parts)
  undo.defer(() => background.stop())
  const member = undo.use(
    composeFleetHost({ ...parts, fleet, process: lockHolderId(lockPath(stateDir)), pool, onEvent }),
  )
  const instances = await startListener('instances', config.listen, () => serveInstances({ service, snapshots }, parts))
  undo.defer(() => instances.stop(true))
  const shares = composeShares({ ...parts, fleet })
  const gateway = await placeGateway({ ...parts, platform, capacity, shares })
  undo.defer(() => gateway.stop())
  link.onKeys(() => typeof gateway.vms === 'string' || void gateway.vms.pushControl())
  const builds = config.listen.builds === '' ? null : composeBuilds(parts)
  if (builds !== null) undo.defer(() => builds.stop())
  const builder =
    builds === null ? null : await startListener('builds', config.listen, () => serveBuilds(builds, parts))
  if (builder !== null) undo.defer(() => builder.stop(true))
  await peers.listen({ instances: instances.fetch, ...buildPeers(builds) })
  const dns = await startListener('dns', config.listen, () => serveDns(parts))
  if (dns !== null) undo.defer(() => dns.close())
  const console = await serveConsole({ ...parts, services: { instances, gateway, builds } })
  if (console !== null) undo.defer(() => console.stop())
  const metrics = await serveMetrics(parts)
  if (metrics !== null) undo.defer(() => metrics.stop())

  const listening = listeningAt(config, { instances, gateway, builder, dns, console, metrics })
  const { vms, traces, collectors, workerProblem } = gateway
  const operated = {
    service,
    pool,
    snapshots,
    builds,
    member,
    shares,
    listening,
    gateway: vms,
    traces,
    collectors,
    workerProblem,
    dns,
  }
  const admin = await serveOperator({ ...parts, ...operated, console })
  undo.defer(() => admin.stop())
  metrics?.attach(admin.metrics)

  collateral?.start()
  parts.startFirewall()
  background.watch()
  // The platform's keys take seconds to make, once; a failure is reported when the keys are first used.
  if (platform !== 'snp') simulatedPlatform().catch(() => {})
  const acme = { start: () => tls.startAcme({ showTexts: dns?.showTexts ?? null }) }
  // Last, so that no instance changes before the interfaces that report it are there.
  const builders = builds ?? { start: () => dismissBuildVms(parts) }
  // Without the directory it would refuse every key.
  const gatewayOnceThere = { start: () => link.whenThere(gateway.start) }
  const others = { start: () => peers.start(hosts => parts.names.othersAre(hosts)) }
  const first = [directory, parts.sharedBudgets, transparency, background]
  const work = [...first, builders, acme, gatewayOnceThere, admin, member, others]
  undo.defer(startWhenOpen(gate, work, log))
  const running = undo.move()
  return {
    ...urlsOf(listening),
    dnsPort: dns?.port ?? null,
    adminSocket: admin.path,
    caFile: tls.caFile,
    reload: () => tls.reload(),
    stop: () => running.disposeAsync(),
  }
}

function urlsOf({ instances, inference, builds, console, metrics }: ReturnType<typeof listeningAt>) {
  return {
    instancesUrl: instances,
    inferenceUrl: inference,
    buildsUrl: builds,
    consoleUrl: console,
    metricsUrl: metrics,
  }
}

type OpenedStores = Awaited<ReturnType<typeof openBasis>> &
  Pick<ServedDirectory, 'store' | 'link'> & {
    readonly engine: Engine
    readonly peers: Awaited<ReturnType<typeof composePeers>>
  }

/** The parts that several services need. Ended with `undo`. */
function openShared(opened: OpenedStores, undo: AsyncDisposableStack) {
  const { basis, simulatedPlatform, tls, transparency, onEvent, engine, store, link, peers, fleet } = opened
  const { config, log, clock, random, operatorKey } = basis
  const { platform } = engine
  const { publish, logRoutes } = transparency
  const metering = composeMetering(basis)
  undo.defer(() => metering.stop())
  const sharedBudgets = undo.use(composeSharedBudgets({ ...basis, fleet, link, metering }))
  const keys = createInstanceKeys({ store: store.directory, clock, log: log.unit('inference') })
  keys.revokeDeleted()
  const workloads = placementOf(config) === 'vm' ? composeGatewayVmWorkloads(basis) : null
  const names = composeNames({ config, store, engine, link, clock, log })
  undo.defer(() => names.stop())
  const trust = createTrust({ platform, simulatedPlatform, operatorKeys: operatorKey.owned })
  const firewall = composeFirewall({ config, network: engine.network, clock, random, log, onEvent })
  undo.defer(() => firewall.stop())
  const guestDns = undo.use(composeGuestDns({ config, engine, clock, log }))
  const strangers = undo.use(new AnonymousLogLimit({ clock, log: log.unit('http') }))
  const shared = { ...basis, store, link, peers, transparency, publish, logRoutes, engine, tls, strangers }
  const watched = {
    ...shared,
    requests: new RequestCounts(),
    firewall: firewall.watch,
    guestDns,
    simulatedPlatform,
    guestCaPem: tls.guestCaPem,
  }
  return { ...watched, metering, sharedBudgets, keys, workloads, names, trust, startFirewall: () => firewall.start() }
}

/** The parts that every other needs, and those that must be there before the first of them. Ended with `undo`. */
async function openBasis(
  config: Config,
  { stateDir, log, onTrial, starterSocket = null }: ServeOptions,
  undo: AsyncDisposableStack,
) {
  const clock = systemClock
  const random = systemRandom
  undo.use(await holdStateDir(stateDir, clock))
  const gate = onTrial ? trialGate(stateDir, clock) : openGate
  const store = openRecords(stateDir, log)
  undo.defer(() => store.close())
  const onEvent = (kind: string, detail: Record<string, unknown>) =>
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind, subject: '', detail })
  const fleet = undo.use(await openFleet({ config, clock, log }))
  // A damaged database may have had some.
  const hadNone = resultOr(() => listOrganizations(store.directory.db, { deleted: true }).length === 0, false)
  const isFresh = config.fleet.database === '' && hadNone
  const tls = await createTls({ config, stateDir, clock, random, log: log.unit('tls'), onEvent, isFresh })
  undo.defer(() => tls.stop())
  const operatorKey = await openOperatorKey(stateDir)
  const simulatedPlatform = createSimulatedPlatform({ stateDir, nowMs: clock.nowMs, random })
  const clockGuard = composeClockGuard(store.ledger.db, { clock, log, onEvent })
  const transparency = composeTransparency({ config, stateDir, store, operatorKey, clock, random, log, onEvent })
  undo.defer(() => transparency.stop())
  const starter = starterSocket === null ? ownStarter : createStarter(starterSocket)
  const maintenance = new MaintenanceMode(store, { clock, log })
  const basis = { gate, maintenance, config, stateDir, store, clock, clockGuard, random, log, operatorKey, starter }
  return { basis, fleet, tls, simulatedPlatform, transparency, onEvent }
}

type BoundListener = { readonly port: number }

/** Where each service listens; null for one that is switched off. */
function listeningAt(
  { listen }: Config,
  at: {
    readonly instances: BoundListener
    readonly gateway: { readonly url: string | null }
    readonly builder: BoundListener | null
    readonly dns: BoundListener | null
    readonly console: BoundListener | null
    readonly metrics: BoundListener | null
  },
) {
  const { instances, gateway, builder, dns, console, metrics } = at
  return {
    instances: localUrl(listen.instances, instances.port),
    inference: gateway.url,
    builds: builder === null ? null : localUrl(listen.builds, builder.port),
    dns: dns === null ? null : `${listenAddress(listen.dns).hostname}:${dns.port}`,
    console: console === null ? null : localUrl(listen.console, console.port),
    metrics: metrics === null ? null : localUrl(listen.metrics, metrics.port),
  }
}

const lockPath = (stateDir: string) => join(stateDir, 'lock')

/** Only the daemon reads keys, tokens and the database. Others may pass through, to images and the worker's files. */
function holdStateDir(stateDir: string, clock: Clock) {
  process.umask(0o077)
  ensureDir(stateDir, { mode: 0o711 })
  return lockFileOfDead(lockPath(stateDir), { timeoutMs: lockTimeoutMs, clock })
}

/** Everything that changes something without a request. Returns what stops the wait. */
function startWhenOpen(gate: ChangeGate, work: readonly { readonly start: () => void }[], log: Logger): () => void {
  const stopping = new AbortController()
  const startAll = () => {
    for (const { start } of work) start()
  }
  if (gate.isOpen()) startAll()
  else {
    log.info('on trial: no change is accepted until the upgrade is')
    void gate.whenOpen(startAll, stopping.signal)
  }
  return () => stopping.abort()
}

function composeClockGuard(
  db: LedgerDb,
  { log, ...deps }: Pick<ClockGuardDeps, 'clock' | 'onEvent'> & { log: Logger },
) {
  return new ClockGuard({
    ...deps,
    host: { bootId: hostBootId(), uptimeMs, isSynchronised: () => kernelClock()?.isSynchronised === true },
    readMark: () => readClockMark(db),
    writeMark: mark => writeClockMark(db, mark),
    log: log.unit('clock'),
  })
}

/** Opens the store. Faults: store.*. */
function openRecords(stateDir: string, log: Logger): Store {
  const store = openStore(join(stateDir, databaseFile), { leftovers: leftoversOfRecords(stateDir) })
  // With its records the appliance is whole: a restore was killed right before it removed this.
  removeTree(join(stateDir, restoringDir))
  if (store.unchecked.length > 0)
    log.warn('the database was not checked whole for damage, there was no time', { tables: store.unchecked })
  return store
}
