// Puts the inference gateway together from configuration. Effects: reads files; everything else begins with `start`.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { toHex } from '../base/bytes.ts'
import { type Clock, pause } from '../base/clock.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import type { Collector } from '../base/prometheus.ts'
import { guestGatewayName, listenAddress } from '../config/listen.ts'
import type { Config, Platform } from '../config/schema.ts'
import { startSandboxed } from '../host/sandbox.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import { lookupUser } from '../host/system.ts'
import { spkiDigestOf } from '../http/pair.ts'
import { type FetchHandler, type ServedTls, serveTls, type TlsServer } from '../http/serve.ts'
import { createAttester, type EvidenceOrigin, noEvidenceOnHost } from '../inference/attestation/attester.ts'
import { type GatewayConfiguration, gatewayConfiguration } from '../inference/attestation/configuration.ts'
import { createAttestationEndpoint } from '../inference/attestation/endpoint.ts'
import { createNonceLedger } from '../inference/attestation/nonces.ts'
import { makeReceiptKeys, type ReceiptKeys } from '../inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../inference/attestation/response-sealer.ts'
import { createWorkloads, type Workloads } from '../inference/attestation/workloads.ts'
import { createGateway, type Gateway, type GatewayDeps } from '../inference/gateway/gateway.ts'
import { inferenceOpenapiDocument } from '../inference/gateway/openapi.ts'
import { createGatewayAuthenticate } from '../inference/keys/authenticate.ts'
import { createLimiter } from '../inference/limits/limiter.ts'
import { createNonceQuota } from '../inference/limits/nonce-quota.ts'
import { createPublicLimiter } from '../inference/limits/public.ts'
import type { Metering } from '../inference/metering/ledger.ts'
import { runLedgerRetention } from '../inference/metering/retention.ts'
import { createClusterMetrics } from '../inference/metrics/cluster.ts'
import { gatewayFamilies } from '../inference/metrics/gateway.ts'
import { createMetrics } from '../inference/metrics/requests.ts'
import { loadUpstream, type UpstreamTarget } from '../inference/upstream/target.ts'
import { createWorkerRoot } from '../inference/worker/root.ts'
import { BuiltInWorker, workerTiming } from '../inference/worker/worker.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { isUnderSystemd } from '../linux/process.ts'
import type { Store } from '../store/db.ts'
import type { Capacity } from '../vm/admission.plan.ts'

