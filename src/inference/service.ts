// Service B, composed from its dependencies, for a host process or a measured VM. Effects: those of its parts; all
// begin with `start`.

import { toHex } from '../base/bytes.ts'
import type { Collector } from '../base/prometheus.ts'
import type { Runtime } from '../base/runtime.ts'
import { TextCache } from '../base/work/text-cache.ts'
import { untilDone } from '../base/work/until-done.ts'
import { keptReceiptsDefault } from '../contract/vm/kept-defaults.ts'
import type { TraceSpan } from '../contract/vm/span.ts'
import type { GatewaySettings } from '../contract/vm/workload.ts'
import { createPublicLimiter } from '../http/public-rate.ts'
import { createAttester, type EvidenceOrigin, type GpuSource } from './attestation/attester.ts'
import { createAttestationEndpoint } from './attestation/endpoint.ts'
import { createNonceLedger, type NonceStore, nonceGapMs } from './attestation/nonces.ts'
import type { SharedReceiptKeys } from './attestation/receipt-keys.ts'
import { createResponseSealer } from './attestation/response-sealer.ts'
import { startSigning } from './attestation/signing.ts'
import type { Workloads } from './attestation/workloads.ts'
import { createOwnEncryption } from './encryption/encryption.ts'
import { createGateway, type Gateway } from './gateway/gateway.ts'
import openapi from './gateway/openapi/openapi.json' with { type: 'json' }
import { createResponseMemory, type ResponseMemory } from './gateway/response-memory.ts'
import { KeyShares, type KeySharesDeps } from './limits/key-shares.ts'
import { createLimiter } from './limits/limiter.ts'
import { Budgets, type Reserved } from './metering/budgets.ts'
import type { Cost } from './metering/price.ts'
import type { MeteringCounts, RecordUsage, SpentSource } from './metering/types.ts'
import { gatewayFamilies } from './metrics/gateway.ts'
import { createMetrics } from './metrics/requests.ts'
import { type GatewayListen, type GatewayServer, type ServeDeps, serveGateway } from './relay/serve.ts'
import type { StartSchemaProcess } from './schema-check/child.ts'
import { createTracer } from './traces/tracer.ts'
import type { Authenticate } from './types.ts'
import { AttestedUpstreams } from './upstream/attested/keeper.ts'
import type { UpstreamTarget } from './upstream/target.ts'
import type { WorkerUpstream } from './worker/worker.ts'

export type InferenceServiceDeps = Runtime & {
  readonly settings: GatewaySettings
  readonly upstreams: readonly UpstreamTarget[]
  /** Names of the upstreams that are workloads of the attestation. */
  readonly inside: ReadonlySet<string>
  readonly authenticate: Authenticate
  /** Receives the spans of requests if the settings enable traces; must not throw. */
  readonly offerSpan: (span: TraceSpan) => void
  readonly metering: { readonly record: RecordUsage; readonly counts: () => MeteringCounts }
  /** Sums of usage. */
  readonly spent: SpentSource
  /** Returns the current prices. */
  readonly cost: () => Cost
  /** Store of used nonces. */
  readonly nonces: NonceStore
  /** Whether the wall clock is trusted; null if nonces end with this VM. */
  readonly mayDelete: (() => boolean) | null
  readonly workloads: Pick<Workloads, 'describe'>
  readonly keys: SharedReceiptKeys
  /** Returns the SHA-256 of the SPKI of the TLS key in service. */
  readonly tlsSpkiDigest: () => Uint8Array
  /** SHA-256 of the gateway's configuration. */
  readonly configurationDigest: Uint8Array
  /** Text of workload.json; null if the gateway does not run in a VM. */
  readonly workload: string | null
  /** Default: as a child of this process. */
  readonly startSchemaProcess?: StartSchemaProcess
  /**
   * Opens the evidence source. Retried with pauses until it resolves, because the gateway's evidence may take seconds
   * to become available.
   */
  readonly openEvidence: () => Promise<EvidenceOrigin>
  /** Evidence of the worker's GPUs. Absent if it has none. */
  readonly gpus?: GpuSource
  /** Leases parts of keys' limits. Absent if this gateway is in no fleet. */
  readonly shares?: Pick<KeySharesDeps, 'renew' | 'isShared' | 'keysPerAskMax'>
}

