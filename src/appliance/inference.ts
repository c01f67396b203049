// Puts the inference gateway together as a process of this host. Effects: reads files; the rest begins with `start`.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { toHex } from '../base/bytes.ts'
import { canonicalJson } from '../base/canonical-json.ts'
import type { Logger } from '../base/log.ts'
import type { Collector } from '../base/prometheus.ts'
import type { Runtime } from '../base/runtime.ts'
import { minuteMs } from '../base/time.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { hasWorker } from '../config/checks/worker.ts'
import { listenAddress } from '../config/listen.ts'
import type { Config, Platform } from '../config/schema.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import { keptReceiptsDefault, keptResponsesDefault } from '../contract/vm/kept-defaults.ts'
import type { GatewaySettings } from '../contract/vm/workload.ts'
import { directoryAway, maybeKeyMessage } from '../fleet/failures.ts'
import { findModelOf, loadModel } from '../host/models/models.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import { lookupUser } from '../host/system.ts'
import type { ServedTls } from '../http/serve.ts'
import { readAllowlist } from '../inference/attestation/allowlist-file.ts'
import { type EvidenceOrigin, noEvidenceOnHost } from '../inference/attestation/attester.ts'
import { type GatewayConfiguration, gatewayConfiguration } from '../inference/attestation/configuration.ts'
import { drawReceiptKeys } from '../inference/attestation/receipt-keys.ts'
import { createWorkloads, sha256File, type Workloads } from '../inference/attestation/workloads.ts'
import { keyDefaults } from '../inference/keys/authenticate.ts'
import { createGatewayAuthenticate } from '../inference/keys/stored-keys.ts'
import type { Metering } from '../inference/metering/ledger.ts'
import { runLedgerRetention } from '../inference/metering/retention.ts'
import { createClusterMetrics } from '../inference/metrics/cluster.ts'
import type { GatewayServer } from '../inference/relay/serve.ts'
import { createInferenceService, type InferenceService, workerTarget } from '../inference/service.ts'
import type { TraceExporter } from '../inference/traces/exporter.ts'
import { loadUpstream } from '../inference/upstream/load-target.ts'
import { createWorkerRoot } from '../inference/worker/root.ts'
import { BuiltInWorker, type KnownModel, workerTiming } from '../inference/worker/worker.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { spkiDigestOf } from '../linux/keys/spki.ts'
import { isUnderSystemd } from '../linux/process/scope.ts'
import { removeForeignTree } from '../linux/tree.ts'
import type { Store } from '../store/db.ts'
import { nonceStore } from '../store/ledger/nonce.query.ts'
import type { ChangeGate } from '../upgrade/gate.ts'
import type { Capacity } from '../vm/admission.plan.ts'
import type { DirectoryLink } from './fleet/directory.ts'
import type { FleetShares } from './fleet/shares.ts'
import type { Publish } from './log/transparency.ts'
import type { Starter } from './starter/client.ts'
import { composeTraces } from './traces.ts'

export type InferenceParts = Runtime & {
  readonly gate: Pick<ChangeGate, 'admitChange'>
  readonly starter: Pick<Starter, 'startSandboxed' | 'startSchemaProcess'>
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly tls: ServedTls
  readonly platform: Platform
  readonly simulatedPlatform: () => Promise<SimulatedHost>
  readonly capacity: Capacity
  readonly metering: Metering
  readonly clockGuard: ClockGuard
  readonly publish: Publish
  /** Null, or left out: this host is in no fleet. */
  readonly shares?: FleetShares | null
  /** Undefined if this host is in no fleet. */
  readonly link?: Pick<DirectoryLink, 'isReached'>
}

export type Inference = {
  readonly fetch: InferenceService['fetch']
  readonly listen: InferenceService['listen']
  readonly collectors: readonly Collector[]
  readonly traces: TraceExporter | null
  /** Why the built-in worker does not serve; null if it does, or there is none. */
  readonly workerProblem: () => string | null
  readonly start: () => void
  readonly stop: () => Promise<void>
}

