// Collects the facts about this machine for `strongroom doctor`: clock, disk, limits, control groups. Effects: reads
// files, system calls that change nothing.

import { readFileSync, statfsSync, statSync } from 'node:fs'
import { messageOf } from '../../../base/fault.ts'
import type { Config, Platform } from '../../../config/schema.ts'
import { boardClockMs, kernelClock } from '../../../host/kernel-clock.ts'
import { freeDiskGib } from '../../../vm/launch/disk.driver.ts'
import { capacityOf } from '../../../vm/launch/platform.driver.ts'
import type { MachineFacts } from './machine.plan.ts'

/** Never throws. `daemonPid`: null when no daemon answers. */
export function collectMachineFacts({
  config,
  platform,
  stateDir,
  daemonPid,
}: {
  readonly config: Config
  readonly platform: Platform
  readonly stateDir: string
  readonly daemonPid: number | null
}): MachineFacts {
  const nowMs = Date.now()
  return {
    nowMs,
    clock: kernelClock(),
    boardMs: boardClockMs(),
    writtenMs: orNull(() => statSync(`${stateDir}/strongroom.db`).mtimeMs),
    freeDiskGib: orNull(() => freeDiskGib(stateDir)),
    inodes: orNull(() => {
      const { files, ffree } = statfsSync(stateDir)
      return { total: files, free: ffree }
    }),
    capacity: capacityFacts(config, platform),
    openFilesMax: daemonPid === null ? null : orNull(() => openFilesOf(readText(`/proc/${daemonPid}/limits`))),
    systemFilesMax: orNull(() => Number(readText('/proc/sys/fs/file-nr').split(/\s+/)[2])),
    connections: orNull(() => ({
      max: Number(readText('/proc/sys/net/netfilter/nf_conntrack_max')),
      count: Number(readText('/proc/sys/net/netfilter/nf_conntrack_count')),
    })),
    tasksMax: orNull(() =>
      Math.min(Number(readText('/proc/sys/kernel/pid_max')), Number(readText('/proc/sys/kernel/threads-max'))),
    ),
    controllers: orNull(() => readText('/sys/fs/cgroup/cgroup.controllers').trim().split(/\s+/)),
  }
}

function capacityFacts(config: Config, platform: Platform): MachineFacts['capacity'] {
  try {
    return { ok: true, ...capacityOf(config, platform) }
  } catch (error) {
    return { ok: false, text: messageOf(error) }
  }
}

/** proc_pid_limits(5): the soft limit. */
function openFilesOf(text: string): number | null {
  const found = /^Max open files\s+(\d+|unlimited)/m.exec(text)?.[1]
  if (found === undefined) return null
  return found === 'unlimited' ? Number.POSITIVE_INFINITY : Number(found)
}

function readText(path: string): string {
  return readFileSync(path, 'utf8')
}

function orNull<Value>(work: () => Value): Value | null {
  try {
    const value = work()
    return typeof value === 'number' && Number.isNaN(value) ? null : value
  } catch {
    return null
  }
}
