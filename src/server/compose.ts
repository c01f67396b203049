// The only place that constructs things: one appliance from its configuration. Effects: all of them.

import { type Clock, systemClock } from '../base/clock.ts'
import { type RandomBytes, systemRandom } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { adminSocketName } from '../contract/admin.ts'
import type { Config } from '../contract/config.ts'
import { ensureDir, lockFile } from '../host/files.ts'
import { probeSsh } from '../host/ssh-probe.ts'
import { createAddressResolver, startDns } from '../services/instances/dns.service.ts'
import { runEgressSampler } from '../services/instances/egress.service.ts'
import { createJanitor } from '../services/instances/janitor.ts'
import { createInstanceReconciler } from '../services/instances/reconciler.ts'
import { instanceRoutes } from '../services/instances/routes.ts'
import { createInstancesService, type InstancesService } from '../services/instances/service.ts'
import { openStore, type Store } from '../store/db.ts'
import { appendEvent } from '../store/event.query.ts'
import { purgeGoneVms } from '../store/vm.query.ts'
import { vmPaths } from '../vm/launch.plan.ts'
import { findLeaks } from '../vm/leaks.driver.ts'
import { createAdmin } from './admin.ts'
import { listenAdmin } from './admin-socket.ts'
import { createAuthenticate, mintKey } from './auth.ts'
import { parseListen } from './config.verify.ts'
import { composeEngine, type Engine, inferenceBaseUrl } from './engine.ts'
import { createHttp } from './http.ts'
import { openapiDocument } from './openapi.ts'
import { createStatus } from './status.ts'
import { createTls } from './tls.ts'
import { serveTls } from './tls-serve.ts'

export type ServeOptions = { readonly stateDir: string; readonly log: Logger }

export type Serving = {
  /** Where clients reach the appliance. */
  readonly instancesUrl: string
  readonly dnsPort: number | null
  readonly adminSocket: string
  /** The authority that clients must trust; null with the operator's own certificate. */
  readonly caFile: string | null
  /** Reads certificate files again, now. */
  readonly reload: () => Promise<void>
  /** Stops serving; VMs run on and are taken up by the next start. Idempotent. */
  readonly stop: () => Promise<void>
}

const purgeIntervalMs = 60_000
const purgeAgeMs = 60_000
const purgeRowsMax = 500

/** Starts the appliance. Faults: conflict (the state directory is in use), store.*, host.unsupported, config.invalid, image.invalid. */
export async function serve(config: Config, { stateDir, log }: ServeOptions): Promise<Serving> {
  const clock = systemClock
  const random = systemRandom
  await using undo = new AsyncDisposableStack()
  // Keys, tokens and the database are nobody else's; only the way through to the VMs' own directories is.
  process.umask(0o077)
  ensureDir(stateDir, { mode: 0o711 })
  undo.use(lockFile(`${stateDir}/lock`))
  const store = openStore(`${stateDir}/strongroom.db`)
  undo.defer(() => store.close())
  const onEvent = (kind: string, detail: Record<string, unknown>) =>
    appendEvent(store.db, { nowMs: clock.nowMs(), kind, subject: '', detail })
  const tls = await createTls({ config, stateDir, clock, random, log: log.unit('tls'), onEvent })
  undo.defer(() => tls.stop())
  const engine = composeEngine({ config, stateDir, store, clock, random, log })
  const { service, background } = composeInstances({ config, store, engine, clock, random, log })
  undo.defer(() => background.stop())

  const http = createHttp({
    log: log.unit('http'),
    clock,
    random,
    limits: {
      bodyBytesMax: config.http.body_bytes_max,
      bodyTimeoutMs: config.http.body_timeout_ms,
      jsonDepthMax: config.http.json_depth_max,
    },
    authenticate: createAuthenticate({ db: store.db, clock, log: log.unit('auth') }),
    routes: instanceRoutes(service),
    openapi: openapiDocument(),
  })
  const listen = listenAddress(config.listen.instances)
  const server = serveTls(request => http.fetch(request), {
    ...listen,
    tls,
    idleTimeoutSeconds: config.http.idle_timeout_s,
    // The limit is ours, read as the body comes, so that the refusal is ours too.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: log.unit('http'),
  })
  undo.defer(() => server.stop(true))
  const dns = await composeDns({ config, store, engine, clock, log })
  if (dns !== null) undo.defer(() => dns.close())

  const instancesUrl = `https://${urlHost(listen.hostname)}:${server.port}`
  const status = createStatus({
    config,
    store,
    engine,
    tls,
    clock,
    instancesUrl,
    dnsAddress: dns === null ? null : `${listenAddress(config.listen.dns).hostname}:${dns.port}`,
  })
  const admin = await listenAdmin(
    `${stateDir}/${adminSocketName}`,
    createAdmin({
      store,
      clock,
      random,
      log: log.unit('admin'),
      mintKey,
      deleteInstance: (instance, organization) => {
        service.remove({ organization, keyPrefix: 'admin', scope: 'write' }, instance.name)
      },
      vm: engine.reconciler.view,
      status,
      leaks: () => findLeaks({ db: store.db, nft: engine.nft, stateDir, tapPrefix: config.network.tap_prefix }),
      consoleDir: vmId => vmPaths(stateDir, vmId).directory,
    }),
  )
  undo.defer(() => admin.stop())

  // Only now: nobody sees an instance move before the interface that reports it is there.
  background.start()
  const running = undo.move()
  return {
    instancesUrl,
    dnsPort: dns?.port ?? null,
    adminSocket: admin.path,
    caFile: tls.caFile,
    reload: tls.reload,
    stop: () => running.disposeAsync(),
  }
}

