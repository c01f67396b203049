// workload.json: everything that decides who gets prompts and how receipts are made, for a gateway in a measured VM.
// Pure.
//
// The SHA-256 of its canonical text is the HOST_DATA of that VM's launch, so that a report attests every field. The
// document is public: it holds no secrets. The host hands it over, and the gateway refuses one that is not its own
// report's; it is served with the evidence.

import { canonicalJson, type Plain } from '../../base/canonical-json.ts'
import { OneOf } from '../check.ts'
import { Closed, OrNull, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { Allowlist } from './allowlist.ts'

export const workloadFormat = 'strongroom/workload/v1'
/** Largest canonical text. */
export const workloadBytesMax = 1_048_576

/** Processes of one gateway that serve clients. */
export const gatewayProcessesMax = 32

const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })

/** Spans of requests that the gateway reports to its host beside usage (span.ts): ids, codes, counts and times. */
export const TraceSettings = Closed({
  /** Share of the requests. */
  sampleRatio: Type.Number({ minimum: 0, maximum: 1 }),
  /** Whether the sampled flag of a client's `traceparent` decides, where there is one. */
  followParent: Type.Boolean(),
  /** Whether upstreams are sent a `traceparent`. */
  forwardParent: Type.Boolean(),
})
export type TraceSettings = Static<typeof TraceSettings>

/** How the gateway serves its clients. Times in milliseconds, sizes in bytes. */
export const GatewaySettings = Closed({
  ownedBy: Type.String({ minLength: 1, maxLength: 64 }),
  refusesUnknownFields: Type.Boolean(),
  /** `auto`: where the gateway runs in a measured VM. */
  padStreams: OneOf(['auto', 'on', 'off']),
  bodyBytesMax: Count,
  bodyTimeoutMs: Count,
  connectTimeoutMs: Count,
  firstByteTimeoutMs: Count,
  idleTimeoutMs: Count,
  stallTimeoutMs: Count,
  eventBytesMax: Count,
  responseBytesMax: Count,
  queueMax: Count,
  queueTimeoutMs: Count,
  ejectFailures: Count,
  ejectMs: Count,
  keyRequestsPerMinute: Count,
  keyTokensPerMinute: Count,
  keyConcurrencyMax: Count,
  publicRequestsPerMinute: Count,
  nonceRetentionMs: Count,
  noncesMax: Count,
  responseReceipts: OneOf(['on-request', 'always']),
  /** Default: `keptReceiptsDefault`, which also applies to documents older than such receipts. */
  keptReceipts: Type.Optional(Closed({ retentionMs: Count, countMax: Count, bytesMax: Count })),
  /** Origins of web pages that may call what needs a key; `*` for any. Default: none. */
  corsOrigins: Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { minItems: 1, maxItems: 64 })),
  /** Items of responses for later requests of the same key. Default: `keptResponsesDefault`. */
  keptResponses: Type.Optional(Closed({ retentionMs: Count, countMax: Count, bytesMax: Count, bytesPerKeyMax: Count })),
  /** Number of processes that serve clients. Default: derived from the cores and the memory. */
  processes: Type.Optional(Type.Integer({ minimum: 1, maximum: gatewayProcessesMax })),
  /** Idle time of a connection without a request. */
  connectionIdleSeconds: Count,
  /** Whether clients that offer it by ALPN get HTTP/2. Default: only HTTP/1.1. */
  http2: Type.Optional(Type.Literal(true)),
  /** Whether `user` and `metadata` of requests are in the usage rows that the host gets. Default: they are not. */
  usageLabels: Type.Optional(Type.Literal(true)),
  /** Models that answer instead of others (`servedModels`). Default: none. */
  fallbacks: Type.Optional(
    Type.Array(
      Closed({
        model: Type.String({ minLength: 1, maxLength: 256 }),
        fallback: Type.String({ minLength: 1, maxLength: 256 }),
        /** Percentage of requests that the fallback answers in any case. Default: 0. */
        canaryPercent: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
      }),
      { minItems: 1, maxItems: 64 },
    ),
  ),
  /** Absent if nothing is traced. */
  traces: Type.Optional(TraceSettings),
})
export type GatewaySettings = Static<typeof GatewaySettings>

/** Evidence that an upstream outside has to show before it gets a prompt, and again by interval. */
export const WorkloadAttestation = Closed({
  kind: OneOf(['snp', 'tdx']),
  /** Text of the policy that it has to meet; verdicts name it by its SHA-256. */
  policy: Type.String({ minLength: 1, maxLength: 65_536 }),
  path: Type.String({ pattern: '^/[A-Za-z0-9._~/-]{0,255}$' }),
  intervalMs: Count,
  /** PEM of a simulated root that is accepted; no hardware attests evidence below it. Default: none. */
  simulatedRoot: Type.Optional(Type.String({ minLength: 1, maxLength: 65_536 })),
})
export type WorkloadAttestation = Static<typeof WorkloadAttestation>

