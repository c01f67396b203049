// The host's side of guest networking: one writer of the owned nftables table, and the egress sampler. Effects: nft, database.
//
// The kernel enforces the cap by itself; sampling serves reports, and restores the table when someone has flushed it.

import { isIPv4 } from 'node:net'
import { type Static, Type } from '@sinclair/typebox'
import type { Clock } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { checked } from '../../contract/shape.ts'
import { forgetConnections } from '../../host/network/conntrack.ts'
import type { Counters, Nft, Quota } from '../../host/network/nft.ts'
import type { NftWatch } from '../../host/network/nft-watch.ts'
import { receivedBytes } from '../../host/network/tap.ts'
import type { LedgerStore } from '../../store/db.ts'
import { restAddress } from '../../store/ledger/address.query.ts'
import { listEgress, recordEgress } from '../../store/ledger/egress.query.ts'
import { noteEvent } from '../../store/ledger/event.query.ts'
import { readMeta, swapMeta } from '../../store/ledger/meta.query.ts'
import { listResources } from '../../store/ledger/resource.query.ts'
import { vmsById } from '../../store/ledger/vm.query.ts'
import type { EgressRow, EgressSample } from '../../store/ledger/vm.table.ts'
import { macAddress } from '../launch.plan.ts'
import { type NamedAddress, openNamesText } from './egress-names.plan.ts'
import { NamedAddresses } from './named-addresses.ts'
import { type GatewayService, type NftPlan, type NftVm, quotaNames, rulesetText } from './nft.plan.ts'

export type VmNetworkDeps = {
  readonly ledger: LedgerStore
  readonly nft: Nft
  readonly clock: Clock
  readonly log: Logger
  /** What the ruleset has whichever VMs there are. */
  readonly ruleset: Omit<NftPlan, 'vms' | 'removed' | 'gatewayService' | 'ownNetworks' | 'names'>
  /** Networks that this host is in at the moment, of the families that VMs have. */
  readonly ownNetworks: () => readonly string[]
  /** Entries of the list of names that instances may reach, and the UDP port at which they ask for them; null: there is no such list. */
  readonly names: { readonly entries: readonly string[]; readonly port: number } | null
  readonly egressLimitBytes: number
  /** What answers to SSH may take once that is spent. */
  readonly rescueLimitBytes: number
}

const Port = Type.Integer({ minimum: 1, maximum: 65_535 })

/** As many upstreams as a workload may have, each with as many addresses as its VM is told. */
const upstreamCountMax = 64 * 8

/** The gateway in VMs of network `gateway`. */
const ServedGateway = Type.Object({
  /** The VM that gets new connections, once it is opened; null: none does. */
  serving: Type.Union([Type.String(), Type.Null()]),
  /** TCP port that it listens on in each VM. */
  port: Port,
  /**
   * Where its VMs may connect to, IPv4 alone. An address of this host opens nothing, but for the gateway address: name that only where the
   * configuration does, never because a resolver has said so.
   */
  upstreams: Type.Array(Type.Object({ address: Type.String(), port: Port }), { maxItems: upstreamCountMax }),
})
export type ServedGateway = Readonly<Omit<Static<typeof ServedGateway>, 'upstreams'>> &
  Pick<GatewayService, 'upstreams'>

/** Name of the fact in the ledger. */
const gatewayFact = 'served_gateway'
/** The list of names that the addresses in the kernel are of. */
const namesFact = 'allow_names'

type Installed = { readonly quotas: ReadonlySet<string>; readonly counters: ReadonlySet<string> }

const nftTimeoutMs = 30_000
const conntrackTimeoutMs = 10_000
const restoredEventMs = 60_000
/** Of a gateway's VM: what it sends is counted, and has no cap. */
const unlimitedBytes = Number.MAX_SAFE_INTEGER