type Parts = {
  readonly config: Config
  readonly store: Store
  readonly engine: Engine
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

type Background = { readonly start: () => void; readonly stop: () => Promise<void> }

function composeInstances(parts: Parts): { service: InstancesService; background: Background } {
  const { config, store, engine, clock, random, log } = parts
  const reconciler = createInstanceReconciler({
    store,
    engine: engine.reconciler,
    probe: probeSsh,
    clock,
    random,
    log: log.unit('instances'),
    inferenceBaseUrl: inferenceBaseUrl(config),
    claimTimeoutMs: config.vm.claim_timeout_ms,
    sshTimeoutMs: config.vm.ssh_timeout_ms,
  })
  const service = createInstancesService({
    store,
    engine: engine.reconciler,
    clock,
    random,
    log: log.unit('instances'),
    settings: {
      domain: config.domain,
      vm: { image: 'instance', vcpus: config.vm.vcpus, memoryMib: config.vm.memory_mib },
      inferenceModels: config.instances.inference_models,
      instancesPerOrganizationMax: config.capacity.instances_per_organization_max,
      subscriptionCostUsd: config.billing.subscription_cost_usd,
      instanceHoursIncluded: config.billing.instance_hours_included,
      overagePerHourUsd: config.billing.overage_per_hour_usd,
    },
    onCreated: instance => reconciler.wake(instance.id),
    onDeleted: instance => reconciler.wake(instance.id),
    inferenceCostMicroUsd: () => 0n,
  })
  return { service, background: backgroundWork(parts, reconciler) }
}

/** Everything that goes on without a request. */
function backgroundWork({ config, store, engine, clock, log }: Parts, reconciler: Background): Background {
  const stopping = new AbortController()
  const janitor = createJanitor({
    store,
    clock,
    log: log.unit('janitor'),
    retentionDays: config.instances.retention_days,
  })
  const sampling = {
    store,
    clock,
    log: log.unit('egress'),
    intervalMs: config.network.sample_interval_ms,
    sample: engine.network.sample,
  }
  const purge = async () => {
    while (!stopping.signal.aborted) {
      purgeGoneVms(store.db, { changedBeforeMs: clock.nowMs() - purgeAgeMs, limit: purgeRowsMax })
      await clock.sleep(purgeIntervalMs, stopping.signal).catch(() => {})
    }
  }
  let loops: Promise<unknown> = Promise.resolve()
  return {
    start: () => {
      // The reboot of a host has taken the table along; the ledger brings it back before the first VM is looked at.
      engine.network.sync().catch(error => log.error('the firewall could not be applied', { error }))
      reconciler.start()
      engine.reconciler.start()
      loops = Promise.all([janitor.run(stopping.signal), runEgressSampler(sampling, stopping.signal), purge()])
    },
    stop: async () => {
      stopping.abort()
      await Promise.all([reconciler.stop(), engine.reconciler.stop(), loops])
    },
  }
}

async function composeDns({ config, store, engine, clock, log }: Omit<Parts, 'random'>) {
  if (config.listen.dns === '') return null
  const { hostname, port } = listenAddress(config.listen.dns)
  return startDns({
    address: hostname,
    port,
    domain: config.domain,
    hostAddress: hostname === '0.0.0.0' || hostname.includes(':') ? null : hostname,
    resolve: createAddressResolver({ db: store.db, engine: engine.reconciler }),
    nowMs: clock.nowMs,
    log: log.unit('dns'),
  })
}

/** A host that a URL on this machine can name. */
function urlHost(hostname: string): string {
  if (hostname === '0.0.0.0' || hostname === '::') return '127.0.0.1'
  return hostname.includes(':') ? `[${hostname}]` : hostname
}

function listenAddress(text: string): { hostname: string; port: number } {
  const parsed = parseListen(text)
  // The schema and its cross-checks have passed this text already.
  if (parsed === null) throw new Error(`invariant broken: unchecked listen address ${text}`)
  return parsed
}
