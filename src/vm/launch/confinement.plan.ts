// What QEMU may use of this host beyond its command line: its user, its groups, its limits. Pure.
//
// A guest that escapes QEMU's own sandbox is held by this alone. Where systemd runs, each VM has a scope that bounds the memory and the
// tasks of all that it starts. Elsewhere prlimit(1) bounds each process alone: RLIMIT_DATA its private memory, RLIMIT_NPROC the tasks of
// its uid. Not bounded there: shared memory (memfd, /dev/shm, page cache) and the share of the CPU.

import type { QemuPlatform } from './qemu.plan.ts'

export type Confinement = {
  /** The VM's own; its group has the same number. */
  readonly uid: number
  /** Of the devices that QEMU opens by path: /dev/kvm, /dev/sev. */
  readonly groups: readonly number[]
  readonly platform: QemuPlatform['kind']
  readonly vcpus: number
  readonly memoryMib: number
  /** Of the largest disk that it writes to. */
  readonly diskGib: number
  readonly systemd: boolean
}

/**
 * What QEMU may take besides the guest's memory. On tcg, translated code takes up to 512 MiB more (`tb-size`). Page tables take 1/512 of the
 * guest's memory; a 64th covers them and more. Measured on tcg: 40 MiB resident before the guest runs, about 300 MiB with a booted guest,
 * of which most is translated code. Files that QEMU reads are in the bound, too, but the kernel drops their pages first.
 */
const overheadMib = { base: 256, translated: 512, guestShare: 1 / 64 } as const

export function memoryMaxMib({ platform, memoryMib }: Pick<Confinement, 'platform' | 'memoryMib'>): number {
  const translated = platform === 'tcg' ? overheadMib.translated : 0
  return memoryMib + overheadMib.base + translated + Math.ceil(memoryMib * overheadMib.guestShare)
}

/** A thread for each vCPU; up to 64 for disk access; QEMU's own few. */
export function tasksMax({ vcpus }: Pick<Confinement, 'vcpus'>): number {
  return vcpus + 128
}

/** Of the systemd scope (systemd.resource-control(5)). */
export function scopeProperties(confinement: Confinement): string[] {
  return [
    // Beside system.slice: all VMs together get as much CPU as the host's services together, not each as much as one.
    'Slice=strongroom.slice',
    `MemoryMax=${memoryMaxMib(confinement)}M`,
    'MemorySwapMax=0',
    `TasksMax=${tasksMax(confinement)}`,
    // 1 to 10000; VMs share by their vCPUs.
    `CPUWeight=${Math.min(10_000, 10 * confinement.vcpus)}`,
  ]
}

/**
 * When memory runs out the kernel kills the worker (900) first, then VMs, then the daemon (proc_pid_oom_score_adj(5)). An escape can undo
 * it as far down as the daemon's own value when the daemon lacks CAP_SYS_RESOURCE; MemoryMax still holds.
 */
export const oomScoreAdjust = '500'
const filesMax = 1024
/** QEMU writes to its log, which the daemon empties above 1 MiB, and to the VM's disks. Memory that is a memfd counts as a file, too. */
const fileMib = 64
/** Each thread reserves a stack. */
const stackMib = 8
const bytesPerMib = 1_048_576

/** The whole command line: limits, then the kernel's choice of victims, then become the user for good. */
export function confinedArgv(confinement: Confinement, argv: readonly string[]): string[] {
  return [
    ...['prlimit', ...limits(confinement), '--'],
    ...['choom', '--adjust', oomScoreAdjust, '--'],
    ...becomeArgv(confinement),
    ...argv,
  ]
}

/** Before a command: become the VM's user, with no way back. */
export function becomeArgv({ uid, groups }: Pick<Confinement, 'uid' | 'groups'>): string[] {
  return [
    ...['setpriv', `--reuid=${uid}`, `--regid=${uid}`],
    groups.length === 0 ? '--clear-groups' : `--groups=${groups.join(',')}`,
    ...['--no-new-privs', '--inh-caps=-all', '--bounding-set=-all', '--'],
  ]
}

function limits(confinement: Confinement): string[] {
  const { platform, memoryMib, diskGib, systemd } = confinement
  const isSnp = platform === 'snp'
  const tasks = tasksMax(confinement)
  return [
    '--core=0',
    // The firmware pins the memory of a confidential guest.
    `--memlock=${isSnp ? memoryMaxMib(confinement) * bytesPerMib : 0}`,
    `--nofile=${filesMax}`,
    `--nproc=${tasks}`,
    `--fsize=${Math.max(isSnp ? memoryMib + fileMib : fileMib, diskGib * 1024) * bytesPerMib}`,
    ...(systemd ? [] : [`--data=${(memoryMaxMib(confinement) + tasks * stackMib) * bytesPerMib}`]),
  ]
}
