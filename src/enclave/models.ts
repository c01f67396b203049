// The disk of this gateway's model: mapped by dm-verity with the root hash of workload.json, then mounted. Effects:
// veritysetup, a mount.
//
// Nothing on the disk is trusted: offset and root hash come from workload.json, and salt and block size are the same
// for every model, so the superblock is not read. A bad block is a read error (the root's own mapping stops the machine
// instead): the worker fails, and the gateway reports why and serves its other models.

import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { Fault, systemErrorCode, wrapFault } from '../base/fault.ts'
import { modelDiskSerial } from '../contract/vm/enclave.ts'
import type { WorkloadModel } from '../contract/vm/workload.ts'
import { findDisk } from '../guest/disk.ts'
import { erofsBlockBytes, hashOffsetOf, modelFileName } from '../host/models/extent.ts'
import type { run } from '../linux/command.ts'
import { readTextOrNull } from '../linux/files.ts'

export type ModelsDeps = {
  /** '' in the guest. */
  readonly root: string
  readonly run: typeof run
  /** Mounts a device read-only. Faults: host.*. */
  readonly mountReadOnly: (device: string, target: string, type: string) => void
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly diskWaitMs: number
}

const command = { timeoutMs: 30_000, outputBytesMax: 65_536 }

/** Path of its file once the disk is open. */
export function modelPath(root: string, { name }: Pick<WorkloadModel, 'name'>): string {
  return `${mountPointOf(root, name)}/${modelFileName}`
}

function mountPointOf(root: string, name: string): string {
  return `${root}/run/models/${name}`
}

/**
 * Opens the disk. No effect if it is open, perhaps by an earlier process. Faults: host.unsupported (no such disk),
 * host.command_failed and host.command_timeout (not the disk of this root hash, or unreadable).
 */
export async function openModel(model: WorkloadModel, deps: ModelsDeps): Promise<void> {
  const { root } = deps
  const mountPoint = mountPointOf(root, model.name)
  if (!isMounted(root, mountPoint)) await mountModel(model, mountPoint, deps)
  checkFile(modelPath(root, model), model)
}

async function mountModel(model: WorkloadModel, mountPoint: string, deps: ModelsDeps): Promise<void> {
  const doing = `open the disk of model ${model.name}`
  if (model.hashOffset !== hashOffsetOf(model.fileBytes)) {
    const problem = `hashOffset ${model.hashOffset} does not follow from ${model.fileBytes} bytes`
    throw new Fault('host.command_failed', `${doing}: ${problem}`)
  }
  try {
    const mapped = findMapped(deps.root, model) ?? (await mapModel(model, deps))
    mkdirSync(mountPoint, { recursive: true, mode: 0o755 })
    deps.mountReadOnly(mapped, mountPoint, 'erofs')
  } catch (error) {
    // Lets the next attempt start over.
    await deps.run(['veritysetup', 'close', mappingName(model)], command).catch(() => {})
    throw wrapFault(error, doing, 'host.command_failed')
  }
}

/** Device of the mapping. Only this program makes names from root hashes, so an existing mapping is the right one. */
async function mapModel(model: WorkloadModel, deps: ModelsDeps): Promise<string> {
  const { root, clock, diskWaitMs } = deps
  const disk = await findDisk({ root, serial: modelDiskSerial, clock, waitMs: diskWaitMs })
  if (disk === null) throw new Fault('host.unsupported', `this VM has no disk with the serial ${modelDiskSerial}`)
  await deps.run(verityArgv(model, disk), command)
  const mapped = findMapped(root, model)
  if (mapped === null) throw new Fault('host.command_failed', 'veritysetup created no mapping')
  return mapped
}

/**
 * The hash tree begins one block behind the superblock. A corrupt block is a read error by default (veritysetup(8)).
 */
export function verityArgv(model: WorkloadModel, disk: string): string[] {
  return [
    ...['veritysetup', 'open', '--no-superblock', '--format=1', '--hash=sha256', '--salt=-'],
    ...[`--data-block-size=${erofsBlockBytes}`, `--hash-block-size=${erofsBlockBytes}`],
    ...[`--data-blocks=${model.hashOffset / erofsBlockBytes}`, `--hash-offset=${model.hashOffset + erofsBlockBytes}`],
    ...['--', disk, mappingName(model), disk, model.rootHash],
  ]
}

function mappingName({ rootHash }: WorkloadModel): string {
  return `model-${rootHash}`
}

/** Path below /dev; null if there is none. */
function findMapped(root: string, model: WorkloadModel): string | null {
  const blocks = `${root}/sys/block`
  const names = existsSync(blocks) ? readdirSync(blocks) : []
  const found = names.find(name => readTextOrNull(`${blocks}/${name}/dm/name`)?.trim() === mappingName(model))
  return found === undefined ? null : `${root}/dev/${found}`
}

/** See proc_pid_mountinfo(5). */
function isMounted(root: string, mountPoint: string): boolean {
  const lines = (readTextOrNull(`${root}/proc/self/mountinfo`) ?? '').split('\n')
  return lines.some(line => line.split(' ')[4] === mountPoint)
}

/** Checks the file of a model. Throws Fault host.command_failed. */
function checkFile(path: string, { name, fileBytes }: WorkloadModel): void {
  const refuse = (problem: string) => new Fault('host.command_failed', `model ${name}: ${path}: ${problem}`)
  try {
    const status = statSync(path)
    if (!status.isFile()) throw refuse('it is not a regular file')
    if (status.size !== fileBytes) throw refuse(`${status.size} bytes, not ${fileBytes} as in workload.json`)
  } catch (error) {
    if (error instanceof Fault) throw error
    throw refuse(systemErrorCode(error) ?? 'its status cannot be read')
  }
}
