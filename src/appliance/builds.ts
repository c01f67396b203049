// Puts service C and its HTTPS listener together from configuration. Effects: reads files; the rest begins with
// `start`.

import { messageOf } from '../base/fault.ts'
import type { Runtime } from '../base/runtime.ts'
import { dayMs, minuteMs } from '../base/time.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { type Builds, type BuildsDeps, createBuilds } from '../builds/builds.ts'
import { readAuthorities } from '../builds/fetch/authorities.ts'
import { FetchProxy } from '../builds/fetch/proxy.ts'
import type { BuildPeers } from '../builds/fleet.ts'
import { buildsOpenapiDocument } from '../builds/http/openapi.ts'
import type { BuildRoutesDeps } from '../builds/http/routes.ts'
import type { BuildsSettings } from '../builds/types.ts'
import { parseFetchHost } from '../config/fetch-hosts.ts'
import { type HostName, listenAddress } from '../config/listen.ts'
import type { Config, Platform } from '../config/schema.ts'
import type { BuildOrder } from '../contract/vm/build-order.ts'
import type { PeerServerDeps } from '../fleet/peers/peer-server.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import type { AnonymousLogLimit } from '../http/anonymous-log-limit.ts'
import type { EdgeRoute } from '../http/edge.ts'
import { LimitedFault } from '../http/limited.ts'
import { createPublicLimiter } from '../http/public-rate.ts'
import { createRequestRate } from '../http/rate.ts'
import { type FetchHandler, pauseSecondsMax, type ServedTls, serveTls, type TlsServer } from '../http/serve.ts'
import { createAuthenticate } from '../instances/http/auth.ts'
import type { MaintenanceMode } from '../operator/maintenance/mode.ts'
import type { RequestCounts } from '../operator/metrics/request-counts.ts'
import type { Store } from '../store/db.ts'
import { launchOf } from '../store/ledger/launch.query.ts'
import type { LogPeer } from '../transparency/routes.ts'
import type { ChangeGate } from '../upgrade/gate.ts'
import type { BuildEngine } from '../vm/build-engine.ts'
import { admissionFor } from '../vm/capacity.query.ts'
import type { HostTrust } from '../vm/evidence/launch-policy.plan.ts'
import { launchDocumentOf } from '../vm/evidence/report.driver.ts'
import { unnamedVms } from '../vm/held/unnamed.query.ts'
import { builderImage, loadBuilderImage } from '../vm/launch/image.driver.ts'
import { imageDigest } from '../vm/launch/image-digest.driver.ts'
import { vmPaths } from '../vm/launch.plan.ts'
import type { Engine } from './engine.ts'
import type { DirectoryLink } from './fleet/directory.ts'
import type { FleetPeers } from './fleet/peers.ts'
import type { Publish } from './log/transparency.ts'
import { operatorKeyWords } from './pool.ts'

export type BuildsParts = Runtime & {
  readonly gate: Pick<ChangeGate, 'admitChange'>
  readonly maintenance: Pick<MaintenanceMode, 'admitNew' | 'noticed'>
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly engine: Engine
  readonly operatorKey: Pick<OperatorKey, 'digest'>
  readonly trust: () => Promise<HostTrust>
  readonly clockGuard: ClockGuard
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  readonly publish: Publish
  readonly logRoutes: readonly EdgeRoute<LogPeer>[]
  readonly link: Pick<DirectoryLink, 'onBuilds'>
  readonly peers: Pick<FleetPeers, 'forward' | 'view'>
}

const mib = 1_048_576
const gib = 1024 * mib
/** Everything of a build request but its source. */
const documentBytesMax = 65_536
/** How long a source may take to come at its least rate. */
const slowMs = 10_000

