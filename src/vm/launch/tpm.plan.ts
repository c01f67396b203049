// The emulated TPM of a VM on a development platform: swtpm's command line and limits. Pure.
//
// The host runs this TPM, so it proves nothing (`vtpm:host-untrusted`). It exercises the code of guests and verifiers.

import { createHash } from 'node:crypto'
import { becomeArgv, oomScoreAdjust } from './confinement.plan.ts'

export type TpmPlan = {
  readonly swtpm: string
  readonly vmId: string
  readonly stateDir: string
  /** Descriptors that swtpm inherits: the control channel to QEMU, and the state file. */
  readonly fds: { readonly control: number; readonly state: number }
}

/** Returns the full argv, swtpm's path first. It has no socket path, and opens no file except the inherited one. */
export function swtpmArgv({ swtpm, vmId, stateDir, fds }: TpmPlan): string[] {
  return [
    ...[swtpm, 'socket', '--tpm2'],
    // One file in root's directory, owned by its user, who cannot create others there.
    ...['--tpmstate', `backend-uri=file:///proc/self/fd/${fds.state}`],
    ...['--ctrl', `type=unixio,clientfd=${fds.control}`],
    ...['--flags', 'startup-clear', '--terminate'],
    // A system call that is not allowed kills the process (swtpm(8)).
    ...['--seccomp', 'action=kill'],
    ...['--log', `level=1,prefix=${tpmLabel(stateDir, vmId)} `],
  ]
}

/** Returns the label in swtpm's arguments that identifies its appliance and VM. */
export function tpmLabel(stateDir: string, vmId: string): string {
  return `${tpmLabelPrefix(stateDir)}${vmId}`
}

/**
 * Returns the label prefix of this appliance. It contains a digest of the path, which could contain swtpm's separators.
 */
export function tpmLabelPrefix(stateDir: string): string {
  return `tpm-${createHash('sha256').update(stateDir).digest('hex').slice(0, 12)}-`
}

export type TpmConfinement = { readonly uid: number; readonly systemd: boolean }

/** Measured: 7 MiB resident; the TPM's state is below 200 KiB. */
const limits = { memoryMib: 64, files: 32, tasks: 4, fileMib: 1 } as const
const bytesPerMib = 1_048_576

export function tpmScopeProperties(): string[] {
  return [
    'Slice=strongroom.slice',
    `MemoryMax=${limits.memoryMib}M`,
    'MemorySwapMax=0',
    `TasksMax=${limits.tasks}`,
    'CPUWeight=10',
  ]
}

/**
 * Returns the whole command line, as for QEMU: sets limits and the OOM score, then becomes the VM's user permanently.
 */
export function confinedTpmArgv({ uid, systemd }: TpmConfinement, argv: readonly string[]): string[] {
  return [
    ...['prlimit', '--core=0', '--memlock=0', `--nofile=${limits.files}`, `--nproc=${limits.tasks}`],
    ...[`--fsize=${limits.fileMib * bytesPerMib}`],
    ...(systemd ? [] : [`--data=${limits.memoryMib * bytesPerMib}`]),
    ...['--', 'choom', '--adjust', oomScoreAdjust, '--'],
    ...becomeArgv({ uid, groups: [] }),
    ...argv,
  ]
}
