// The swtpm of each VM on a development platform: starts it and finds it again. Effects: processes, one file each.

import { closeSync, fchownSync, constants as fsConstants, ftruncateSync } from 'node:fs'
import { Fault, wrapFault } from '../../base/fault.ts'
import { openRegular } from '../../linux/files/regular.ts'
import { removeFile } from '../../linux/files/removal.ts'
import { unixSocketPair } from '../../linux/libc/sockets.ts'
import { errnoName } from '../../linux/libc.ts'
import { listWithArgument, type ProcessIdentity } from '../../linux/process.ts'
import { processesByUid } from '../../linux/users.ts'
import type { LedgerDb } from '../../store/db.ts'
import { resourceOf } from '../../store/ledger/resource.query.ts'
import type { VmPaths } from '../launch.plan.ts'
import { isBeforeProgram } from './jail.plan.ts'
import type { ProgramFiles } from './jail-files.driver.ts'
import type { StartJailed } from './jailed.driver.ts'
import { swtpmArgv, tpmLabel, tpmLabelPrefix } from './tpm.plan.ts'

export type TpmStart = {
  readonly swtpm: ProgramFiles
  readonly start: StartJailed
  readonly stateDir: string
  readonly vmId: string
  readonly paths: Pick<VmPaths, 'tpmState' | 'tpmLog'>
  /** The VM's uid, shared with its QEMU. */
  readonly uid: number
}

/** A running swtpm, and QEMU's end of its control channel. The caller closes that end once QEMU has inherited it. */
export type StartedTpm = Disposable & { readonly identity: ProcessIdentity; readonly control: number }

const inheritedFds = { control: 3, state: 4 } as const

/** Starts the TPM with empty state. Faults: host.*, internal. */
export async function startTpm({ swtpm, start, stateDir, vmId, paths, uid }: TpmStart): Promise<StartedTpm> {
  using opened = new DisposableStack()
  const close = (fd: number) => opened.defer(() => closeSync(fd))
  const pair = unixSocketPair()
  if (!pair.ok) throw new Fault('host.unsupported', `a socket pair for swtpm: ${errnoName(pair.errno)}`)
  const [theirs, ours] = pair.fds
  close(theirs)
  const keep = new DisposableStack()
  keep.defer(() => closeSync(ours))
  try {
    const state = makeState(paths.tpmState, uid)
    close(state)
    const argv = swtpmArgv({ swtpm: swtpm.program, vmId, stateDir, fds: inheritedFds })
    const role = { kind: 'tpm', uid } as const
    const identity = await start({ uuid: vmId, role, files: swtpm.files, argv, logFile: paths.tpmLog }, [theirs, state])
    return { identity, control: ours, [Symbol.dispose]: () => keep.dispose() }
  } catch (error) {
    keep.dispose()
    throw error
  }
}

/** Creates an empty file that the user may write, in a directory that only root can enter. The caller closes it. */
function makeState(path: string, uid: number): number {
  removeFile(path)
  const { O_RDWR, O_CREAT, O_EXCL } = fsConstants
  const fd = openRegular(path, O_RDWR | O_CREAT | O_EXCL)
  try {
    ftruncateSync(fd, 0)
    fchownSync(fd, uid, uid)
    return fd
  } catch (error) {
    closeSync(fd)
    throw wrapFault(error, `make ${path}`)
  }
}

/**
 * Returns the VM's swtpm, identified by its command line, or null. It must run as the VM's user or root
 * (uid.driver.ts); others are impostors.
 */
export function findTpm(db: LedgerDb, { stateDir, vmId }: { stateDir: string; vmId: string }): ProcessIdentity | null {
  if (resourceOf(db, vmId, 'tpm') === null) return null
  const uid = resourceOf(db, vmId, 'uid')
  if (uid === null) return null
  const byUid = processesByUid()
  const own = [...(byUid.get(Number(uid.name)) ?? []), ...(byUid.get(0) ?? [])]
  const label = tpmLabel(stateDir, vmId)
  const candidates = listWithArgument(label).filter(({ pid }) => own.includes(pid))
  const found = candidates.find(({ argv }) => !isBeforeProgram(argv)) ?? candidates[0]
  return found === undefined ? null : { pid: found.pid, startTicks: found.startTicks, uuid: vmId }
}

/** Returns every swtpm of this appliance, recorded or not, but not a bwrap that waits for one. */
export function listTpms(stateDir: string): { readonly pid: number; readonly startTicks: number }[] {
  return listWithArgument(tpmLabelPrefix(stateDir)).filter(({ argv }) => !isBeforeProgram(argv))
}