const unpackTimeoutMs = 60_000

/**
 * Composes service B. Faults: config.file (key, certificate, allowlist, files of traces), host.unsupported. If the
 * worker cannot run, requests for its model get 502.
 */
export async function composeInference(deps: InferenceParts): Promise<Inference> {
  const { config, store, clock, random, metering, shares = null } = deps
  const settings = gatewaySettings(config)
  const log = deps.log.unit('inference')
  const workloads = await composeWorkloads(deps, log)
  const worker = composeWorker(deps, workloads, { log, onReady: name => service.probeNow(name) })
  const configured = config.inference.upstreams.map(loadUpstream)
  const traces = composeTraces({ config, upstreams: configured, clock, random, log })
  const configuration = writeConfiguration(deps, gatewayConfiguration(config, configured))
  const authenticate = createGatewayAuthenticate({
    db: store.directory.db,
    clock,
    log,
    defaults: keyDefaults(settings),
    others: metering.changes,
    // Another host may have made the key, and clients take a 401 as final.
    admitUnknown: () => {
      if (deps.link?.isReached() === false) throw directoryAway(new Error('the key is not here'), maybeKeyMessage)
    },
  })
  const service = createInferenceService({
    settings,
    upstreams: [...configured, ...(worker === null ? [] : [workerTarget(worker.upstream, workerBounds(config))])],
    inside: new Set(worker === null ? [] : [worker.upstream.name]),
    // Each request with a key may become a row of usage, and each fresh attestation a used nonce.
    authenticate: headers => {
      deps.gate.admitChange()
      store.directory.admit()
      const caller = authenticate(headers)
      metering.checkRoom()
      return caller
    },
    startSchemaProcess: deps.starter.startSchemaProcess,
    offerSpan: span => traces?.offer(span),
    metering: { record: record => metering.record(record), counts: () => metering.counts() },
    spent: metering,
    cost: () => metering.cost,
    ...(shares === null ? {} : { shares: shares.ofProcess() }),
    nonces: nonceStore(store.ledger),
    mayDelete: () => deps.clockGuard.mayDelete(),
    workloads: loggedFirst(workloads, deps.publish),
    keys: drawReceiptKeys(random),
    tlsSpkiDigest: () => spkiDigestOf(deps.tls.current().cert),
    configurationDigest: configuration.digest,
    workload: null,
    // The simulator's keys take seconds to make, once; until then there is no evidence.
    openEvidence: () => {
      deps.gate.admitChange()
      return evidenceOrigin(deps, workloads)
    },
    clock,
    random,
    log,
  })
  const stopping = new AbortController()
  let retention: Promise<void> = Promise.resolve()
  return {
    fetch: service.fetch,
    listen: service.listen,
    collectors: [
      service.metrics,
      createClusterMetrics({ store, capacity: deps.capacity }),
      ...(traces === null ? [] : [traces.collector()]),
    ],
    traces,
    workerProblem: () => (worker === null ? null : workerProblemOf(worker.state)),
    start: () => {
      traces?.start()
      worker?.start()
      service.start()
      retention = runLedgerRetention(
        {
          store: store.directory,
          clock,
          guard: deps.clockGuard,
          log,
          retentionDays: config.inference.usage_retention_days,
        },
        stopping.signal,
      )
    },
    stop: async () => {
      stopping.abort()
      service.close()
      await Promise.all([worker?.stop(), retention, traces?.stop(), shares?.end()])
    },
  }
}

function workerProblemOf(state: BuiltInWorker['state']): string | null {
  if (state.kind === 'ready') return null
  return 'message' in state ? `the worker: ${state.message}` : `the worker is ${state.kind}`
}

/** The gateway over HTTPS. Fault host.unsupported: the address cannot be listened on. */
export function serveInference(
  { listen }: Pick<Inference, 'listen'>,
  { config, tls }: Pick<InferenceParts, 'config' | 'tls'>,
): Promise<GatewayServer> {
  return listen({ listen: listenAddress(config.listen.inference), tls, guestName: guestGatewayName })
}

