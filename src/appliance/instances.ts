// Puts service A together: its decisions, its reconciler, its HTTPS listener, and what goes on without a request. Effects: all of theirs.

import type { Clock } from '../base/clock.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { listenAddress } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { probeSsh } from '../host/network/ssh-probe.ts'
import type { Tls } from '../http/certificate.ts'
import { serveTls, type TlsServer } from '../http/serve.ts'
import type { InstanceKeys } from '../inference/keys/instance-keys.ts'
import type { Metering } from '../inference/metering/ledger.ts'
import { runEgressSampler } from '../instances/egress.ts'
import { createAuthenticate } from '../instances/http/auth.ts'
import { openapiDocument } from '../instances/http/openapi.ts'
import { instanceRoutes } from '../instances/http/routes.ts'
import { createHttp } from '../instances/http/server.ts'
import { createInstanceReconciler } from '../instances/reconciler.ts'
import { createJanitor } from '../instances/retention.ts'
import { createInstancesService, type InstancesService } from '../instances/service.ts'
import type { Store } from '../store/db.ts'
import { purgeGoneVms } from '../store/ledger/vm.query.ts'
import { type Engine, inferenceBaseUrl } from './engine.ts'

export type InstancesParts = {
  readonly config: Config
  readonly store: Store
  readonly engine: Engine
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly metering: Metering
  readonly keys: InstanceKeys
  /** What guests must trust to reach the gateway; null with the operator's own certificate. */
  readonly gatewayCa: string | null
}

/** The interface of service A over HTTPS. Fault host.unsupported when the address cannot be had. */
export function serveInstances(service: InstancesService, parts: InstancesParts & { readonly tls: Tls }): TlsServer {
  const { config, store, clock, random, log, tls } = parts
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
  return serveTls(request => http.fetch(request), {
    ...listenAddress(config.listen.instances),
    tls,
    idleTimeoutSeconds: config.http.idle_timeout_s,
    // The limit is ours, read as the body comes, so that the refusal is ours too.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: log.unit('http'),
  })
}

export type Background = { readonly start: () => void; readonly stop: () => Promise<void> }

export function composeInstances(parts: InstancesParts): { service: InstancesService; background: Background } {
  const { config, store, engine, clock, random, log } = parts
  const reconciler = createInstanceReconciler({
    store,
    engine: engine.reconciler,
    probe: probeSsh,
    clock,
    random,
    log: log.unit('instances'),
    inferenceBaseUrl: inferenceBaseUrl(config),
    inferenceCa: parts.gatewayCa,
    // Without the gateway of ours there is no key of ours to give.
    inferenceKey: id => (config.listen.inference === '' ? null : parts.keys.instanceKey(id)),
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
    onDeleted: instance => {
      parts.keys.revokeDeleted()
      reconciler.wake(instance.id)
    },
    inferenceCostMicroUsd: (organizationId, period) => parts.metering.inferenceCostMicroUsd(organizationId, period),
  })
  return { service, background: backgroundWork(parts, reconciler) }
}

const purgeIntervalMs = 60_000
const purgeAgeMs = 60_000
const purgeRowsMax = 500

/** Everything that goes on without a request. */
function backgroundWork({ config, store, engine, clock, log }: InstancesParts, reconciler: Background): Background {
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
