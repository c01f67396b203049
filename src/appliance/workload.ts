// workload.json of this appliance's gateway VM, out of the configuration, the image and the model. Pure.

import { fromHex } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import type { Config } from '../config/schema.ts'
import { ATTESTED_WORKLOADS } from '../contract/http/attestation.ts'
import { type Allowlist, parseAllowlist, type WorkloadCandidate } from '../contract/vm/allowlist.ts'
import type { ImageManifest } from '../contract/vm/image.ts'
import {
  type WorkloadAttestation,
  type WorkloadDocument,
  type WorkloadGpus,
  type WorkloadModel,
  type WorkloadUpstream,
  type WorkloadWorker,
  workloadBytesMax,
  workloadFormat,
  workloadText,
} from '../contract/vm/workload.ts'
import { allowlistOf } from '../inference/attestation/workloads.ts'
import type { UpstreamAttestation } from '../inference/upstream/attested/attestation.ts'
import type { UpstreamTarget } from '../inference/upstream/target.ts'
import { workerCommand } from '../inference/worker/command.plan.ts'
import { gatewaySettings } from './inference.ts'

export type WorkloadParts = {
  readonly config: Pick<Config, 'inference' | 'http'>
  readonly manifest: ImageManifest
  readonly upstreams: readonly UpstreamTarget[]
  /** Null if there is no built-in worker. */
  readonly model: WorkloadModel | null
  /** GPUs that the worker must have; null if there are none. */
  readonly gpus: WorkloadGpus | null
  /** Ed25519, base64url. */
  readonly controlKey: string
  /** The operator's own allowlist; null if it is derived from all of this. */
  readonly allowlist: { readonly bytes: Uint8Array; readonly source: string } | null
}

/** The canonical text. Faults: config.file (the operator's allowlist), image.invalid, config.invalid (too long). */
export function composeWorkloadText(parts: WorkloadParts): string {
  const { config, upstreams, model, gpus, controlKey } = parts
  const document: WorkloadDocument = {
    format: workloadFormat,
    allowlist: allowlistIn(parts),
    controlKey,
    gateway: gatewaySettings(config),
    upstreams: upstreams.map(upstreamIn),
    worker: model === null ? null : workerIn(config, model, gpus),
  }
  const text = workloadText(document)
  if (text.length > workloadBytesMax) {
    throw new Fault('config.invalid', `workload.json has ${text.length} bytes, at most ${workloadBytesMax}`, {
      param: 'inference.upstreams',
    })
  }
  return text
}

function upstreamIn(target: UpstreamTarget): WorkloadUpstream {
  const { name, url, engine, models, weight, concurrencyMax, choicesMax, contextTokens, content } = target
  return {
    name,
    url,
    engine,
    weight,
    concurrencyMax,
    choicesMax,
    contextTokens,
    models: [...models],
    ...(target.embeddingModels.length === 0 ? {} : { embeddingModels: [...target.embeddingModels] }),
    content: [...content],
    remoteUrls: target.remoteUrls,
    ca: target.ca,
    spkiSha256: target.spkiSha256,
    ...(target.spkiSha256Next === undefined ? {} : { spkiSha256Next: target.spkiSha256Next }),
    ...(target.attestation === undefined ? {} : { attestation: attestationIn(name, target.attestation) }),
    hasKey: target.key !== null,
  }
}

function attestationIn(name: string, attestation: UpstreamAttestation): WorkloadAttestation {
  const { kind, policy, path, intervalMs, collateralFile, simulatedRoot } = attestation
  if (collateralFile !== null) {
    throw new Fault(
      'config.invalid',
      `inference.upstreams "${name}": the gateway in its VM reads no file of this host; leave attestation_collateral out, and have the upstream send it`,
      { param: 'inference.upstreams' },
    )
  }
  return { kind, policy, path, intervalMs, ...(simulatedRoot === null ? {} : { simulatedRoot }) }
}

function workerIn(
  { inference: { worker } }: WorkloadParts['config'],
  disk: WorkloadModel,
  gpus: WorkloadGpus | null,
): WorkloadWorker {
  return {
    model: worker.model,
    disk,
    contextTokens: worker.context_tokens,
    parallel: worker.parallel,
    threads: worker.threads,
    memoryMibMax: worker.memory_mib_max,
    startTimeoutMs: worker.start_timeout_ms,
    ...(gpus === null ? {} : { gpus }),
  }
}

function allowlistIn({ config, manifest, model, allowlist }: WorkloadParts): Allowlist {
  if (allowlist !== null) {
    const shape = parseAllowlist(allowlist.bytes)
    if (!shape.ok) throw new Fault('config.file', `the allowlist ${allowlist.source}: ${shape.problem}`)
    return shape.value
  }
  const { gateway } = manifest
  if (gateway === undefined) {
    throw new Fault('image.invalid', 'the manifest of the inference image names no gateway; build the image again')
  }
  const own = ATTESTED_WORKLOADS.filter(workload => workload !== 'inference-worker').map(
    (workload): WorkloadCandidate => ({ workload, imageDigest: digest(gateway.sha256), command: gateway.command }),
  )
  if (model === null) return allowlistOf(own)
  const command = workerCommand(config.inference.worker, digest(model.fileSha256))
  const worker: WorkloadCandidate = { workload: 'inference-worker', imageDigest: digest(manifest.rootHash), command }
  return allowlistOf(
    [...own, worker].toSorted(
      (a, b) => ATTESTED_WORKLOADS.indexOf(a.workload) - ATTESTED_WORKLOADS.indexOf(b.workload),
    ),
  )
}

function digest(hex: string): Uint8Array {
  return fromHex(hex) ?? new Uint8Array(0)
}