export class VmNetwork {
  readonly #deps: VmNetworkDeps
  readonly #turns = createSerial()
  /** Taps whose objects are to go, or have gone, as long as their ledger row stands. */
  readonly #removed = new Set<string>()
  /** Names of our objects in the kernel; null until first read. */
  #installed: Installed | null = null
  /** Whether the next run begins with reading what the kernel holds, whatever is known of it. */
  #readFirst = false
  /** Networks of this host that the kernel's table knows. */
  #ownNetworks: readonly string[] = []
  /** When it was last put on record that our tables were put back; monotonic. */
  #restoredAtMs = Number.NEGATIVE_INFINITY
  /** The run that has not begun yet. */
  #queued: Promise<void> | null = null
  readonly #named: NamedAddresses
  /** Whether addresses in the kernel may be of another list. */
  #isNamedStale: boolean
  /** To be opened by the run that has not begun yet. */
  #toOpen = new Map<string, NamedAddress>()
  #opening: Promise<void> | null = null
  #gateway: ServedGateway | null

  constructor(deps: VmNetworkDeps) {
    this.#deps = deps
    this.#named = new NamedAddresses(deps.clock)
    this.#isNamedStale = deps.names !== null && readMeta(deps.ledger.db, namesFact) !== listText(deps.names)
    const kept = readMeta(deps.ledger.db, gatewayFact)
    this.#gateway = kept === null ? null : readGateway(JSON.parse(kept))
  }