/** An upstream outside of the VM: prompts for its models leave what is measured. */
export const WorkloadUpstream = Closed({
  name: Type.String({ minLength: 1, maxLength: 64 }),
  url: Type.String({ minLength: 1, maxLength: 512 }),
  engine: OneOf(['openai', 'llama-server', 'vllm', 'sglang', 'text-embeddings-inference']),
  models: Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { minItems: 1, maxItems: 64 }),
  /** Default: none. */
  embeddingModels: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { minItems: 1, maxItems: 64 }),
  ),
  weight: Count,
  concurrencyMax: Count,
  choicesMax: Count,
  contextTokens: OrNull(Count),
  content: Type.Array(OneOf(['image', 'audio', 'video', 'file']), { maxItems: 4 }),
  remoteUrls: Type.Boolean(),
  /** PEM certificates of the authorities that it is trusted by; null means those of the image. */
  ca: OrNull(Type.String({ maxLength: 65_536 })),
  /** SHA-256 of its public key (SPKI); null means any that the authorities vouch for. */
  spkiSha256: OrNull(Sha256),
  /** A second key that is also accepted. Default: none. */
  spkiSha256Next: Type.Optional(Sha256),
  /** Default: none, and nothing attests it. */
  attestation: Type.Optional(WorkloadAttestation),
  /** Whether a key is sent to it. The key itself is no part of this document. */
  hasKey: Type.Boolean(),
})
export type WorkloadUpstream = Static<typeof WorkloadUpstream>

/** A question with a known answer. A worker that answers otherwise does not serve. Greedy, temperature 0. */
export const GoldenAnswer = Closed({
  prompt: Type.String({ minLength: 1, maxLength: 4096 }),
  maxTokens: Type.Integer({ minimum: 1, maximum: 256 }),
  /** The completion must begin with this. */
  expected: Type.String({ minLength: 1, maxLength: 8192 }),
})
export type GoldenAnswer = Static<typeof GoldenAnswer>

/** A model disk: erofs with one file `model.gguf`, the dm-verity tree appended (`strongroom model add`). */
export const WorkloadModel = Closed({
  name: Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' }),
  /** dm-verity root hash of the disk. */
  rootHash: Sha256,
  /** End of the file system, where the hash tree begins. Bytes. */
  hashOffset: Type.Integer({ minimum: 4096 }),
  /** SHA-256 of the GGUF file, and its size in bytes. */
  fileSha256: Sha256,
  fileBytes: Count,
  golden: OrNull(GoldenAnswer),
})
export type WorkloadModel = Static<typeof WorkloadModel>

/** GPUs that a gateway's VM can have. */
export const workerGpusMax = 8

/** The GPUs that the VM has to have, each with evidence of its own that meets the policy. */
export const WorkloadGpus = Closed({
  count: Type.Integer({ minimum: 1, maximum: workerGpusMax }),
  /** Text of the policy (attest/nvidia/policy.ts). */
  policy: Type.String({ minLength: 1, maxLength: 65_536 }),
})
export type WorkloadGpus = Static<typeof WorkloadGpus>

/** The built-in worker, inside the VM. */
export const WorkloadWorker = Closed({
  /** Id of its model for clients. */
  model: Type.String({ minLength: 1, maxLength: 256 }),
  disk: WorkloadModel,
  contextTokens: Count,
  parallel: Count,
  threads: Count,
  memoryMibMax: Count,
  startTimeoutMs: Count,
  /** Default: none is needed. */
  gpus: Type.Optional(WorkloadGpus),
})
export type WorkloadWorker = Static<typeof WorkloadWorker>

export const WorkloadDocument = Closed({
  format: Type.Literal(workloadFormat),
  allowlist: Allowlist,
  /** Ed25519 public key that signs what the host may change while the VM runs (enclave.ts); base64url. */
  controlKey: Type.String({ pattern: '^[A-Za-z0-9_-]{43}$' }),
  gateway: GatewaySettings,
  upstreams: Type.Array(WorkloadUpstream, { maxItems: 64 }),
  worker: OrNull(WorkloadWorker),
})
export type WorkloadDocument = Static<typeof WorkloadDocument>

/** The canonical text (RFC 8785), without a line break at its end: HOST_DATA is the SHA-256 of its UTF-8 bytes. */
export function workloadText(document: WorkloadDocument): string {
  return canonicalJson(document as Plain)
}
