// Resources on this host without a ledger row, and rows without their resource. Effects: reads kernel and disk state.

import { existsSync, readdirSync } from 'node:fs'
import { basename } from 'node:path'
import { linkNames } from '../../base/link-names.ts'
import { rememberedAddresses } from '../../host/network/connections.ts'
import { hereNetns } from '../../host/network/netns.ts'
import type { Nft } from '../../host/network/nft.ts'
import { poolRoutes } from '../../host/network/pool-routes.ts'
import { listTaps } from '../../host/network/tap.ts'
import { listLinks, type VmNamespace } from '../../host/network/vm-namespace.ts'
import { listVmScopes } from '../../host/vm-scopes.ts'
import { identifyProcess } from '../../linux/process/running.ts'
import { listWithUuid } from '../../linux/process.ts'
import { processesByUid } from '../../linux/users.ts'
import type { LedgerDb } from '../../store/db.ts'
import { listResources } from '../../store/ledger/resource.query.ts'
import { vmById } from '../../store/ledger/vm.query.ts'
import type { Resource, ResourceKind } from '../../store/ledger/vm.table.ts'
import type { Pools } from '../capacity.query.ts'
import { isBeforeProgram } from '../launch/jail.plan.ts'
import { listTpms } from '../launch/tpm.driver.ts'
import { tpmLabelPrefix } from '../launch/tpm.plan.ts'
import { type UidRange, vmPaths } from '../launch.plan.ts'
import { probeTaps, tapOfQuota } from '../network/nft.plan.ts'
import { probeAddress } from '../network/probe-address.plan.ts'
import { idleQemus } from './idle-qemu.driver.ts'
import {
  connectionLeaks,
  connectionsUnread,
  type FoundResource,
  type Leak,
  linkLeak,
  missingResource,
  type Routed,
  routeLeaks,
  scopeLeak,
  unknownResource,
} from './leaks.plan.ts'

export type LeaksDeps = {
  readonly db: LedgerDb
  /** Tables in the namespace of VMs. */
  readonly nft: Nft
  readonly namespace: Pick<VmNamespace, 'name' | 'netns' | 'link'>
  readonly stateDir: string
  readonly tapPrefix: string
  /** Pools of VMs' addresses, CIDR. */
  readonly pools: Pools
  readonly uids: UidRange
  /** Mount point of control groups. Default: the usual one. */
  readonly cgroupRoot?: string
}

const timeoutMs = 10_000

/**
 * Compares ledger and host. VMs that are being created or released may be reported once; a leak is reported twice in a
 * row. Faults: host.*.
 */
export async function findLeaks(deps: LeaksDeps): Promise<Leak[]> {
  const [resources, links, connections, idle] = await Promise.all([
    resourceLeaks(deps),
    strayLinks(deps),
    strayConnections(deps),
    idleQemus(deps),
  ])
  return [...resources, ...links, ...strayRoutes(deps), ...connections, ...strayScopes(deps), ...idle]
}

async function resourceLeaks({ db, nft, namespace, stateDir, tapPrefix, uids }: LeaksDeps): Promise<Leak[]> {
  const ownerless = (name: string): FoundResource => ({ name, vm: null })
  const names = readdirSync(`${stateDir}/vms`)
  const found: Record<(typeof KINDS)[number], readonly FoundResource[]> = {
    directory: names.map(name => ({ name: `${stateDir}/vms/${name}`, vm: vmIdIn(name) })),
    disk: names
      .map(name => ({ name: vmPaths(stateDir, name).scratch, vm: vmIdIn(name) }))
      .filter(disk => existsSync(disk.name)),
    tap: (await listTaps(tapPrefix, timeoutMs, namespace.netns)).filter(tap => !isProbe(tap, tapPrefix)).map(ownerless),
    nft: [...new Set([...((await nft.readCounters(timeoutMs))?.quotas.keys() ?? [])].map(tapOfQuota))].map(ownerless),
    qemu: listWithUuid()
      .filter(({ pid }) => isQemuOf(stateDir, identifyProcess(pid)?.argv ?? []))
      .map(({ pid, startTicks, uuid }) => ({ name: `${pid}:${startTicks}`, vm: uuid })),
    tpm: listTpms(stateDir).map(({ pid, startTicks }) => ownerless(`${pid}:${startTicks}`)),
    uid: uidsWithProcesses(uids, stateDir).map(ownerless),
  }
  return KINDS.flatMap(kind => {
    const recorded = listResources(db, kind)
    const known = new Set(recorded.map(row => row.name))
    const present = new Set(found[kind].map(({ name }) => name))
    return [
      ...found[kind].filter(({ name }) => !known.has(name)).map(found => unknownResource(kind, found, namespace.name)),
      ...recorded
        .filter(row => vmById(db, row.vmId)?.state === 'running' && !present.has(row.name))
        .map(row => missingResource(kind, { name: row.name, vm: row.vmId })),
    ]
  })
}