export type InferenceService = {
  /** Handles a request. Never rejects. `address` returns the client's address. */
  readonly fetch: (request: Request, address: () => string) => Promise<Response>
  readonly metrics: Collector
  /** Returns the number of running requests, streams included. */
  readonly running: () => number
  /** Returns the budget reservations by key. */
  readonly reserved: () => readonly Reserved[]
  /** Probes the upstream now if it is ejected, because its owner has found it healthy. */
  readonly probeNow: (upstream: string) => void
  readonly start: () => void
  /**
   * Serves clients with as many processes as configured. Call it once. Throws Fault host.unsupported if it cannot
   * listen.
   */
  readonly listen: (where: GatewayListen) => Promise<GatewayServer>
  /** Ends waiting and probing; running requests continue. */
  readonly close: () => void
}

/** Share: networks with the fewest requests go first, those with the most are refused. */
const attestationCallersMax = 64
const attestationTimeoutMs = 30_000

export function createInferenceService(deps: InferenceServiceDeps): InferenceService {
  const { settings, metering, keys, clock, random, log } = deps
  const { padStreams, traces, publicRequestsPerMinute: requestsPerMinute, keptResponses } = settings
  const attested = new AttestedUpstreams({ clock, random, log: log.unit('upstreams') })
  const upstreams = deps.upstreams.map(target => attested.follow(target))
  const shares = deps.shares === undefined ? null : new KeyShares({ ...deps.shares, clock, log: log.unit('limits') })
  const limiter = createLimiter(clock, shares)
  const budgets = new Budgets({ spent: deps.spent, cost: deps.cost, clock })
  const { admitPublic } = createPublicLimiter({ clock, requestsPerMinute })
  const metrics = createMetrics({
    models: upstreams.flatMap(upstream => upstream.models),
    upstreams: upstreams.map(upstream => upstream.name),
    otherFamilies: () =>
      gatewayFamilies({
        metering: metering.counts(),
        running: limiter.running(),
        attested: attested.view(),
        encryption: encryption.counts,
        relays: server?.relays?.() ?? null,
        sharedLimits: shares?.view() ?? null,
        ...gateway.view(),
      }),
  })
  const attestation = createAttestation(deps)
  const keptReceipts = new TextCache({ clock, limits: settings.keptReceipts ?? keptReceiptsDefault })
  const responses = createResponseMemory(clock, keptResponses)
  // Only a measured VM has a workload.json.
  const padsStreams = padStreams === 'auto' ? deps.workload !== null : padStreams === 'on'
  const encryption = createOwnEncryption({ keys, random, clock })
  const signing = startSigning({ keys, clock, log: log.unit('receipts') })
  const gateway = createGateway({
    authenticate: deps.authenticate,
    admit: limiter.admit,
    ...(shares === null ? {} : { prepare: limiter.prepare }),
    admitPublic,
    recordUsage: metering.record,
    spent: deps.spent,
    cost: deps.cost,
    budgets,
    observe: metrics.observe,
    beginTrace: traces === undefined ? null : createTracer({ settings: traces, offer: deps.offerSpan, clock, random }),
    sealer: createResponseSealer({ keys, signing, clock, random, inside: deps.inside, attested: attested.names }),
    keptReceipts,
    responses,
    attestation: attestation.respond,
    encryption,
    openapi: JSON.stringify(openapi),
    workload: deps.workload,
    upstreams,
    checkEvidence: name => attested.check(name),
    inside: deps.inside,
    ...(deps.startSchemaProcess === undefined ? {} : { startSchemaProcess: deps.startSchemaProcess }),
    clock,
    random,
    log,
    limits: { ...settings, padsStreams },
  })
  let server: GatewayServer | null = null
  const stopping = new AbortController()
  const listening = () => ({
    ...{ gateway, upstreams, keptReceipts, responses, clock, log, checkReplay: encryption.checkReplay },
    offerSpan: deps.offerSpan,
    encryptionCounts: encryption.counts,
    setup: relaySetup(deps, { padsStreams, keptReceipts, responses, gateway }),
  })
  return {
    fetch: gateway.fetch,
    metrics,
    running: () => limiter.running(),
    reserved: () => budgets.open(),
    probeNow: gateway.probeNow,
    start: () => {
      attested.start(stopping.signal)
      // Not awaited at the end, because evidence that is still being prepared is no longer useful.
      void attestation.prepare(stopping.signal)
      void shares?.run(stopping.signal)
    },
    listen: async where => {
      server = await serveGateway(listening(), where)
      return server
    },
    close: () => {
      stopping.abort()
      for (const part of [signing, gateway]) part.close()
    },
  }
}