/** Composes service C. Faults: config.file (the authorities to fetch with), internal. */
export function composeBuilds(parts: BuildsParts): Builds {
  const { config, stateDir, store, engine, clock, random } = parts
  const { builds, network } = config
  const log = parts.log.unit('builds')
  const settings = settingsOf(config)
  const gate = new FetchProxy({
    hostname: network.gateway_v4,
    port: builds.fetch_port,
    hosts: builds.fetch_hosts.flatMap(text => parseFetchHost(text) ?? []),
    ownNetworks: [network.pool_v4, network.gateway_v4],
    log,
  })
  const limits = {
    sourceBytesMax: builds.archive_mib * mib,
    documentBytesMax,
    timeoutMs: builds.body_timeout_s * 1000,
    slowMs,
    depthMax: config.http.json_depth_max,
  }
  const spec = {
    image: builderImage,
    vcpus: builds.vcpus,
    memoryMib: builds.memory_mib,
    scratchGib: builds.scratch_gib,
    exchangeGib: builds.exchange_gib,
    network: 'fetch',
  } as const
  const all = createBuilds({
    directory: `${stateDir}/builds`,
    ...{ store, clock, random, log },
    peers: buildPeersOf(parts.peers),
    guard: parts.clockGuard,
    settings,
    gate,
    admitNew: () => parts.maintenance.admitNew('builds'),
    engine: buildEngine(parts),
    trust: parts.trust,
    ...intoLog(parts),
    ownUrl: ownUrl(config),
    imageDirectory: builds.image_dir,
    imageSummaries: () => engine.images.ofImage(builderImage),
    vm: {
      spec,
      shape: buildVmShape(config, engine.platform, parts.operatorKey.digest),
      warm: builds.warm,
      imageDigest: () => {
        const digest = imageDigest(builds.image_dir)
        // A warm VM of an image that would not be launched now is as little of use.
        if (!engine.images.hasPassed(digest)) loadBuilderImage(builds.image_dir)
        return digest
      },
      room: () =>
        admissionFor(
          store.ledger.db,
          { ...spec, diskGib: builds.scratch_gib + builds.exchange_gib },
          {
            hostId: store.hostId,
            diskGibMax: engine.diskGibMax,
            capacity: engine.capacity,
            addressRestMs: network.address_rest_s * 1000,
            nowMs: parts.clockGuard.certainMs(),
          },
        ),
    },
    http: {
      ...callers(parts),
      admitChange: parts.gate.admitChange,
      strangers: parts.strangers,
      baseUrl: builds.base_url,
      limits,
      openapi: JSON.stringify(buildsOpenapiDocument()),
    },
  })
  parts.link.onBuilds(all.changed)
  return {
    ...all,
    start: () => {
      // Hashing a new image takes seconds; done now, the first build need not wait. A launch meets and reports the
      // same failure.
      engine.images
        .verifyBuilder(builds.image_dir)
        .catch(error => log.error('the image of build VMs is not used', { reason: messageOf(error) }))
      all.start()
    },
    stop: async () => {
      await all.stop()
      gate.stop()
    },
  }
}

function buildPeersOf(peers: Pick<FleetPeers, 'forward' | 'view'>): BuildPeers {
  return {
    others: () => peers.view().flatMap(({ hostId, isReached }) => (isReached ? [hostId] : [])),
    forward: (hostId, request, by) => peers.forward(hostId, request, { service: 'builds', ...by }),
    ask: (hostId, path, signal) => {
      const request = new Request(`https://strongroom.internal${path}`, { signal })
      return peers.forward(hostId, request, { service: 'handover', clientAddress: '', principal: null })
    },
  }
}

/** Answers of this service to other hosts of the fleet; `builds` null: it is off. */
export function buildPeers(builds: Builds | null): Pick<PeerServerDeps['services'], 'builds' | 'handover'> {
  if (builds === null) return { builds: null, handover: null }
  return {
    builds: (request, { address, mayPause, principal }) =>
      builds.fetch(request, { address, mayPause, principal, isForwarded: true }),
    handover: (request, { from, mayPause }) => {
      mayPause()
      return builds.answerHost(request, from)
    },
  }
}

