// Whether clock, disk and limits of this machine hold what the configuration promises. Pure.

import { iso } from '../../../base/clock.ts'
import type { Config } from '../../../config/schema.ts'
import type { KernelClock } from '../../../host/kernel-clock.ts'
import type { Capacity } from '../../../vm/admission.plan.ts'
import { type Check, fail, pass, skip, warn } from '../check.ts'

export type MachineFacts = {
  readonly nowMs: number
  readonly clock: KernelClock | null
  /** Time of the board's clock; null without one. */
  readonly boardMs: number | null
  /** When the database was last written; null before the first start. */
  readonly writtenMs: number | null
  /** Room for all disks of VMs, as the daemon counts; null before the first start, or without permission. */
  readonly freeDiskGib: number | null
  /** Inodes of the state directory's file system; a total of 0 means no limit. */
  readonly inodes: { readonly total: number; readonly free: number } | null
  readonly capacity: ({ readonly ok: true } & Capacity) | { readonly ok: false; readonly text: string }
  /** Limit of the daemon's open files; null if no daemon answers. */
  readonly openFilesMax: number | null
  readonly systemFilesMax: number | null
  /** Null if the kernel does not track connections yet. */
  readonly connections: { readonly max: number; readonly count: number } | null
  /** Processes and threads of the whole machine. */
  readonly tasksMax: number | null
  /** Controllers of control groups version 2; null means none at /sys/fs/cgroup. */
  readonly controllers: readonly string[] | null
}

export type MachineConfig = Pick<Config, 'vm' | 'http' | 'network' | 'capacity' | 'builds' | 'listen'>

export function machineChecks(
  facts: MachineFacts,
  config: MachineConfig,
  { systemd }: { readonly systemd: boolean },
): Check[] {
  const vms = vmCount(facts, config)
  return [
    clockCheck(facts),
    diskCheck(facts, config),
    inodesCheck(facts, vms),
    openFilesCheck(facts, config, vms),
    connectionsCheck(facts, config, vms),
    tasksCheck(facts, config, vms),
    controlGroupsCheck(facts, systemd),
  ]
}

/** Maximum number of concurrent instances; null if unknown. */
function vmCount({ capacity }: MachineFacts, { vm }: Pick<Config, 'vm'>): number | null {
  if (!capacity.ok) return null
  const { memoryMib, vcpus, addresses, asids } = capacity
  return Math.min(Math.floor(memoryMib / vm.memory_mib), Math.floor(vcpus / vm.vcpus), addresses, asids ?? addresses)
}

const backwardMs = 60_000
const skewMsMax = 120_000
const CLOCK_REMEDY = 'install chrony, or run timedatectl set-ntp true: certificates, CRLs and billing follow this clock'

function clockCheck({ nowMs, clock, boardMs, writtenMs }: MachineFacts): Check {
  const name = 'clock'
  if (writtenMs !== null && writtenMs > nowMs + backwardMs) {
    const detail = `it is ${iso(nowMs)}, and the database was written at ${iso(writtenMs)}: the clock has gone back`
    return fail(name, detail, 'set the clock right (chronyc makestep), then restart the daemon')
  }
  if (clock === null) return skip(name, 'the kernel does not say whether it is synchronised')
  if (!clock.isSynchronised) return warn(name, 'no server keeps it right', CLOCK_REMEDY)
  const skewMs = boardMs === null ? 0 : Math.abs(boardMs - nowMs)
  if (skewMs > skewMsMax) {
    const detail = `synchronised; the clock of the board differs by ${Math.round(skewMs / 1000)} s, and the next boot begins with it`
    return warn(name, detail, 'run hwclock --systohc --utc')
  }
  return pass(name, `synchronised, to ${Math.ceil(clock.errorMaxMs)} ms`)
}

function diskCheck({ freeDiskGib: freeGib }: MachineFacts, { vm, capacity, builds, listen }: MachineConfig): Check {
  const name = 'disk'
  if (freeGib === null) return skip(name, 'the room for disks of VMs is known after the first start, to root')
  if (freeGib < vm.scratch_gib) {
    const detail = `room for ${freeGib} GiB of disks, and an instance takes ${vm.scratch_gib} (vm.scratch_gib)`
    const smaller = freeGib < 1 ? '' : '; or lower vm.scratch_gib for new instances, which frees nothing'
    return fail(name, detail, `free space in the state directory: strongroom help problem disk${smaller}`)
  }
  const results = listen.builds === '' ? 0 : builds.results_gib_max
  const promised = capacity.scratch_gib + results
  if (promised > freeGib) {
    const ofBuilds = results === 0 ? '' : ` and builds.results_gib_max (${results})`
    const detail = `capacity.scratch_gib (${capacity.scratch_gib})${ofBuilds} promise ${promised} GiB; there is room for ${freeGib}`
    return warn(
      name,
      detail,
      `give the state directory a larger file system, or lower what is promised to ${freeGib} GiB in all`,
    )
  }
  return pass(name, `room for ${freeGib} GiB of disks, ${vm.scratch_gib} for each instance`)
}

