// Differences between ledger and host: their names and remedies. Pure.

import { shellWord } from '../../base/shell-word.ts'
import type { ConnectionSide, RememberedAddress } from '../../host/network/connections.ts'
import type { PoolRoute } from '../../host/network/pool-routes.ts'
import type { ResourceKind } from '../../store/ledger/vm.table.ts'

export type LeakKind =
  | Exclude<ResourceKind, 'address' | 'address_v6'>
  | 'conntrack'
  | 'link'
  | 'route'
  | 'scope'
  | 'vm'
  | 'gateway'

/**
 * `unknown`: on the host, in no ledger. `missing`: in the ledger of a VM that should have it, not on the host.
 * `stopped`: its process is in state T. `unanswered`: QEMU is silent on its second monitor. `unread`: there are more
 * than were read. `unowned`: a VM that no record names.
 */
export type LeakDetail = 'unknown' | 'missing' | 'stopped' | 'unanswered' | 'unread' | 'unowned'

export type Leak = {
  readonly kind: LeakKind
  readonly name: string
  readonly detail: LeakDetail
  /** Id of the VM that it belongs to. Null if unknown. */
  readonly vm: string | null
  /** The command that removes it, or the daemon's next action. */
  readonly remedy: string
}

/** A resource of the ledger, as found on the host. */
export type FoundResource = { readonly name: string; readonly vm: string | null }

/** Describes a resource that is on the host and in no ledger, with the command that removes it. */
export function unknownResource(
  kind: Exclude<ResourceKind, 'address' | 'address_v6'>,
  { name, vm }: FoundResource,
  namespace: string,
): Leak {
  return { kind, name, detail: 'unknown', vm, remedy: REMOVAL[kind](name, namespace) }
}

/** Commands that remove a resource. `namespace`: the namespace of taps. */
const REMOVAL: Record<Exclude<ResourceKind, 'address' | 'address_v6'>, (name: string, namespace: string) => string> = {
  directory: name => `rm --recursive --one-file-system ${shellWord(name)}`,
  disk: name => `rm ${shellWord(name)}`,
  tap: (name, namespace) => `ip -netns ${shellWord(namespace)} link delete dev ${shellWord(name)}`,
  nft: () => 'systemctl restart strongroom: its first ruleset leaves out what is in no ledger; VMs go on meanwhile',
  qemu: name => `kill -KILL ${pidOf(name)}`,
  tpm: name => `kill -KILL ${pidOf(name)}`,
  uid: name => `pkill -KILL --uid ${shellWord(name)}`,
}

/** Describes a resource that is in the ledger of a running VM and not on the host. */
export function missingResource(
  kind: Exclude<ResourceKind, 'address' | 'address_v6'>,
  { name, vm }: FoundResource,
): Leak {
  return { kind, name, detail: 'missing', vm, remedy: CONSEQUENCE[kind] }
}

const CONSEQUENCE: Record<Exclude<ResourceKind, 'address' | 'address_v6'>, string> = {
  directory: 'delete the instance (strongroom instance delete): its console is lost; the VM itself goes on',
  disk: 'nothing: QEMU holds the file open, and its room is free once the VM ends',
  tap: 'the daemon ends the VM as network_lost within a minute',
  nft: 'the daemon puts it back with its next sample (network.sample_interval_ms)',
  qemu: 'the daemon ends the VM as lost at its next look',
  tpm: 'nothing: the VM goes on without a TPM until it ends',
  uid: 'the daemon ends the VM as lost at its next look',
}

/** Returns the process id. Process names in the ledger have the form `pid:start`. */
function pidOf(name: string): string {
  return shellWord(name.slice(0, name.indexOf(':')))
}

/** Name of the namespace of VMs, for resources in it; null for those of this host. */
type LeakLocation = { readonly where: string | null }

function inside(where: string | null): string {
  return where === null ? '' : `ip netns exec ${shellWord(where)} `
}

/** Describes this host's end of a link to VMs that does not belong to the appliance. */
export function linkLeak(name: string): Leak {
  return { kind: 'link', name, detail: 'unknown', vm: null, remedy: `ip link delete dev ${shellWord(name)}` }
}

