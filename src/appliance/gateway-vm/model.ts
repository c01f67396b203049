// The model disk of the gateway's worker: a named disk, or one made from the named model file. Effects: reads the
// state directory; a process that makes a disk.

import type { Clock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { untilDone } from '../../base/work/until-done.ts'
import { hasWorker } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'
import { ensureModel } from '../../host/models/ensure.ts'
import { loadModel, type StoredModel } from '../../host/models/models.ts'

export type GatewayVmModelDeps = {
  readonly config: Config
  readonly stateDir: string
  readonly clock: Clock
  readonly log: Logger
}

const retryRange = { minMs: 2_000, maxMs: 60_000 }

export class GatewayVmModel {
  readonly #deps: GatewayVmModelDeps
  #made: StoredModel | null = null
  #problem = 'the disk of the model is being made'

  constructor(deps: GatewayVmModelDeps) {
    this.#deps = deps
  }

  /** Null if there is no built-in worker. Fault config.file: its disk is not there, or not yet. */
  current(): StoredModel | null {
    const { config, stateDir } = this.#deps
    const { worker } = config.inference
    if (!hasWorker(worker)) return null
    if (worker.model_disk !== '') return loadModel(stateDir, worker.model_disk)
    if (this.#made === null) throw new Fault('config.file', this.#problem, { param: 'inference.worker.model_file' })
    return this.#made
  }

  /** Makes the disk where only a file is named; tries again until it is there, or the signal is aborted. */
  async prepare(signal: AbortSignal): Promise<void> {
    const { config, stateDir, clock, log } = this.#deps
    const { model_file: file, model_disk: disk } = config.inference.worker
    if (file === '' || disk !== '') return
    const onFailure = (error: unknown, retryMs: number) => {
      this.#problem = messageOf(error)
      log.error('the disk of the model cannot be made; it is tried again', { file, error, retryMs })
    }
    await untilDone({ clock, range: retryRange, signal, onFailure }, async () => {
      this.#made = await ensureModel(stateDir, file, signal)
      log.info('the model of the gateway is on its disk', { model: this.#made.model.name, disk: this.#made.disk })
    })
  }
}
