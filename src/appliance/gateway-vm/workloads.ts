// workload.json of this host's gateway VM by today's configuration, model and allowlist, for any image. Effects: reads
// files.

import { join } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { Config } from '../../config/schema.ts'
import type { ImageManifest } from '../../contract/vm/image.ts'
import { type ControlKey, controlKeyFile, openControlKey } from '../../enclave-host/control-key.ts'
import { readAllowlist } from '../../inference/attestation/allowlist-file.ts'
import { loadUpstream } from '../../inference/upstream/load-target.ts'
import type { UpstreamTarget } from '../../inference/upstream/target.ts'
import { loadGpus } from '../../inference/worker/gpu-policy.ts'
import { composeWorkloadText } from '../workload.ts'
import { GatewayVmModel } from './model.ts'

export type GatewayVmWorkloads = {
  readonly upstreams: UpstreamTarget[]
  readonly controlKey: ControlKey
  readonly models: GatewayVmModel
  /** The canonical text for a VM of this image. Faults: config.file, config.invalid, image.invalid. */
  readonly textFor: (manifest: ImageManifest) => string
}

type WorkloadsParts = {
  readonly config: Config
  readonly stateDir: string
  readonly clock: Clock
  readonly log: Logger
}

/** Composes the workloads of gateway VMs. Faults: config.file (files of upstreams), internal (the control key). */
export function composeGatewayVmWorkloads({ config, stateDir, clock, log }: WorkloadsParts): GatewayVmWorkloads {
  const upstreams = config.inference.upstreams.map(loadUpstream)
  const controlKey = openControlKey(controlKeyFile(stateDir))
  const models = new GatewayVmModel({ config, stateDir, clock, log: log.unit('inference') })
  const gpus = loadGpus(config.inference.worker)
  const allowlistFile = join(stateDir, 'allowlist.json')
  return {
    upstreams,
    controlKey,
    models,
    textFor: manifest => {
      const bytes = readAllowlist(allowlistFile)
      return composeWorkloadText({
        config,
        manifest,
        upstreams,
        controlKey: controlKey.publicKey,
        model: models.current()?.model ?? null,
        gpus,
        allowlist: bytes === null ? null : { bytes, source: allowlistFile },
      })
    },
  }
}