export type Routed = {
  readonly vm: string
  readonly tap: string
  readonly address: string
  readonly isRunning: boolean
}

/**
 * Returns routes through our taps or to addresses of the pool that belong to no VM, and missing routes of running VMs.
 */
export function routeLeaks(
  routes: readonly PoolRoute[],
  { vms, wayOf, where }: { readonly vms: readonly Routed[]; readonly wayOf: (vm: Routed) => string } & LeakLocation,
): Leak[] {
  const nameOf = (address: string, prefixLength: number, device: string) => `${address}/${prefixLength} dev ${device}`
  const wanted = new Map(vms.map(vm => [nameOf(vm.address, vm.address.includes(':') ? 128 : 32, wayOf(vm)), vm]))
  const byTap = new Map(vms.map(vm => [vm.tap, vm.vm]))
  const present = new Set(routes.map(({ address, prefixLength, device }) => nameOf(address, prefixLength, device)))
  const unknown = routes.flatMap(({ address, prefixLength, device }): Leak[] => {
    const name = nameOf(address, prefixLength, device)
    if (wanted.has(name)) return []
    // A prohibiting route has no interface.
    const by = device === '*' ? '' : ` dev ${shellWord(device)}`
    const remedy = `${inside(where)}ip route delete ${address}/${prefixLength}${by}`
    return [{ kind: 'route', name, detail: 'unknown', vm: byTap.get(device) ?? null, remedy }]
  })
  const missing = [...wanted].flatMap(([name, vm]): Leak[] =>
    !vm.isRunning || present.has(name)
      ? []
      : [
          {
            kind: 'route',
            name,
            detail: 'missing',
            vm: vm.vm,
            remedy: 'the daemon puts it back at its next look at the VM',
          },
        ],
  )
  return [...unknown, ...missing]
}

/** Returns connections of addresses that no VM holds. */
export function connectionLeaks(addresses: readonly RememberedAddress[], where: string | null): Leak[] {
  return addresses.map(({ address, counts }) => {
    const sides = Object.keys(counts) as ConnectionSide[]
    const family = address.includes(':') ? '--family ipv6 ' : ''
    const remedy = sides.map(side => `${inside(where)}conntrack --delete ${family}${side} ${address}`).join('; ')
    return { kind: 'conntrack', name: address, detail: 'unknown', vm: null, remedy }
  })
}

export function connectionsUnread(pool: string, where: string | null): Leak {
  const remedy = `read them by hand: ${inside(where)}conntrack --dump --family ${pool.includes(':') ? 'ipv6' : 'ipv4'}`
  return { kind: 'conntrack', name: pool, detail: 'unread', vm: null, remedy }
}

export function scopeLeak({ unit, vmId }: { readonly unit: string; readonly vmId: string }): Leak {
  return { kind: 'scope', name: unit, detail: 'unknown', vm: vmId, remedy: `systemctl stop ${unit}` }
}

const GIVEN_UP = 'else the daemon ends the VM as unanswered within two minutes'

/** Describes a VM's QEMU that is stopped or does not answer. */
export function idleQemu({ name, vm }: FoundResource, detail: 'stopped' | 'unanswered'): Leak {
  const pid = pidOf(name)
  const remedy =
    detail === 'stopped'
      ? `kill -CONT ${pid} lets it go on; ${GIVEN_UP}`
      : `nothing: it may go on by itself; ${GIVEN_UP}. If you hold its second monitor (rescue.sock) open, close it`
  return { kind: 'qemu', name, detail, vm, remedy }
}

/** Describes a claimed VM that no record names. It may contain a customer's work, so only the operator ends it. */
export function unownedVm(vm: string, qemu: string | null): Leak {
  const remedy =
    qemu === null
      ? 'nothing: it has no QEMU any more, and the daemon clears it away'
      : `look whether anybody needs it, then kill -KILL ${pidOf(qemu)}; the daemon clears the rest away`
  return { kind: 'vm', name: vm, detail: 'unowned', vm, remedy }
}