  /** Makes the kernel's table agree with the ledger. Calls that come meanwhile share the next run. Faults: host.*. */
  sync(): Promise<void> {
    this.#queued ??= this.#turns.run(() => {
      this.#queued = null
      return this.#apply()
    })
    return this.#queued
  }

  /** As `sync`, once a limit in the ledger has changed, or a count in the kernel that is not its own doing. Faults: host.*. */
  resync(): Promise<void> {
    this.#readFirst = true
    return this.sync()
  }

  /**
   * Says which VM the gateway's clients come to, and where its VMs may connect to. Streams stay where they are. It is kept: a daemon that starts
   * again goes on with it until it says otherwise. Faults: internal (no such port or address), host.*.
   */
  async setGateway(gateway: ServedGateway): Promise<void> {
    const read = readGateway(gateway)
    swapMeta(this.#deps.ledger.db, gatewayFact, JSON.stringify(read))
    this.#gateway = read
    await this.sync()
  }

  /**
   * Opens addresses to all instances, each for its time, because a name that they may reach leads there; done once the kernel has them. `by` is the
   * address of the instance that has asked. They come back with the table if somebody else flushes it. False: too many are open already, and these
   * may not be. Faults: host.*.
   */
  async openNamed(addresses: readonly NamedAddress[], by: string): Promise<boolean> {
    for (const item of addresses) {
      if (!this.#named.keep(item, by)) return false
      const { timeoutMs } = this.#toOpen.get(item.address) ?? item
      this.#toOpen.set(item.address, { ...item, timeoutMs: Math.max(timeoutMs, item.timeoutMs) })
    }
    this.#opening ??= this.#turns.run(async () => {
      const batch = [...this.#toOpen.values()]
      this.#opening = null
      this.#toOpen = new Map()
      await this.#deps.nft.applyRuleset(openNamesText(this.#deps.ruleset.table, batch), nftTimeoutMs)
    })
    await this.#opening
    return true
  }

  /** How many addresses are open because of their names. */
  namedCount(): number {
    return this.#named.list().length
  }

  /**
   * Takes a VM's objects out of the kernel for good; the caller strikes the ledger row afterwards. Until then another run may come, which
   * must not put them back.
   */
  async remove(tap: string): Promise<void> {
    this.#removed.add(tap)
    await this.sync()
  }

  /**
   * Lets an address rest that a VM gives back, and forgets its connections: what they allow to come in must not reach the next holder.
   * Call it once no packet of the VM can come any more. Safe to repeat; the caller strikes the ledger row afterwards. Faults: host.*.
   */
  async rest(address: string): Promise<void> {
    const { ledger, clock } = this.#deps
    restAddress(ledger.db, { address, nowMs: clock.nowMs() })
    await forgetConnections(address, conntrackTimeoutMs)
  }

  /**
   * Reads all quotas, stores them, and puts back what is missing or not as the ledger says. Returns what is stored now of the VMs that were
   * read. Faults: host.*; what the database says, once the firewall is as it should be.
   */
  async sample(): Promise<readonly EgressSample[]> {
    const { clock, ledger, log, ruleset } = this.#deps
    if (listResources(ledger.db, 'nft').length === 0) return []
    const { stored, unstored, isDiminished, isOutdated } = await this.#turns.run(() => this.#read())
    const { table } = ruleset
    if (isDiminished) {
      log.error('nftables objects have vanished or count less than they did; restoring them', { table })
      noteEvent(ledger.db, log, { nowMs: clock.nowMs(), kind: 'nft.restored', subject: '', detail: { table } })
    }
    if (isOutdated) log.warn('nftables has other limits than the ledger; writing them again', { table })
    if (isDiminished || isOutdated) await this.resync()
    else await this.followAddresses()
    if (unstored !== null) throw unstored
    return stored
  }

  /** In its turn: nothing is applied between the look at the kernel and what is made of it. */
  async #read() {
    const { nft, clock } = this.#deps
    // Before the quotas: what comes in between is then counted twice where a quota is lost, and not at all never.
    const taken = receivedBytes()
    const quotas = (await nft.readCounters(nftTimeoutMs))?.quotas ?? new Map<string, Quota>()
    const vms = this.#wanted()
    const observedAtMs = clock.nowMs()
    const samples = vms.flatMap(({ vmId, tap, usedBytes }): EgressRow[] => {
      const { cap, rescue } = quotaNames(tap)
      const found = quotas.get(cap)
      // One that is lost leaves the last sample as it is: what the tap has taken since is counted from there.
      if (found === undefined || hasLost({ usedBytes }, found)) return []
      // By the limit that the kernel has: one that is on record may not be in force yet.
      const isBlocked = Math.max(found.usedBytes, usedBytes) >= found.limitBytes
      const rescueBytes = quotas.get(rescue)?.usedBytes ?? 0
      const blockedAtMs = isBlocked ? observedAtMs : null
      const tapBytes = taken.get(tap) ?? null
      return [{ vmId, usedBytes: found.usedBytes, rescueBytes, observedAtMs, blockedAtMs, tapBytes }]
    })
    const pairs = vms.flatMap(quotasOf).map(wanted => ({ wanted, found: quotas.get(wanted.name) }))
    return {
      ...this.#store(samples),
      isDiminished: pairs.some(({ wanted, found }) =>
        found === undefined ? this.#installed?.quotas.has(wanted.name) === true : hasLost(wanted, found),
      ),
      isOutdated: pairs.some(({ wanted, found }) => found !== undefined && found.limitBytes !== wanted.limitBytes),
    }
  }

  /** A database that cannot be written keeps nobody from looking after the firewall. */
  #store(samples: readonly EgressRow[]): { stored: readonly EgressSample[]; unstored: Error | null } {
    try {
      return { stored: this.#deps.ledger.transact(tx => recordEgress(tx, samples)), unstored: null }
    } catch (error) {
      return { stored: [], unstored: wrapFault(error, 'store samples') }
    }
  }

  /** Closes to VMs the networks that this host has come into, and opens those that it has left. Faults: host.*. */
  async followAddresses(): Promise<void> {
    const { ownNetworks, log } = this.#deps
    const networks = ownNetworks()
    if (networks.join() === this.#ownNetworks.join()) return
    log.info('the networks of this host have changed', { networks, before: this.#ownNetworks })
    await this.sync()
  }

  /**
   * Puts our tables back whenever somebody else has changed them, and follows the addresses of this host, until the signal is aborted.
   * Never rejects.
   */
  watch(watch: Pick<NftWatch, 'run'>, signal: AbortSignal): Promise<void> {
    return watch.run(
      {
        onForeignChange: ({ certain }) => (certain ? this.#restore(this.#deps.clock.nowMs()) : this.resync()),
        onAddresses: () => this.followAddresses(),
      },
      signal,
    )
  }

  async #restore(nowMs: number): Promise<void> {
    const { ledger, clock, log, ruleset } = this.#deps
    const { table } = ruleset
    // Two that fight over a table must not fill the disk.
    if (clock.monotonicMs() - this.#restoredAtMs >= restoredEventMs) {
      log.error('somebody else has changed our tables of nftables; restoring them with what was counted', { table })
      noteEvent(ledger.db, log, { nowMs, kind: 'nft.restored', subject: '', detail: { table } })
      this.#restoredAtMs = clock.monotonicMs()
    }
    await this.resync()
  }

  /** What the ledger says that the kernel must hold. */
  #wanted(): WantedVm[] {
    const { db } = this.#deps.ledger
    const { egressLimitBytes, rescueLimitBytes } = this.#deps
    const taken = receivedBytes()
    const used = new Map(listEgress(db).map(row => [row.vmId, row]))
    const rows = listResources(db, 'nft')
    for (const tap of this.#removed) if (!rows.some(row => row.name === tap)) this.#removed.delete(tap)
    // One query for all: one for each held the thread for 300 ms with a thousand VMs.
    const vms = vmsById(
      db,
      rows.map(({ vmId }) => vmId),
    )
    return rows.flatMap(({ name: tap, vmId }) => {
      const vm = vms.get(vmId)
      if (this.#removed.has(tap) || vm === undefined || (vm.address ?? vm.addressV6) === null) return []
      const { usedBytes = 0, rescueBytes: rescueUsedBytes = 0, tapBytes = null } = used.get(vmId) ?? {}
      const unseenBytes = tapBytes === null ? 0 : Math.max(0, (taken.get(tap) ?? 0) - tapBytes)
      const opened = vm.openedAtMs !== null && vm.closedAtMs === null
      const { network } = vm
      const limitBytes = network === 'gateway' ? unlimitedBytes : (vm.egressLimitBytes ?? egressLimitBytes)
      const limits = { limitBytes, usedBytes, rescueLimitBytes, rescueUsedBytes }
      const { address, addressV6 } = vm
      return [{ vmId, tap, address, addressV6, mac: macAddress(vmId), opened, network, ...limits, unseenBytes }]
    })
  }

  #names(): NftPlan['names'] {
    const { names } = this.#deps
    return names === null ? null : { port: names.port, isStale: this.#isNamedStale }
  }

  #keepList(): void {
    const { names, ledger } = this.#deps
    if (names === null || !this.#isNamedStale) return
    this.#isNamedStale = false
    swapMeta(ledger.db, namesFact, listText(names))
  }

  async #apply(): Promise<void> {
    const { nft, ruleset } = this.#deps
    const ownNetworks = this.#deps.ownNetworks()
    if (this.#readFirst) this.#installed = null
    this.#readFirst = false
    const read = this.#installed === null ? await nft.readCounters(nftTimeoutMs) : null
    const isKnown = this.#installed !== null
    const inKernel = this.#installed ?? installedOf(read)
    const found = read?.quotas ?? new Map<string, Quota>()
    const vms = this.#wanted().map(vm => countedIn(found, vm))
    const objects = {
      quotas: new Set(vms.flatMap(vm => Object.values(quotaNames(vm.tap)))),
      counters: new Set(vms.map(vm => vm.tap)),
    }
    const removed = {
      quotas: [
        ...[...inKernel.quotas].filter(name => !objects.quotas.has(name)),
        // These come anew in the same transaction.
        ...vms.flatMap(quotasOf).flatMap(wanted => (mustRenew(wanted, found.get(wanted.name)) ? [wanted.name] : [])),
      ],
      counters: [...inKernel.counters].filter(name => !objects.counters.has(name)),
    }
    // Until nft has returned we do not know what the kernel holds: read again after a failure.
    this.#installed = null
    const gatewayService = serviceOf(this.#gateway, vms)
    const names = this.#names()
    await nft.applyRuleset(rulesetText({ ...ruleset, ownNetworks, gatewayService, names, vms, removed }), nftTimeoutMs)
    this.#installed = objects
    this.#ownNetworks = ownNetworks
    this.#keepList()
    if (!isKnown) await this.#openAgain()
  }

  /** What is remembered, where somebody may have taken it out of the kernel. What cannot be opened again is opened by the next question. */
  async #openAgain(): Promise<void> {
    const addresses = this.#named.list()
    if (addresses.length === 0) return
    const { nft, ruleset, log } = this.#deps
    try {
      await nft.applyRuleset(openNamesText(ruleset.table, addresses), nftTimeoutMs)
    } catch (error) {
      log.error('addresses of names stay closed until they are asked for again', { count: addresses.length, error })
    }
  }
}

function listText({ entries }: { readonly entries: readonly string[] }): string {
  return entries.toSorted().join('\n')
}

type WantedVm = NftVm & {
  readonly vmId: string
  /** What its tap has taken since its last sample, whatever became of that. */
  readonly unseenBytes: number
}

type WantedQuota = Quota & { readonly name: string }

function quotasOf({ tap, ...vm }: NftVm): WantedQuota[] {
  const { cap, rescue } = quotaNames(tap)
  return [
    { name: cap, limitBytes: vm.limitBytes, usedBytes: vm.usedBytes },
    { name: rescue, limitBytes: vm.rescueLimitBytes, usedBytes: vm.rescueUsedBytes },
  ]
}

/**
 * What a VM has used: as the kernel has counted, or where it counts no more, as the ledger has, and all that the tap has taken since. An object
 * that is in the kernel after all goes on with its own count. Never above the limit: the kernel takes no quota that has used more than that.
 */
function countedIn(found: ReadonlyMap<string, Quota>, vm: WantedVm): WantedVm {
  const { cap, rescue } = quotaNames(vm.tap)
  const kernel = found.get(cap)
  const usedBytes = kernel === undefined || hasLost(vm, kernel) ? vm.usedBytes + vm.unseenBytes : kernel.usedBytes
  return {
    ...vm,
    usedBytes: Math.min(vm.limitBytes, Math.max(vm.usedBytes, usedBytes)),
    rescueUsedBytes: Math.min(vm.rescueLimitBytes, Math.max(vm.rescueUsedBytes, found.get(rescue)?.usedBytes ?? 0)),
  }
}

/**
 * Whether a new quota must take the place of one in the kernel. One whose limit changes keeps what it has used, and once it is spent that
 * grows by every packet that it drops, unseen: nft shows the limit (nft_quota_do_dump in net/netfilter/nft_quota.c). With a higher limit it
 * would be spent still, or have counted what never left. While it is spent nothing leaves, so what it shows is exact.
 */
function mustRenew(wanted: WantedQuota, found: Quota | undefined): boolean {
  if (found === undefined) return false
  const isSpent = found.usedBytes >= found.limitBytes
  return hasLost(wanted, found) || (isSpent && wanted.limitBytes > found.limitBytes)
}

/** Whether the kernel has counted less than the ledger: somebody else has reset or replaced it. */
function hasLost(wanted: Pick<Quota, 'usedBytes'>, found: Quota): boolean {
  // No quota shows more than its limit.
  return found.usedBytes < Math.min(wanted.usedBytes, found.limitBytes)
}

function serviceOf(gateway: ServedGateway | null, vms: readonly WantedVm[]): GatewayService | null {
  if (gateway === null) return null
  const { serving, port, upstreams } = gateway
  const vm = vms.find(({ vmId, network, opened }) => vmId === serving && network === 'gateway' && opened)
  return { port, address: vm?.address ?? null, upstreams }
}

/** What a resolver has said is written into a ruleset: it is an address, or it is refused. Fault internal. */
function readGateway(value: unknown): ServedGateway {
  const gateway = checked(ServedGateway, value, { what: 'the gateway that is served', code: 'internal' })
  const wrong = gateway.upstreams.find(({ address }) => !isIPv4(address))
  if (wrong !== undefined)
    throw new Fault('internal', `not an address of an upstream: ${JSON.stringify(wrong.address)}`)
  return gateway
}

function installedOf(read: Counters | null): Installed {
  return { quotas: new Set(read?.quotas.keys()), counters: new Set(read?.counters.keys()) }
}
