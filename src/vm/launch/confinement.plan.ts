// Limits of QEMU on this host beyond its command line and its jail: user, groups, resources, devices. Pure.
//
// With the jail (jail.plan.ts) these confine a guest that escapes QEMU's own sandbox. Under systemd each VM has a scope
// that bounds memory and tasks of everything in it. Elsewhere prlimit(1) bounds single processes: RLIMIT_DATA their
// private memory, RLIMIT_NPROC the tasks of their uid. It bounds neither shared memory (memfd, page cache) nor the
// share of the CPU.

import type { QemuPlatform } from './qemu.plan.ts'

export type Confinement = {
  /** The VM's user; its group has the same number. */
  readonly uid: number
  /** Groups of the devices that QEMU opens by path: /dev/kvm, /dev/sev. */
  readonly groups: readonly number[]
  readonly platform: QemuPlatform['kind']
  readonly vcpus: number
  readonly memoryMib: number
  /** Size of the largest disk that it writes to, in GiB. */
  readonly diskGib: number
  /** Number of the host's devices that are assigned to it (VFIO). */
  readonly devices: number
  readonly systemd: boolean
}

/**
 * QEMU's memory besides the guest's. On tcg, translated code takes up to 512 MiB more (`tb-size`). Page tables take
 * 1/512 of the guest's memory; a 64th covers them and more. Measured on tcg: 40 MiB resident before the guest runs,
 * about 300 MiB with a booted guest, mostly translated code. The bound includes file pages, which the kernel drops
 * first.
 */
const overheadMib = { base: 256, translated: 512, guestShare: 1 / 64 } as const

export function memoryMaxMib({ platform, memoryMib }: Pick<Confinement, 'platform' | 'memoryMib'>): number {
  const translated = platform === 'tcg' ? overheadMib.translated : 0
  return memoryMib + overheadMib.base + translated + Math.ceil(memoryMib * overheadMib.guestShare)
}

/** Returns the maximum number of tasks: a thread for each vCPU, up to 64 for disk access, and a few of QEMU's own. */
export function tasksMax({ vcpus }: Pick<Confinement, 'vcpus'>): number {
  return vcpus + 128
}

/** Returns properties of the VM's systemd scope (systemd.resource-control(5)). */
export function scopeProperties(confinement: Confinement): string[] {
  return [
    // Next to system.slice, so that all VMs together get as much CPU as the host's services together.
    'Slice=strongroom.slice',
    ...memoryBound(confinement),
    'MemorySwapMax=0',
    `TasksMax=${tasksMax(confinement)}`,
    // From 1 to 10000; VMs share the CPU by their vCPUs.
    `CPUWeight=${Math.min(10_000, 10 * confinement.vcpus)}`,
  ]
}

/**
 * Returns the bound of memory. None for a VM with devices: the kernel counts its tables for their memory to the scope
 * and cannot reclaim the pages that they use, so a bound would end the VM. RLIMIT_MEMLOCK bounds that memory instead.
 */
function memoryBound(confinement: Confinement): string[] {
  return confinement.devices > 0 ? [] : [`MemoryMax=${memoryMaxMib(confinement)}M`]
}

/**
 * When memory runs out, the kernel kills the worker (900) first, then VMs, then the daemon (proc_pid_oom_score_adj(5)).
 * Under systemd an escaped guest cannot lower the value, because the starter's unit begins with the same one. Elsewhere
 * it can, down to the daemon's own value, if the daemon lacks CAP_SYS_RESOURCE.
 */
export const oomScoreAdjust = '500'
/** No share: limits each VM. */
const filesMax = 1024
/** Limit for QEMU's log, which the daemon empties above 1 MiB. VMs' disks and memfd memory also count as files. */
const fileMib = 64
/** Each thread reserves a stack. */
const stackMib = 8
const bytesPerMib = 1_048_576

/** Returns the devices that QEMU opens by path. */
export function devicesOf({ platform }: Pick<Confinement, 'platform'>): string[] {
  return DEVICES[platform]
}

const DEVICES: Record<Confinement['platform'], string[]> = { tcg: [], kvm: ['/dev/kvm'], snp: ['/dev/kvm', '/dev/sev'] }

/** Returns the whole command line: sets limits and the OOM score, then becomes the VM's user permanently. */
export function confinedArgv(confinement: Confinement, argv: readonly string[]): string[] {
  return [
    ...['prlimit', ...limits(confinement), '--'],
    ...['choom', '--adjust', oomScoreAdjust, '--'],
    ...becomeArgv(confinement),
    ...argv,
  ]
}

/** Returns the command prefix that permanently becomes the VM's user. */
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