/** How the gateway serves its clients, wherever it is placed. */
export function gatewaySettings({ inference, http }: Pick<Config, 'inference' | 'http'>): GatewaySettings {
  return {
    ownedBy: inference.owned_by,
    refusesUnknownFields: inference.unknown_fields === 'refuse',
    padStreams: inference.pad_streams,
    bodyBytesMax: inference.body_bytes_max,
    bodyTimeoutMs: inference.body_timeout_ms,
    connectTimeoutMs: inference.connect_timeout_ms,
    firstByteTimeoutMs: inference.first_byte_timeout_ms,
    idleTimeoutMs: inference.idle_timeout_ms,
    stallTimeoutMs: inference.client_stall_timeout_ms,
    eventBytesMax: inference.event_bytes_max,
    responseBytesMax: inference.answer_bytes_max,
    queueMax: inference.queue_max,
    queueTimeoutMs: inference.queue_timeout_ms,
    ejectFailures: inference.eject_failures,
    ejectMs: inference.eject_ms,
    keyRequestsPerMinute: inference.key_requests_per_minute,
    keyTokensPerMinute: inference.key_tokens_per_minute,
    keyConcurrencyMax: inference.key_concurrency_max,
    publicRequestsPerMinute: inference.public_requests_per_minute,
    nonceRetentionMs: inference.nonce_retention_minutes * minuteMs,
    noncesMax: inference.nonces_max,
    responseReceipts: inference.response_receipts,
    ...keptReceiptsIn(inference),
    ...keptResponsesIn(inference),
    ...(inference.cors_origins.length === 0 ? {} : { corsOrigins: inference.cors_origins }),
    ...(inference.processes === 0 ? {} : { processes: inference.processes }),
    connectionIdleSeconds: http.idle_timeout_s,
    ...fallbacksIn(inference),
    ...(inference.usage_labels ? { usageLabels: true as const } : {}),
    ...(inference.http2 ? { http2: true as const } : {}),
    ...traceSettings(inference.traces),
  }
}

function fallbacksIn({ fallbacks }: Config['inference']): Pick<GatewaySettings, 'fallbacks'> {
  if (fallbacks.length === 0) return {}
  return {
    fallbacks: fallbacks.map(({ model, fallback, canary_percent: canaryPercent }) => ({
      model,
      fallback,
      ...(canaryPercent === 0 ? {} : { canaryPercent }),
    })),
  }
}

/** Nothing for the defaults: so workload.json is the same as without these fields. */
function keptReceiptsIn(inference: Config['inference']): Pick<GatewaySettings, 'keptReceipts'> {
  const keptReceipts = {
    retentionMs: inference.receipts_kept_s * 1000,
    countMax: inference.receipts_kept_max,
    bytesMax: inference.receipts_kept_bytes_max,
  }
  return canonicalJson(keptReceipts) === canonicalJson(keptReceiptsDefault) ? {} : { keptReceipts }
}

/** See `keptReceiptsIn`. */
function keptResponsesIn(inference: Config['inference']): Pick<GatewaySettings, 'keptResponses'> {
  const bytesMax = inference.responses_kept_bytes_max
  const keptResponses = {
    retentionMs: inference.responses_kept_s * 1000,
    countMax: keptResponsesDefault.countMax,
    bytesMax,
    bytesPerKeyMax: Math.floor(bytesMax / 4),
  }
  return canonicalJson(keptResponses) === canonicalJson(keptResponsesDefault) ? {} : { keptResponses }
}

/** Nothing at all where there are no traces: the text of workload.json is then the same as without the field. */
function traceSettings(traces: Config['inference']['traces']): Pick<GatewaySettings, 'traces'> {
  if (traces.endpoint === '') return {}
  const { sample_ratio: sampleRatio, follow_parent: followParent, forward_parent: forwardParent } = traces
  return { traces: { sampleRatio, followParent, forwardParent } }
}