/** A result is fetched only after its receipt is in the transparency log, which this service serves, too. */
function intoLog({ publish, logRoutes }: BuildsParts): Pick<BuildsDeps, 'beforeResult' | 'others'> {
  return {
    beforeResult: ({ measurement, dispatch, provenance }) =>
      publish({ kind: 'build', measurement, keys: dispatch.keys, provenance: provenance ?? '' }),
    others: logRoutes,
  }
}

/** Settings that a build VM keeps from its launch, without its image. A warm VM of another shape is not used. */
export function buildVmShape(
  { builds, vm }: Pick<Config, 'builds' | 'vm'>,
  platform: Platform,
  operatorKey: Uint8Array,
): string {
  const disks = [`${builds.scratch_gib} GiB`, `${builds.exchange_gib} GiB exchange`]
  const size = [`${builds.vcpus} vCPUs`, `${builds.memory_mib} MiB`, ...disks]
  return [platform, vm.vcpu_type, vm.snp_boot, ...size, operatorKeyWords(operatorKey)].join(', ')
}

function buildEngine({ engine, stateDir, store }: Pick<BuildsParts, 'engine' | 'stateDir' | 'store'>): BuildEngine {
  const { reconciler, images } = engine
  const { builds } = reconciler
  return {
    define: (vmId, spec) => reconciler.define(vmId, spec),
    dismiss: vmId => reconciler.dismiss(vmId),
    view: vmId => reconciler.view(vmId),
    onChange: listener => reconciler.onChange(listener),
    open: vmId => reconciler.open(vmId),
    close: vmId => reconciler.close(vmId),
    exchange: vmId => vmPaths(stateDir, vmId).exchange,
    imageSummary: vmId => {
      const launch = launchOf(store.ledger.db, vmId)
      return launch === null ? null : (images.ofLaunch(launchDocumentOf(launch))?.sha256 ?? null)
    },
    order: (vmId, order, timeoutMs) => builds.order(vmId, order, timeoutMs),
    progress: (vmId, from, timeoutMs) => builds.progress(vmId, from, timeoutMs),
    vouch: (vmId, wanted, accept, timeoutMs) => builds.vouch(vmId, wanted, accept, timeoutMs),
    cancel: (vmId, timeoutMs) => builds.cancel(vmId, timeoutMs),
  }
}

/** Where the service is switched off: VMs of builds that an earlier daemon began have no use. */
export function dismissBuildVms({ store, engine, log }: Pick<BuildsParts, 'store' | 'engine' | 'log'>): void {
  for (const vm of unnamedVms(store.ledger.db, { hostId: store.hostId, image: builderImage, named: new Set() })) {
    log.unit('builds').warn('a build VM is dismissed: listen.builds is off', { vm: vm.id })
    engine.reconciler.dismiss(vm.id)
  }
}

/** Callers need a key of service A; with auth = "open" anyone may call, counted by address. */
function callers({
  config,
  store,
  clock,
  log,
}: BuildsParts): Pick<BuildRoutesDeps, 'caller' | 'count' | 'admitPublic'> {
  const authenticate = createAuthenticate({ directory: store.directory, clock, log: log.unit('auth') })
  const { auth, requests_per_minute: requestsPerMinute } = config.builds
  const byKey = createRequestRate({ clock, requestsPerMinute })
  const byAddress = createPublicLimiter({ clock, requestsPerMinute })
  const admitPublic = (address: string) => {
    const refusal = byAddress.admitPublic(address)
    if (refusal !== null) throw new LimitedFault(refusal.message, refusal.retryAfterSeconds * 1000)
  }
  return {
    admitPublic,
    count: ({ keyPrefix }, address) => {
      if (keyPrefix === null) admitPublic(address())
      else byKey.take(keyPrefix)
    },
    caller: (headers, need, passed) => {
      const hasNoKey = passed === undefined ? headers.get('authorization') === null : passed === null
      if (auth === 'open' && hasNoKey) return { organizationId: null, slug: null, keyPrefix: null }
      const { organization, keyPrefix } = authenticate(headers, need, passed)
      return { organizationId: organization.id, slug: organization.slug, keyPrefix }
    },
  }
}

