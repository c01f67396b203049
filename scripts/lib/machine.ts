// The machine on which a figure was measured, and how busy it is. Reads /proc and /sys.

import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os'
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

/** Returns how busy the machine is now, in one line: load averages, cores, available and total memory. */
export function machineLoad(): string {
  const load = loadavg().map(value => value.toFixed(1))
  const availableKiB = /^MemAvailable: +(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]
  const totalMiB = Math.round(totalmem() / 1024 ** 2)
  const availableMiB = availableKiB === undefined ? 'an unknown part' : `${Math.round(Number(availableKiB) / 1024)} MiB`
  return `load ${load.join(', ')} (1, 5, 15 min) on ${availableParallelism()} cores; ${availableMiB} of ${totalMiB} MiB memory available`
}

export type ProcessorTimes = {
  /** Since the machine started; the sum over its processors. */
  readonly busyMs: number
  readonly allMs: number
}

export function processorTimes(): ProcessorTimes {
  const times = cpus().map(cpu => cpu.times)
  const idleMs = times.reduce((sum, { idle }) => sum + idle, 0)
  const allMs = times.reduce((sum, { user, nice, sys, idle, irq }) => sum + user + nice + sys + idle + irq, 0)
  return { busyMs: allMs - idleMs, allMs }
}

/** Between two readings, in whole per cent. */
export function busyPercent(before: ProcessorTimes, after: ProcessorTimes): number {
  const allMs = after.allMs - before.allMs
  return allMs <= 0 ? 0 : Math.round(((after.busyMs - before.busyMs) / allMs) * 100)
}