async function composeWorkloads({ config, stateDir }: InferenceParts, log: Logger): Promise<Workloads> {
  const file = join(stateDir, 'allowlist.json')
  const bytes = readAllowlist(file)
  return createWorkloads({
    executableDigest: await sha256File('/proc/self/exe'),
    // From the kernel, because the runtime's own argv names paths inside the executable.
    command: readFileSync('/proc/self/cmdline', 'utf8').split('\0').slice(0, -1),
    hasWorker: hasWorker(config.inference.worker),
    allowlist: bytes === null ? null : { bytes, source: file },
    log,
  })
}

/** Puts the allowlist into the transparency log before a receipt names it. */
function loggedFirst(workloads: Workloads, publish: Publish): Pick<Workloads, 'describe'> {
  return {
    describe: () => {
      const described = workloads.describe()
      publish({ kind: 'allowlist', sha256: toHex(workloads.inForce().digest) })
      return described
    },
  }
}

/** For the operator to hand out: relying parties compare its digest with the one in the receipt. */
function writeConfiguration(
  { stateDir, log }: InferenceParts,
  configuration: GatewayConfiguration,
): GatewayConfiguration {
  const file = join(stateDir, 'gateway-configuration.json')
  const sha256 = toHex(configuration.digest)
  try {
    writeFileAtomic(file, configuration.bytes, { mode: 0o644 })
    log.unit('inference').info('configuration in force', { sha256, file })
  } catch (error) {
    // A full disk, for example: the gateway itself needs no file.
    const problem =
      'the configuration cannot be handed out; make room and restart, until then the file is missing or old'
    log.unit('inference').error(problem, { sha256, file, error })
  }
  return configuration
}

function workerBounds({ inference: { worker } }: Config) {
  return { parallel: worker.parallel, contextTokens: worker.context_tokens }
}

type WorkerSide = { readonly log: Logger; readonly onReady: (upstream: string) => void }

function composeWorker(
  { config, stateDir, clock, starter }: InferenceParts,
  workloads: Workloads,
  { log, onReady }: WorkerSide,
): BuiltInWorker | null {
  const settings = config.inference.worker
  if (!hasWorker(settings)) return null
  if (settings.memory_mib_max === 0) log.warn('the worker may use all memory: inference.worker.memory_mib_max is 0')
  else if (!isUnderSystemd()) {
    log.warn('no systemd, no scope: memory_mib_max bounds private memory of each process of the worker only')
  }
  const target = join(stateDir, 'worker-root', 'root')
  const worker = new BuiltInWorker({
    settings,
    stateDir,
    root: createWorkerRoot({ imageDir: settings.image_dir, target, timeoutMs: unpackTimeoutMs }),
    user: () => lookupUser(settings.user),
    startSandboxed: starter.startSandboxed,
    removeTree: removeForeignTree,
    openModel: async () => knownModel(stateDir, settings),
    admit: workloads.admit,
    clock,
    log,
    timing: workerTiming,
    onReady: () => {
      workloads.bind()
      onReady(worker.upstream.name)
    },
  })
  return worker
}

/** By its name, or by the file itself where a disk was made of it. Fault config.file. */
function knownModel(stateDir: string, { model_disk, model_file }: Config['inference']['worker']): KnownModel | null {
  if (model_disk !== '') return loadModel(stateDir, model_disk).model
  return findModelOf(stateDir, model_file)?.model ?? null
}

async function evidenceOrigin(deps: InferenceParts, workloads: Workloads): Promise<EvidenceOrigin> {
  if (deps.platform === 'snp') return noEvidenceOnHost
  const host = await deps.simulatedPlatform()
  deps.log.warn('attestation is SIMULATED: no hardware attests anything', { trustRoot: host.rootFile })
  const measurement = host.measurementOf(workloads.executableDigest)
  return {
    kind: 'available',
    platform: 'simulated',
    image: { name: 'strongroom', measurement },
    operatorKey: host.operatorKey,
    hostData: null,
    evidence: (reportData, hostData) => host.evidence({ measurement, reportData, hostData }),
  }
}