export type InferenceParts = {
  readonly config: Config
  readonly stateDir: string
  readonly store: Store
  readonly tls: ServedTls
  readonly platform: Platform
  readonly simulatedPlatform: () => Promise<SimulatedHost>
  readonly capacity: Capacity
  readonly metering: Metering
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

export type Inference = {
  readonly fetch: Gateway['fetch']
  readonly collectors: readonly Collector[]
  readonly start: () => void
  readonly stop: () => Promise<void>
}

/** The longest that Bun can allow a connection to be idle: how long a stream may pause is for the gateway's own limits to decide. */
const streamIdleSeconds = 255
const attestationCallersMax = 64
const attestationTimeoutMs = 30_000
const unpackTimeoutMs = 60_000
const hourMs = 3_600_000

/** Faults: config.file (key, certificate or allowlist files), host.unsupported. A worker that cannot run is no fault: requests for its model get 502. */
export async function composeInference(deps: InferenceParts): Promise<Inference> {
  const { config, store, clock, random, metering } = deps
  const settings = config.inference
  const log = deps.log.unit('inference')
  const workloads = await composeWorkloads(deps, log)
  const worker = composeWorker(deps, workloads, { log, onReady: name => gateway.probeNow(name) })
  const configured = settings.upstreams.map(loadUpstream)
  const configuration = writeConfiguration(
    deps,
    gatewayConfiguration(
      config,
      configured.map(one => one.ca),
    ),
  )
  const upstreams = [...configured, ...(worker === null ? [] : [targetOf(worker, settings.worker)])]
  const keys = makeReceiptKeys(random)
  const limiter = createLimiter(clock)
  const { admitPublic } = createPublicLimiter({ clock, requestsPerMinute: settings.public_requests_per_minute })
  const metrics = createMetrics({
    models: upstreams.flatMap(upstream => upstream.models),
    upstreams: upstreams.map(upstream => upstream.name),
    otherFamilies: () =>
      gatewayFamilies({ metering: metering.counts(), running: limiter.running(), ...gateway.view() }),
  })
  const attestation = composeAttestation(deps, { workloads, configuration, keys, log })
  const gateway = createGateway({
    authenticate: createGatewayAuthenticate({
      db: store.directory.db,
      clock,
      log,
      defaults: {
        requestsPerMinute: settings.key_requests_per_minute,
        tokensPerMinute: settings.key_tokens_per_minute,
        concurrencyMax: settings.key_concurrency_max,
      },
    }),
    admit: limiter.admit,
    admitPublic,
    recordUsage: record => metering.record(record),
    observe: metrics.observe,
    sealer: createResponseSealer({ keys, clock, inside: new Set(worker === null ? [] : [worker.upstream.name]) }),
    responseReceipts: settings.response_receipts,
    attestation: attestation.respond,
    openapi: JSON.stringify(inferenceOpenapiDocument()),
    upstreams,
    ownedBy: settings.owned_by,
    clock,
    random,
    log,
    limits: limitsOf(config),
  })
  const stopping = new AbortController()
  let retention: Promise<void> = Promise.resolve()
  return {
    fetch: gateway.fetch,
    collectors: [metrics, createClusterMetrics({ store, capacity: deps.capacity })],
    start: () => {
      worker?.start()
      // Not waited for at the end: keys that are being made are of no use any more.
      void attestation.prepare(stopping.signal)
      retention = runLedgerRetention(
        { store: store.directory, clock, log, retentionDays: settings.usage_retention_days },
        stopping.signal,
      )
    },
    stop: async () => {
      stopping.abort()
      gateway.close()
      await Promise.all([worker?.stop(), retention])
    },
  }
}

/** The gateway over HTTPS. Fault host.unsupported: the address cannot be listened on. */
export function serveInference(
  { fetch }: Inference,
  { config, tls, log }: Pick<InferenceParts, 'config' | 'tls' | 'log'>,
): TlsServer {
  const idleTimeoutSeconds = config.http.idle_timeout_s
  const handler: FetchHandler = async (request, socket) => {
    // Bun counts the wait for an upstream as idle, too.
    socket.timeout(request, streamIdleSeconds)
    const response = await fetch(request, () => socket.requestIP(request)?.address ?? '')
    // From here on only a stream may pause; else whoever has been refused could keep the connection for as long.
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
    if (!isStream) socket.timeout(request, idleTimeoutSeconds)
    return response
  }
  return serveTls(handler, {
    ...listenAddress(config.listen.inference),
    tls,
    guestName: guestGatewayName,
    idleTimeoutSeconds,
    // As with service A, the gateway itself limits the body and refuses it in its own words.
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: log.unit('inference'),
  })
}

function limitsOf({ inference }: Config): GatewayDeps['limits'] {
  return {
    bodyBytesMax: inference.body_bytes_max,
    bodyTimeoutMs: inference.body_timeout_ms,
    connectTimeoutMs: inference.connect_timeout_ms,
    firstByteTimeoutMs: inference.first_byte_timeout_ms,
    idleTimeoutMs: inference.idle_timeout_ms,
    stallTimeoutMs: inference.client_stall_timeout_ms,
    eventBytesMax: inference.event_bytes_max,
    responseBytesMax: inference.answer_bytes_max,
    refusesUnknownFields: inference.unknown_fields === 'refuse',
    queueMax: inference.queue_max,
    queueTimeoutMs: inference.queue_timeout_ms,
    ejectFailures: inference.eject_failures,
    ejectMs: inference.eject_ms,
  }
}

function composeWorkloads({ config, stateDir }: InferenceParts, log: Logger): Promise<Workloads> {
  return createWorkloads({
    executable: '/proc/self/exe',
    // From the kernel, because the runtime's own argv names paths inside the executable.
    command: readFileSync('/proc/self/cmdline', 'utf8').split('\0').slice(0, -1),
    hasWorker: config.inference.worker.model_file !== '',
    allowlistFile: join(stateDir, 'allowlist.json'),
    log,
  })
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

type WorkerSide = { readonly log: Logger; readonly onReady: (upstream: string) => void }

function composeWorker(
  { config, stateDir, clock }: InferenceParts,
  workloads: Workloads,
  { log, onReady }: WorkerSide,
): BuiltInWorker | null {
  const settings = config.inference.worker
  if (settings.model_file === '') return null
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
    startSandboxed,
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

function targetOf({ upstream }: BuiltInWorker, settings: Config['inference']['worker']): UpstreamTarget {
  const { name, models, weight, concurrencyMax, baseUrl, unix } = upstream
  return {
    name,
    url: baseUrl,
    unixSocket: unix,
    key: null,
    engine: 'llama-server',
    models,
    weight,
    concurrencyMax,
    // It refuses more choices than it has slots.
    choicesMax: settings.parallel,
    contextTokens: settings.context_tokens,
    content: [],
    remoteUrls: false,
    ca: null,
    spkiSha256: null,
  }
}

type AttestationParts = {
  readonly workloads: Workloads
  readonly configuration: GatewayConfiguration
  readonly keys: ReceiptKeys
  readonly log: Logger
}

type Attestation = {
  readonly respond: (request: Request, address: () => string) => Promise<Response>
  /**
   * Opens the evidence source, however often that fails, until aborted. The simulator's keys take seconds to make, once; until then
   * there is no evidence. Never rejects.
   */
  readonly prepare: (signal: AbortSignal) => Promise<void>
}

function composeAttestation(
  deps: InferenceParts,
  { workloads, configuration, keys, log }: AttestationParts,
): Attestation {
  const { config, store, tls, clock } = deps
  const kept = {
    retentionMs: config.inference.nonce_retention_hours * hourMs,
    countMax: config.inference.nonces_max,
  }
  const nonces = createNonceLedger({ store: store.ledger, clock, quota: createNonceQuota({ clock, ...kept }), ...kept })
  const endpointOf = (origin: EvidenceOrigin) => {
    const attester = createAttester({
      origin,
      describeWorkloads: workloads.describe,
      keys,
      tlsSpkiDigest: () => spkiDigestOf(tls.current().cert),
      configurationDigest: configuration.digest,
      clock,
      callersMax: attestationCallersMax,
      timeoutMs: attestationTimeoutMs,
    })
    return createAttestationEndpoint({ nonces, attester, log })
  }
  let endpoint = endpointOf({ kind: 'unavailable', reason: 'the evidence source is being prepared' })
  return {
    respond: (request, address) => endpoint(request, address),
    prepare: async signal => {
      for (let retryMs = prepareRetryMinMs; !signal.aborted; retryMs = Math.min(retryMs * 2, prepareRetryMaxMs)) {
        try {
          endpoint = endpointOf(await evidenceOrigin(deps, workloads))
          return
        } catch (error) {
          // A full disk, for example: somebody makes room, and nobody should have to start the daemon again for that.
          log.error('the evidence source cannot be prepared; it will be tried again', { error, retryMs })
          endpoint = endpointOf({ kind: 'unavailable', reason: 'the evidence source cannot be prepared; see the log' })
        }
        await pause(clock, retryMs, signal)
      }
    },
  }
}

const prepareRetryMinMs = 1_000
const prepareRetryMaxMs = 60_000

async function evidenceOrigin(deps: InferenceParts, workloads: Workloads): Promise<EvidenceOrigin> {
  if (deps.platform === 'snp') return noEvidenceOnHost
  const host = await deps.simulatedPlatform()
  deps.log.warn('attestation is SIMULATED: no hardware vouches for anything', { trustRoot: host.rootFile })
  const measurement = host.measurementOf(workloads.executableDigest)
  return {
    kind: 'available',
    platform: 'simulated',
    image: { name: 'strongroom', measurement },
    operatorKey: host.operatorKey,
    evidence: (reportData, hostData) => host.evidence({ measurement, reportData, hostData }),
  }
}