/** Excludes a bwrap that waits for one. */
function isQemuOf(stateDir: string, argv: readonly string[]): boolean {
  return argv.some(argument => argument.includes(`${stateDir}/vms/`)) && !isBeforeProgram(argv)
}

const KINDS = ['directory', 'disk', 'tap', 'nft', 'tpm', 'qemu', 'uid'] as const satisfies readonly ResourceKind[]

/** Returns the VM's id. VMs' directories are named by their ids, but there may be other entries. */
function vmIdIn(path: string): string | null {
  const name = basename(path)
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(name) ? name : null
}

/** Returns links of a former appliance, with another `network.tap_prefix`. */
async function strayLinks({ namespace }: LeaksDeps): Promise<Leak[]> {
  return (await listLinks()).filter(name => name !== namespace.link).map(linkLeak)
}

/** Returns stray routes: in the namespace by each VM's tap, on this host by the link. */
function strayRoutes({ db, namespace, pools, tapPrefix }: LeaksDeps): Leak[] {
  const taps = new Map(listResources(db, 'tap').map(row => [row.vmId, row.name]))
  const vms = addressesOf(db).flatMap(({ vmId, name: address }): Routed[] => {
    const tap = taps.get(vmId)
    return tap === undefined ? [] : [{ vm: vmId, tap, address, isRunning: vmById(db, vmId)?.state === 'running' }]
  })
  const inside = namespace.netns.run(() => poolRoutes({ pools, tapPrefix }))
  const here = poolRoutes({ pools, tapPrefix })
  const isOurs = (device: string) => isProbe(device, tapPrefix) || device === linkNames(tapPrefix).inside
  const ofVms = inside.filter(({ device }) => !isOurs(device))
  return [
    ...routeLeaks(ofVms, { vms, wayOf: ({ tap }) => tap, where: namespace.name }),
    ...routeLeaks(here, { vms, wayOf: () => namespace.link, where: null }),
  ]
}

function isProbe(device: string, tapPrefix: string): boolean {
  return probeTaps(tapPrefix).includes(device)
}

async function strayConnections({ db, namespace, pools }: LeaksDeps): Promise<Leak[]> {
  const held = new Set(addressesOf(db).map(row => row.name))
  // The kernel remembers packets of the probe of firewalls for two minutes, and it sends some each half minute.
  const probed = [pools.v4, pools.v6].flatMap(pool =>
    pool === null ? [] : [probeAddress(pool, 'first'), probeAddress(pool, 'last')],
  )
  const isHeld = (address: string) => held.has(address) || probed.includes(address)
  const places = [
    { netns: namespace.netns, where: namespace.name },
    { netns: hereNetns, where: null },
  ]
  const leaks = [pools.v4, pools.v6].flatMap(network =>
    places.map(async ({ netns, where }): Promise<Leak[]> => {
      if (network === null) return []
      const { addresses, whole } = await rememberedAddresses({ network, isHeld, timeoutMs, netns })
      return [...connectionLeaks(addresses, where), ...(whole ? [] : [connectionsUnread(network, where)])]
    }),
  )
  return (await Promise.all(leaks)).flat()
}

/** Returns the addresses of both families. */
function addressesOf(db: LedgerDb): Resource[] {
  return (['address', 'address_v6'] as const).flatMap(kind => listResources(db, kind))
}

/**
 * Returns scopes of VMs in no ledger, unless another appliance on this machine has them, and scopes of gone VMs that
 * have processes.
 */
function strayScopes({ db, stateDir, cgroupRoot }: LeaksDeps): Leak[] {
  return listVmScopes(cgroupRoot)
    .filter(({ vmId, pids }) => {
      const vm = vmById(db, vmId)
      // systemd takes a moment to remove an empty scope.
      return vm === null || (vm.state === 'gone' && pids.length > 0)
    })
    .filter(({ pids }) => pids.length === 0 || !pids.every(pid => isElsewhere(pid, stateDir)))
    .map(scopeLeak)
}

/** Returns uids of the range with processes, except QEMUs of another appliance on this machine. */
function uidsWithProcesses({ min, max }: UidRange, stateDir: string): string[] {
  return [...processesByUid()]
    .filter(([uid, pids]) => uid >= min && uid <= max && !pids.every(pid => isElsewhere(pid, stateDir)))
    .map(([uid]) => `${uid}`)
}

/**
 * Reports whether another appliance owns the process. QEMU's name contains its VM's directory; swtpm's label begins
 * with its appliance's prefix.
 */
function isElsewhere(pid: number, stateDir: string): boolean {
  const argv = identifyProcess(pid)?.argv ?? []
  if (argv.some(argument => /,prefix=tpm-[0-9a-f]{12}-/.test(argument)))
    return !argv.some(argument => argument.includes(tpmLabelPrefix(stateDir)))
  const name = argv[argv.indexOf('-name') + 1]
  return argv.includes('-uuid') && /\/vms\/[^/]+$/.test(name ?? '') && !name?.startsWith(`${stateDir}/vms/`)
}
