// Sparse files on this host as disks that VMs write to, and the room for all of them. Effects: files.

import { closeSync, constants as fsConstants, ftruncateSync, lstatSync, readdirSync } from 'node:fs'
import { wrapFault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { diskSpace } from '../../linux/files/disk-space.ts'
import { openRegular } from '../../linux/files/regular.ts'
import type { LedgerDb } from '../../store/db.ts'
import { appendEvent } from '../../store/ledger/event.query.ts'
import { type VmPaths, vmPaths } from '../launch.plan.ts'
import type { VmLink } from '../link.driver.ts'

const bytesPerGib = 1_073_741_824
/** The rest is for the database, logs, consoles and other files of this file system. */
const share = 0.8
/** `stat.blocks` has this unit on every file system (stat(2)). */
const blockBytes = 512

export type DiskFile = Disposable & { readonly fd: number }

/** Empties the file, including content of an earlier attempt, and opens it. The caller closes it. Faults: internal. */
export function makeDisk(path: string, sizeGib: number): DiskFile {
  const fd = openRegular(path, fsConstants.O_RDWR | fsConstants.O_CREAT)
  try {
    ftruncateSync(fd, 0)
    ftruncateSync(fd, sizeGib * bytesPerGib)
  } catch (error) {
    closeSync(fd)
    throw wrapFault(error, `size ${path}`)
  }
  return { fd, [Symbol.dispose]: () => closeSync(fd) }
}

/**
 * Returns the GiB for the disks of all VMs: a share of the free room plus the room that they already use. Faults:
 * internal.
 */
export function freeDiskGib(
  stateDir: string,
  { freeBytes }: { readonly freeBytes: number } = diskSpace(stateDir),
): number {
  const held = readdirSync(`${stateDir}/vms`).reduce((sum, vmId) => sum + heldBytes(vmPaths(stateDir, vmId)), 0)
  return Math.floor(((freeBytes + held) * share) / bytesPerGib)
}

function heldBytes({ scratch, exchange }: VmPaths): number {
  const blocks = [scratch, exchange].map(path => lstatSync(path, { throwIfNoEntry: false })?.blocks ?? 0)
  return blocks.reduce((sum, count) => sum + count, 0) * blockBytes
}

/** A VM with this much free space can continue for a while. */
const resumeBytesMin = 268_435_456

export type Paused = { readonly vmId: string; readonly directory: string; readonly link: VmLink }
export type ResumeDeps = {
  readonly db: LedgerDb
  readonly log: Logger
  readonly clock: { readonly nowMs: () => number }
}

/** VMs whose pause is recorded. */
const known = new WeakSet<VmLink>()

/**
 * Checks once a VM that QEMU paused when the host's disk was full, and resumes its writes if possible. Never throws.
 */
export async function resumeWhenFree({ db, log, clock }: ResumeDeps, { vmId, directory, link }: Paused): Promise<void> {
  const record = (kind: 'vm.paused' | 'vm.resumed', detail: Record<string, unknown>) =>
    appendEvent(db, { nowMs: clock.nowMs(), kind, subject: vmId, detail })
  try {
    const { freeBytes } = diskSpace(directory)
    if (!known.has(link)) {
      known.add(link)
      log.error('a VM is paused: the disk with its scratch file is full. Free space there, and it goes on', {
        vm: vmId,
        freeBytes,
      })
      record('vm.paused', { freeBytes })
    }
    if (freeBytes < resumeBytesMin) return
    await link.resume()
    known.delete(link)
    log.info('a paused VM runs again', { vm: vmId })
    record('vm.resumed', { freeBytes })
  } catch (error) {
    log.warn('a paused VM could not be resumed; it will be tried again', { vm: vmId, error })
  }
}
