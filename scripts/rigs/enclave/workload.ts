// What gateway VMs of tests are launched for: the launch document, the model, the built-in worker, upstreams. Pure.

import { gatewaySettings } from '../../../src/appliance/inference.ts'
import { fromHex, utf8 } from '../../../src/base/bytes.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { ATTESTED_WORKLOADS } from '../../../src/contract/http/attestation.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../../src/contract/vm/launch.ts'
import {
  type GatewaySettings,
  type WorkloadDocument,
  type WorkloadUpstream,
  type WorkloadWorker,
  workloadFormat,
} from '../../../src/contract/vm/workload.ts'
import { allowlistOf } from '../../../src/inference/attestation/workloads.ts'
import { workerCommand } from '../../../src/inference/worker/command.plan.ts'

export const launchMeasurement = 'ab'.repeat(48)
/** Of the root's image, and of everything else that nobody looks at. */
export const rootHash = 'cd'.repeat(32)
/** What the enclave takes for its own program, and that program's argv. */
export const executableText = 'the program of the gateway'
export const enclaveCommand = ['strongroom-enclave', 'serve']
export const modelText = 'a model'
export const gatewayVmSize = { vcpus: 2, memoryMib: 2048 } as const

const launchOfGateway: LaunchDocument = {
  format: launchFormat,
  image: { name: 'inference', rootHash, inputsSha256: rootHash },
  vehicle: 'ovmf',
  firmwareSha256: rootHash,
  kernelSha256: rootHash,
  initrdSha256: rootHash,
  cmdlineSha256: rootHash,
  ...gatewayVmSize,
  vcpuType: 'EPYC-v4',
  policy: '0x30000',
  measurement: launchMeasurement,
}
export const launchDocument = launchText(launchOfGateway)

const modelDigest = sha256(utf8(modelText))
/** Its model is `w`. */
const workloadWorker: WorkloadWorker = {
  model: 'w',
  disk: {
    name: 'tiny',
    rootHash,
    hashOffset: 4096,
    fileBytes: modelText.length,
    golden: null,
    fileSha256: modelDigest.toHex(),
  },
  contextTokens: 1024,
  parallel: 2,
  threads: 1,
  memoryMibMax: 512,
  startTimeoutMs: 10_000,
}
const workerArgv = workerCommand(
  { ...defaultConfig().inference.worker, model: 'w', context_tokens: 1024, parallel: 2, threads: 1 },
  modelDigest,
)

type Parts = {
  readonly controlKey: string
  readonly upstreams: readonly Partial<WorkloadUpstream>[]
  readonly gateway: Partial<GatewaySettings>
}

/** With the built-in worker, and an allowlist that admits it. */
export function workloadOf({ controlKey, upstreams, gateway }: Parts): WorkloadDocument {
  return {
    format: workloadFormat,
    allowlist: allowlistOf(
      ATTESTED_WORKLOADS.map(workload =>
        workload === 'inference-worker'
          ? { workload, imageDigest: fromHex(rootHash) ?? new Uint8Array(0), command: workerArgv }
          : { workload, imageDigest: sha256(utf8(executableText)), command: enclaveCommand },
      ),
    ),
    controlKey,
    gateway: { ...gatewaySettings(defaultConfig()), publicRequestsPerMinute: 100_000, ...gateway },
    upstreams: upstreams.map(upstreamOf),
    worker: workloadWorker,
  }
}

export function upstreamOf(changes: Partial<WorkloadUpstream>): WorkloadUpstream {
  return {
    name: 'far',
    url: 'http://127.0.0.1:1/v1',
    engine: 'openai',
    models: ['m'],
    weight: 1,
    concurrencyMax: 1_000,
    choicesMax: 4,
    contextTokens: null,
    content: [],
    remoteUrls: false,
    ca: null,
    spkiSha256: null,
    hasKey: true,
    ...changes,
  }
}

function sha256(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
}
