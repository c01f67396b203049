// Puts the warm pool together from configuration. Effects: none before its `start`.

import type { Clock } from '../base/clock.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import type { Config, Platform } from '../config/schema.ts'
import { WarmPool } from '../instances/pool.ts'
import type { Store } from '../store/db.ts'
import type { VmSpec } from '../vm/engine.ts'
import { imageDigest } from '../vm/image-digest.driver.ts'
import { roomFor } from '../vm/room.query.ts'
import type { Engine } from './engine.ts'

export type PoolParts = {
  readonly config: Config
  readonly store: Store
  readonly engine: Engine
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

export function composePool(parts: PoolParts, vmSpec: VmSpec): WarmPool {
  const { config, store, engine, clock, random, log } = parts
  return new WarmPool({
    store,
    engine: engine.reconciler,
    vmSpec,
    shape: shapeOf(config.vm, engine.platform),
    wanted: config.pool.warm,
    imageDigest: () => imageDigest(config.vm.image_dir),
    room: () =>
      roomFor(
        store.ledger.db,
        { ...vmSpec, diskGib: vmSpec.scratchGib ?? 0 },
        {
          hostId: store.hostId,
          diskGibMax: engine.diskGibMax,
          capacity: engine.capacity,
          addressRestMs: config.network.address_rest_s * 1000,
          nowMs: clock.nowMs(),
        },
      ),
    clock,
    random,
    log: log.unit('pool'),
  })
}

/** What of the configuration a VM cannot change any more once it is launched, its image aside. */
function shapeOf(vm: Config['vm'], platform: Platform): string {
  const boot = vm.snp_boot === 'igvm' ? vm.igvm : vm.firmware
  const scratch = `${vm.scratch_gib} GiB scratch, ${vm.scratch_mib_per_s_max} MiB/s, ${vm.scratch_iops_max}/s`
  const words = [platform, vm.vcpu_type, `${vm.vcpus} vCPUs`, `${vm.memory_mib} MiB`, scratch, vm.snp_boot]
  return [...words, ...(boot === '' ? [] : [boot])].join(', ')
}
