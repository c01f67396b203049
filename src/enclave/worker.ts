// The built-in worker in this VM: opens its model's disk, then runs llama-server in a sandbox over the measured root.
// Effects: dm-verity, mounts, processes.

import { rm } from 'node:fs/promises'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import type { Admission, WorkloadCandidate } from '../contract/vm/allowlist.ts'
import type { WorkloadModel, WorkloadWorker } from '../contract/vm/workload.ts'
import type { StartSandboxed } from '../host/sandbox.ts'
import type { WorkerSettings } from '../inference/worker/command.plan.ts'
import { BuiltInWorker, workerTiming } from '../inference/worker/worker.ts'
import type { Owner } from '../linux/files.ts'
import type { EnclaveGpus } from './gpus.ts'

export type WorkerSide = {
  readonly admit: (candidate: WorkloadCandidate) => Admission
  /** Called with the name of its upstream, each time it has become healthy. */
  readonly onReady: (upstream: string) => void
  /** GPUs that have to be good before it starts; null if it needs none. */
  readonly gpus: Pick<EnclaveGpus, 'prepare'> | null
}

/** Starts it; its state shows the outcome. Fault attest.unavailable: the image has no root hash. */
export type StartWorker = (worker: WorkloadWorker, side: WorkerSide) => Promise<BuiltInWorker>

export type EnclaveWorkerDeps = {
  /** A directory for its socket. */
  readonly runDir: string
  /** The measured root, and its dm-verity root hash; null when the kernel's command line names none. */
  readonly root: { readonly path: string; readonly rootHash: Uint8Array | null }
  readonly user: Owner
  readonly startSandboxed: StartSandboxed
  /** Opens a model's disk; its file is then at `modelPath`. No effect if it is open. */
  readonly openModel: (model: WorkloadModel) => Promise<void>
  readonly modelPath: (model: WorkloadModel) => string
  readonly clock: Clock
  readonly log: Logger
}

export function createStartWorker(deps: EnclaveWorkerDeps): StartWorker {
  return async (worker, { admit, onReady, gpus }) => {
    const { path, rootHash } = deps.root
    if (rootHash === null) throw new Fault('attest.unavailable', 'the kernel command line names no root hash')
    const built = new BuiltInWorker({
      settings: settingsOf(worker, deps.modelPath(worker.disk)),
      stateDir: deps.runDir,
      root: async () => ({ path, digest: rootHash }),
      user: () => deps.user,
      startSandboxed: deps.startSandboxed,
      removeTree,
      // Called before each start: bad GPUs, or a disk that cannot be opened, stop the worker, not the gateway. The
      // gateway attests nothing before its worker has started once.
      openModel: async () => {
        await gpus?.prepare()
        await deps.openModel(worker.disk)
        return worker.disk
      },
      admit,
      onReady: () => onReady(built.upstream.name),
      clock: deps.clock,
      log: deps.log,
      timing: workerTiming,
    })
    built.start()
    return built
  }
}

/** No process of the worker runs at this point, so none can plant a link. The image has no rm(1). */
async function removeTree(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true })
}

function settingsOf(worker: WorkloadWorker, modelFile: string): WorkerSettings {
  return {
    model_file: modelFile,
    model_disk: worker.disk.name,
    model: worker.model,
    // Used by a worker on the host only.
    image_dir: '/',
    user: 'worker',
    context_tokens: worker.contextTokens,
    parallel: worker.parallel,
    threads: worker.threads,
    memory_mib_max: worker.memoryMibMax,
    start_timeout_ms: worker.startTimeoutMs,
  }
}
