// Puts the warm pool together from configuration. Effects: none before its `start`.

import { toHex } from '../base/bytes.ts'
import type { Runtime } from '../base/runtime.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import type { Config, Platform } from '../config/schema.ts'
import { WarmPool } from '../instances/pool.ts'
import type { Store } from '../store/db.ts'
import { admissionFor } from '../vm/capacity.query.ts'
import type { VmSpec } from '../vm/engine.ts'
import { imageDigest } from '../vm/launch/image-digest.driver.ts'
import type { Engine } from './engine.ts'

export type PoolParts = Runtime & {
  readonly config: Config
  readonly store: Store
  readonly engine: Engine
  /** Today's operator key: a VM that was launched with another is not handed out. */
  readonly operatorKey: Uint8Array
  readonly clockGuard: Pick<ClockGuard, 'certainMs'>
}

export function composePool(parts: PoolParts, vmSpec: VmSpec): WarmPool {
  const { config, store, engine, operatorKey, clock, random, log } = parts
  return new WarmPool({
    store,
    engine: engine.reconciler,
    vmSpec,
    shape: shapeOf(config, engine.platform, operatorKey),
    wanted: config.pool.warm,
    imageDigest: () => imageDigest(config.vm.image_dir),
    room: () =>
      admissionFor(
        store.ledger.db,
        { ...vmSpec, diskGib: vmSpec.scratchGib ?? 0 },
        {
          hostId: store.hostId,
          diskGibMax: engine.diskGibMax,
          capacity: engine.capacity,
          addressRestMs: config.network.address_rest_s * 1000,
          nowMs: parts.clockGuard.certainMs(),
        },
      ),
    clock,
    random,
    log: log.unit('pool'),
  })
}

/** Hexadecimal digits of its digest: enough to tell two keys apart. */
const keyDigits = 16

/** The key that signs launches, as a part of a shape: a VM that an earlier one has signed is not given to anybody. */
export function operatorKeyWords(operatorKey: Uint8Array): string {
  return `operator key ${toHex(operatorKey).slice(0, keyDigits)}`
}

/** Settings that a VM keeps from its launch, without its image. */
function shapeOf({ vm, network }: Config, platform: Platform, operatorKey: Uint8Array): string {
  const boot = vm.snp_boot === 'igvm' ? vm.igvm : vm.firmware
  const scratch = `${vm.scratch_gib} GiB scratch, ${vm.scratch_mib_per_s_max} MiB/s, ${vm.scratch_iops_max}/s`
  const words = [platform, vm.vcpu_type, `${vm.vcpus} vCPUs`, `${vm.memory_mib} MiB`, scratch, vm.snp_boot]
  // A VM learns its resolver when it boots.
  const names = network.allow_names.length === 0 ? [] : ['asks this host for names']
  return [...words, ...names, ...(boot === '' ? [] : [boot]), operatorKeyWords(operatorKey)].join(', ')
}
