// Things on this host that are in no ledger, and things in the ledger that are not on this host. Effects: reads the kernel's and the disk's state.

import { existsSync, readdirSync } from 'node:fs'
import type { Nft } from '../host/network/nft.ts'
import { listTaps } from '../host/network/tap.ts'
import { identifyProcess, listWithUuid } from '../linux/process.ts'
import { processesByUid } from '../linux/users.ts'
import type { LedgerDb } from '../store/db.ts'
import { listResources } from '../store/ledger/resource.query.ts'
import { vmById } from '../store/ledger/vm.query.ts'
import type { ResourceKind } from '../store/ledger/vm.table.ts'
import { type UidRange, vmPaths } from './launch.plan.ts'
import { tapOfQuota } from './nft.plan.ts'
import { listTpms } from './tpm.driver.ts'
import { tpmLabelPrefix } from './tpm.plan.ts'

export type Leak = {
  readonly kind: ResourceKind
  readonly name: string
  /** `unknown`: on the host, in no ledger. `missing`: in the ledger of a VM that should have it, not on the host. */
  readonly detail: 'unknown' | 'missing'
}

export type LeaksDeps = {
  readonly db: LedgerDb
  readonly nft: Nft
  readonly stateDir: string
  readonly tapPrefix: string
  readonly uids: UidRange
}

const timeoutMs = 10_000

/** Compares ledger and host. A VM that is being made or taken down at the moment may show up; what shows up in two runs in a row is a leak. Faults: host.*. */
export async function findLeaks({ db, nft, stateDir, tapPrefix, uids }: LeaksDeps): Promise<Leak[]> {
  const found: Record<Exclude<ResourceKind, 'address'>, readonly string[]> = {
    directory: readdirSync(`${stateDir}/vms`).map(name => `${stateDir}/vms/${name}`),
    disk: readdirSync(`${stateDir}/vms`)
      .map(name => vmPaths(stateDir, name).scratch)
      .filter(path => existsSync(path)),
    tap: await listTaps(tapPrefix, timeoutMs),
    nft: [...new Set([...((await nft.readCounters(timeoutMs))?.quotas.keys() ?? [])].map(tapOfQuota))],
    qemu: listWithUuid()
      .filter(({ pid }) => identifyProcess(pid)?.argv.some(argument => argument.includes(`${stateDir}/vms/`)))
      .map(({ pid, startTicks }) => `${pid}:${startTicks}`),
    tpm: listTpms(stateDir).map(({ pid, startTicks }) => `${pid}:${startTicks}`),
    uid: [...uidsWithProcesses(uids, stateDir)],
  }
  return KINDS.flatMap(kind => {
    const recorded = listResources(db, kind)
    const names = new Set(recorded.map(row => row.name))
    const present = new Set(found[kind])
    const unknown = found[kind].filter(name => !names.has(name))
    const missing = recorded.filter(row => vmById(db, row.vmId)?.state === 'running' && !present.has(row.name))
    return [
      ...unknown.map((name): Leak => ({ kind, name, detail: 'unknown' })),
      ...missing.map((row): Leak => ({ kind, name: row.name, detail: 'missing' })),
    ]
  })
}

const KINDS = ['directory', 'disk', 'tap', 'nft', 'tpm', 'qemu', 'uid'] as const

/** Uids of the range under which something runs, other than those of another appliance's QEMU on this machine. */
function uidsWithProcesses({ min, max }: UidRange, stateDir: string): string[] {
  return [...processesByUid()]
    .filter(([uid, pids]) => uid >= min && uid <= max && !pids.every(pid => isElsewhere(pid, stateDir)))
    .map(([uid]) => `${uid}`)
}

/** QEMU's name is its VM's directory; swtpm's label begins as those of its appliance do. */
function isElsewhere(pid: number, stateDir: string): boolean {
  const argv = identifyProcess(pid)?.argv ?? []
  if (argv.some(argument => /,prefix=tpm-[0-9a-f]{12}-/.test(argument)))
    return !argv.some(argument => argument.includes(tpmLabelPrefix(stateDir)))
  const name = argv[argv.indexOf('-name') + 1]
  return argv.includes('-uuid') && /\/vms\/[^/]+$/.test(name ?? '') && !name?.startsWith(`${stateDir}/vms/`)
}