/** Returns the settings of service C. Throws Fault config.file. */
function settingsOf(config: Config): BuildsSettings {
  const { builds, domain } = config
  return {
    concurrentMax: builds.concurrent_max,
    queueMax: builds.queue_max,
    perOrganizationMax: builds.per_organization_max,
    perDayMax: builds.per_day_max,
    uploadsMax: builds.uploads_max,
    instanceMemoryMib: config.vm.memory_mib,
    buildMemoryMib: builds.memory_mib,
    reservedMs: builds.reserved_minutes * minuteMs,
    retentionMs: builds.retention_days * dayMs,
    resultBytesMax: builds.results_gib_max * gib,
    exchangeBytes: builds.exchange_gib * gib,
    eventBytesMax: builds.log_mib * mib,
    fetchHosts: builds.fetch_hosts,
    rustMirror: builds.rust_mirror === '' ? null : builds.rust_mirror,
    builderId: builds.base_url || `https://${hostLabel}.${domain}`,
    fetch: fetchOf(config),
    limits: {
      sourceBytes: builds.source_mib * mib,
      sourceEntries: builds.source_entries,
      fetchSeconds: builds.fetch_seconds,
      fetchBytes: builds.fetch_mib * mib,
      buildSeconds: builds.build_seconds,
      memoryBytes: (builds.build_memory_mib || Math.floor((builds.memory_mib * 3) / 4)) * mib,
      pids: builds.build_pids,
      diskBytes: builds.build_disk_gib * gib || Math.floor((builds.scratch_gib * 3 * gib) / 4),
      logBytes: builds.log_mib * mib,
      artifactBytes: builds.artifact_mib * mib,
      artifactCount: builds.artifact_count,
    },
  }
}

/** By the name that this host has in its own DNS (config/listen.ts). */
function ownUrl({ domain, listen }: Config): string {
  const { port } = listenAddress(listen.builds)
  return `https://${hostLabel}.${domain}${port === 443 ? '' : `:${port}`}`
}

const hostLabel = 'builds' satisfies HostName

/** Returns the fetch settings of an order. Throws Fault config.file. */
function fetchOf({ builds, network }: Config): BuildOrder['fetch'] {
  if (builds.fetch_hosts.length === 0) return null
  return {
    proxy: `http://${network.gateway_v4}:${builds.fetch_port}`,
    cratesMirror: builds.crates_mirror === '' ? null : builds.crates_mirror,
    ca: builds.fetch_ca_file === '' ? null : readAuthorities(builds.fetch_ca_file),
  }
}

/** Service C over HTTPS. Fault host.unsupported: the address cannot be listened on. */
export function serveBuilds(
  { fetch }: Builds,
  {
    config,
    tls,
    log,
    maintenance,
    requests,
  }: Pick<BuildsParts, 'config' | 'log' | 'maintenance'> & {
    readonly tls: ServedTls
    readonly requests: RequestCounts
  },
): TlsServer {
  const counted = requests.counted('builds', maintenance.noticed(fetch))
  const handler: FetchHandler = (request, socket) =>
    counted(request, {
      address: () => socket.requestIP(request)?.address ?? '',
      mayPause: () => socket.timeout(request, pauseSecondsMax),
    })
  return serveTls(handler, {
    ...listenAddress(config.listen.builds),
    tls,
    idleTimeoutSeconds: config.http.idle_timeout_s,
    // The service itself limits the body while it arrives, so that the refusal is in its own words.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: log.unit('builds'),
  })
}
