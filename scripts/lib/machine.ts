// The machine on which a figure was measured. Reads /proc and /sys.

import { availableParallelism, cpus, release, totalmem } from 'node:os'
import type { Platform } from '../../src/config/schema.ts'
import { detectPlatform } from '../../src/host/platform.ts'

export type MachineFacts = {
  readonly cpu: string
  readonly cores: number
  readonly memoryMiB: number
  readonly kernel: string
  /** As the appliance detects it: hardware with SEV-SNP, plain KVM, or software emulation. */
  readonly platform: Platform
  readonly bun: string
}

export function machineFacts(): MachineFacts {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryMiB: Math.round(totalmem() / 1024 ** 2),
    kernel: release(),
    platform: detectPlatform().platform,
    bun: Bun.version,
  }
}
