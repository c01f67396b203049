// Things on this host that are in no ledger, and things in the ledger that are not on this host. Effects: reads the kernel's and the disk's state.

import { readdirSync } from 'node:fs'
import type { Nft } from '../host/network/nft.ts'
import { listTaps } from '../host/network/tap.ts'
import { identifyProcess, listWithUuid } from '../linux/process.ts'
import type { LedgerDb } from '../store/db.ts'
import { listResources } from '../store/ledger/resource.query.ts'
import { vmById } from '../store/ledger/vm.query.ts'
import type { ResourceKind } from '../store/ledger/vm.table.ts'

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
}

const timeoutMs = 10_000

/** Compares ledger and host. A VM that is being made or taken down at the moment may show up; what shows up in two runs in a row is a leak. Faults: host.*. */
export async function findLeaks({ db, nft, stateDir, tapPrefix }: LeaksDeps): Promise<Leak[]> {
  const found: Record<Exclude<ResourceKind, 'address'>, readonly string[]> = {
    directory: readdirSync(`${stateDir}/vms`).map(name => `${stateDir}/vms/${name}`),
    tap: await listTaps(tapPrefix, timeoutMs),
    nft: [...((await nft.readCounters(timeoutMs))?.quotas.keys() ?? [])],
    qemu: listWithUuid()
      .filter(({ pid }) => identifyProcess(pid)?.argv.some(argument => argument.includes(`${stateDir}/vms/`)))
      .map(({ pid, startTicks }) => `${pid}:${startTicks}`),
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

const KINDS = ['directory', 'tap', 'nft', 'qemu'] as const