type Shared = {
  readonly padsStreams: boolean
  readonly keptReceipts: Pick<TextCache, 'retentionMs'>
  readonly responses: Pick<ResponseMemory, 'isOn'>
  readonly gateway: Pick<Gateway, 'cacheSecret'>
}

/** Returns everything that other processes that serve clients need from this one. */
function relaySetup(
  { settings, inside, keys }: InferenceServiceDeps,
  { padsStreams, keptReceipts, responses, gateway }: Shared,
): ServeDeps['setup'] {
  return {
    settings,
    padsStreams,
    inside: [...inside],
    keptReceiptsMs: keptReceipts.retentionMs,
    keepsResponses: responses.isOn,
    receiptSeeds: toHex(keys.seeds),
    cacheSecret: toHex(gateway.cacheSecret),
  }
}

/** Returns the built-in worker in the form of the router's targets. */
export function workerTarget(
  { name, models, weight, concurrencyMax, baseUrl, unix }: WorkerUpstream,
  { parallel, contextTokens }: { readonly parallel: number; readonly contextTokens: number },
): UpstreamTarget {
  return {
    name,
    url: baseUrl,
    unixSocket: unix,
    key: null,
    engine: 'llama-server',
    models,
    embeddingModels: [],
    weight,
    concurrencyMax,
    // The worker refuses more choices than it has slots.
    choicesMax: parallel,
    contextTokens,
    content: [],
    remoteUrls: false,
    ca: null,
    spkiSha256: null,
  }
}

type Attestation = {
  readonly respond: (request: Request, address: () => string) => Promise<Response>
  /** Opens the evidence source, retrying until aborted. Never rejects. */
  readonly prepare: (signal: AbortSignal) => Promise<void>
}

const prepareRetry = { minMs: 1_000, maxMs: 60_000 }

function createAttestation(deps: InferenceServiceDeps): Attestation {
  const { settings, clock, log } = deps
  const kept = { retentionMs: settings.nonceRetentionMs, countMax: settings.noncesMax }
  const nonces = createNonceLedger({ store: deps.nonces, clock, mayDelete: deps.mayDelete, ...kept })
  const endpointOf = (origin: EvidenceOrigin) => {
    const attester = createAttester({
      origin,
      describeWorkloads: deps.workloads.describe,
      keys: deps.keys,
      tlsSpkiDigest: deps.tlsSpkiDigest,
      configurationDigest: deps.configurationDigest,
      gpus: deps.gpus ?? null,
      clock,
      callersMax: attestationCallersMax,
      gapMs: nonceGapMs(kept),
      timeoutMs: attestationTimeoutMs,
    })
    return createAttestationEndpoint({ nonces, attester, log })
  }
  let endpoint = endpointOf({ kind: 'unavailable', reason: 'the evidence source is being prepared' })
  return {
    respond: (request, address) => endpoint(request, address),
    prepare: signal => {
      // A full disk is one example; once there is room again, the daemon need not be restarted.
      const onFailure = (error: unknown, retryMs: number) => {
        log.error('the evidence source cannot be prepared; retrying', { error, retryMs })
        endpoint = endpointOf({ kind: 'unavailable', reason: 'the evidence source cannot be prepared; see the log' })
      }
      return untilDone({ clock, range: prepareRetry, signal, onFailure }, async () => {
        endpoint = endpointOf(await deps.openEvidence())
      })
    },
  }
}