/** Directory, sockets, logs and disks. */
const filesPerVm = 16
const filesBeside = 1_024

function inodesCheck({ inodes }: MachineFacts, vms: number | null): Check {
  const name = 'inodes'
  if (inodes === null) return skip(name, 'known after the first start')
  if (inodes.total === 0) return pass(name, 'the file system has no limit')
  const needed = (vms ?? 0) * filesPerVm + filesBeside
  const detail = `${inodes.free} of ${inodes.total} free`
  if (inodes.free >= needed) return pass(name, detail)
  return fail(
    name,
    `${detail}; ${needed} may be needed`,
    'remove files below the state directory, or create its file system again with more inodes',
  )
}

/** Tap, monitor, channel and console of each VM, and what is open for a moment. */
const daemonFilesPerVm = 8
const daemonFilesBeside = 512
const qemuFiles = 64

function openFilesCheck(
  { openFilesMax, systemFilesMax }: MachineFacts,
  { http }: MachineConfig,
  vms: number | null,
): Check {
  const name = 'open files'
  const needed = http.connections_max + (vms ?? 0) * daemonFilesPerVm + daemonFilesBeside
  const systemNeeded = needed + (vms ?? 0) * qemuFiles
  if (systemFilesMax !== null && systemFilesMax < systemNeeded) {
    const remedy = `write fs.file-max = ${systemNeeded} to /etc/sysctl.d/60-strongroom.conf; run sysctl --system`
    return fail(name, `fs.file-max is ${systemFilesMax}, and ${systemNeeded} may be needed`, remedy)
  }
  if (openFilesMax === null) return skip(name, 'no daemon answers, whose limit could be read')
  const detail = `the daemon may have ${openFilesMax} open`
  if (openFilesMax >= needed) return pass(name, `${detail}, and needs ${needed} at most`)
  const remedy = `run systemctl edit strongroom, write LimitNOFILE=${needed} below [Service], restart it; or lower http.connections_max`
  return warn(name, `${detail}, and ${needed} may be needed (http.connections_max, VMs)`, remedy)
}

const connectionsShare = 0.8

function connectionsCheck({ connections }: MachineFacts, { http, network }: MachineConfig, vms: number | null): Check {
  const name = 'connections'
  if (connections === null) return skip(name, 'the kernel tracks no connections yet')
  const { max, count } = connections
  const needed = http.connections_max + (vms ?? 0) * network.egress.flows_max
  const detail = `${count} of ${max} tracked`
  const remedy = (most: number) =>
    `write net.netfilter.nf_conntrack_max = ${most} to /etc/sysctl.d/60-strongroom.conf; run sysctl --system`
  if (count > max * connectionsShare)
    return warn(name, `${detail}: new ones are dropped when all are taken`, remedy(Math.max(needed, 2 * max)))
  if (max < needed)
    return warn(
      name,
      `${detail}, and ${needed} may be needed (http.connections_max, network.egress.flows_max of each VM)`,
      remedy(needed),
    )
  return pass(name, detail)
}

const threadsPerVm = 32
const tasksBeside = 2_048

function tasksCheck({ tasksMax }: MachineFacts, { vm }: MachineConfig, vms: number | null): Check {
  const name = 'processes'
  if (tasksMax === null) return skip(name, 'the kernel does not say how many there may be')
  const needed = (vms ?? 0) * (vm.vcpus + threadsPerVm) + tasksBeside
  const detail = `${tasksMax} processes and threads`
  if (tasksMax >= needed) return pass(name, `${detail}, and ${needed} may be needed`)
  const remedy = `write kernel.pid_max = ${needed} and kernel.threads-max = ${needed} to /etc/sysctl.d/60-strongroom.conf; run sysctl --system`
  return warn(name, `${detail}, and ${needed} may be needed by VMs`, remedy)
}

const CONTROLLERS = ['cpu', 'memory', 'pids'] as const

function controlGroupsCheck({ controllers }: MachineFacts, systemd: boolean): Check {
  const name = 'control groups'
  if (!systemd) return skip(name, 'systemd does not run here: VMs have no scopes')
  const missing = CONTROLLERS.filter(kind => controllers?.includes(kind) !== true)
  if (missing.length === 0) return pass(name, `version 2, with ${CONTROLLERS.join(', ')}`)
  const what = controllers === null ? 'version 1' : `version 2 without ${missing.join(', ')}`
  const detail = `${what}: MemoryMax and TasksMax of VMs bind nothing, and one VM can take what others need`
  return warn(name, detail, 'boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all on the kernel command line')
}
