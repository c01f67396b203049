// The only writer of our nftables tables, in the namespace of VMs and on this host, and the egress sampler. Effects:
// nft, database.
//
// The kernel enforces the cap; samples serve reports and restore a flushed table.

import { isIPv4 } from 'node:net'
import type { Clock } from '../../base/clock.ts'
import { wrapFault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial } from '../../base/work/serial.ts'
import { forgetConnections } from '../../host/network/conntrack.ts'
import { hereNetns, type Netns } from '../../host/network/netns.ts'
import type { Counters, Nft, Quota } from '../../host/network/nft.ts'
import type { NftWatch } from '../../host/network/nft-watch.ts'
import { resetClientsOf } from '../../host/network/reset-connections.ts'
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
import { countedIn, hasLost, mustRenew, quotasOf, type WantedVm } from './counted.plan.ts'
import { type NamedAddress, openNamesText } from './egress-names.plan.ts'
import { type HostTablePlan, hostTableText } from './host-table.plan.ts'
import { NamedAddresses } from './named-addresses.ts'
import { type GatewayVmService, type NftPlan, quotaNames, rulesetText } from './nft.plan.ts'
import { PublishedAllowances } from './published/allowances.ts'
import { gatewayVmServiceOf, readGatewayVm, type ServedGatewayVm } from './served-gateway.ts'

export type VmNetworkDeps = {
  readonly ledger: LedgerStore
  /** Tables in the namespace of VMs. */
  readonly nft: Nft
  /** Network namespace of the taps. Default: the namespace of the process. */
  readonly netns?: Netns
  readonly clock: Clock
  readonly log: Logger
  /** Parts of the ruleset that do not depend on VMs. */
  readonly ruleset: Omit<NftPlan, 'vms' | 'removed' | 'gatewayVmService' | 'ownNetworks' | 'hostAddresses' | 'names'>
  /** This host's own table. */
  readonly host: { readonly nft: Pick<Nft, 'applyRuleset'>; readonly ruleset: Omit<HostTablePlan, 'gatewayVmService'> }
  /** Closes routing inside to what the table there has not marked, and keeps it so. Default: nothing is closed. */
  readonly closeRouting?: () => Promise<void>
  /** Returns the networks that this host is currently in, of the families that VMs have. */
  readonly ownNetworks: () => readonly string[]
  /** Returns the addresses of this host, of the same families. */
  readonly ownAddresses: () => readonly string[]
  /** The list of names that instances may reach, and its DNS's UDP port. Null if there is no list. */
  readonly names: { readonly entries: readonly string[]; readonly port: number } | null
  readonly egressLimitBytes: number
  /** Egress allowance in bytes for answers to SSH once the cap is spent. */
  readonly rescueLimitBytes: number
}

/** Name of the fact in the ledger. */
const gatewayVmFact = 'served_gateway'
/** Name of the fact with the list of names to which the kernel's addresses belong. */
const namesFact = 'allow_names'

type Installed = { readonly quotas: ReadonlySet<string>; readonly counters: ReadonlySet<string> }

const nftTimeoutMs = 30_000
const conntrackTimeoutMs = 10_000
const restoredEventMs = 60_000
/** Used for a gateway's VM, whose egress is counted but not capped. */
const unlimitedBytes = Number.MAX_SAFE_INTEGER

export class VmNetwork {
  readonly #deps: VmNetworkDeps
  readonly #turns = createSerial()
  /** Taps whose objects are removed or about to be, while their ledger row still exists. */
  readonly #removed = new Set<string>()
  /** Names of our objects in the kernel. Null if not read yet. */
  #installed: Installed | null = null
  /** Whether the next run reads the kernel first, even if its state is known. */
  #readFirst = false
  /** Networks and addresses of this host that are in the kernel's table. */
  #own: OwnAddresses = { ownNetworks: [], hostAddresses: [] }
  /** Text of this host's table in the kernel. Null if unknown. */
  #hostText: string | null = null
  /** Monotonic time of the last journal entry about restored tables. */
  #restoredAtMs = Number.NEGATIVE_INFINITY
  /** The run that has not begun yet. */
  #queued: Promise<void> | null = null
  readonly #named: NamedAddresses
  /** Whether addresses in the kernel may belong to another list. */
  #isNamedStale: boolean
  /** Addresses that the next run opens. */
  #toOpen = new Map<string, NamedAddress>()
  #opening: Promise<void> | null = null
  #gatewayVm: ServedGatewayVm | null
  readonly #published: PublishedAllowances

  constructor(deps: VmNetworkDeps) {
    this.#deps = deps
    this.#named = new NamedAddresses(deps.clock)
    this.#published = new PublishedAllowances(deps.ledger)
    this.#isNamedStale = deps.names !== null && readMeta(deps.ledger.db, namesFact) !== listText(deps.names)
    const kept = readMeta(deps.ledger.db, gatewayVmFact)
    this.#gatewayVm = kept === null ? null : readGatewayVm(JSON.parse(kept))
  }

  /** Makes the kernel's table match the ledger. Calls during a run share the next one. Faults: host.*. */
  sync(): Promise<void> {
    this.#queued ??= this.#turns.run(() => {
      this.#queued = null
      return this.#apply()
    })
    return this.#queued
  }

  /**
   * Like `sync`, after a limit changed in the ledger or another program changed a count in the kernel. Faults:
   * host.*.
   */
  resync(): Promise<void> {
    this.#readFirst = true
    return this.sync()
  }

  /**
   * Sets the VM for new gateway connections and the upstreams of the gateway's VMs. Open streams continue. The setting
   * is stored, so a restarted daemon continues with it. Faults: internal (invalid port or address), host.*.
   */
  async setGatewayVm(gatewayVm: ServedGatewayVm): Promise<void> {
    const read = readGatewayVm(gatewayVm)
    swapMeta(this.#deps.ledger.db, gatewayVmFact, JSON.stringify(read))
    this.#gatewayVm = read
    await this.sync()
  }

  /**
   * Opens the public port of a VM, whose answers may use so many bytes of its cap, what they have used included; 0
   * closes it. The setting is stored. Returns whether all are used, as of the newest sample. Faults: host.*.
   */
  async setPublished(vmId: string, limitBytes: number): Promise<boolean> {
    // A spent quota under a higher limit is replaced, which needs the kernel's count.
    if (this.#published.set(vmId, limitBytes) || this.#installed === null) await this.resync()
    const { usedBytes = 0 } = this.#published.of(vmId) ?? {}
    return limitBytes > 0 && usedBytes >= limitBytes
  }

  /**
   * Opens the addresses of a permitted name to all instances, each until it expires; resolves once the kernel has them.
   * `by`: address of the requesting instance. They are restored with a flushed table. Returns false if too many are
   * open. Faults: host.*.
   */
  async openNamed(addresses: readonly NamedAddress[], by: string): Promise<boolean> {
    for (const named of addresses) {
      if (!this.#named.keep(named, by)) return false
      const { timeoutMs } = this.#toOpen.get(named.address) ?? named
      this.#toOpen.set(named.address, { ...named, timeoutMs: Math.max(timeoutMs, named.timeoutMs) })
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

  /** Returns the number of addresses that are open by name. */
  namedCount(): number {
    return this.#named.list().length
  }

  /**
   * Removes a VM's objects from the kernel; no later run restores them. The caller deletes the ledger row afterwards.
   */
  async remove(tap: string): Promise<void> {
    this.#removed.add(tap)
    await this.sync()
  }

  /**
   * Rests a released address and deletes its connections, so that the next holder gets none of their packets. Clients
   * that connected by an address of this host get a reset. Call it when no more packets of the VM can arrive, before
   * deleting the ledger row. Safe to repeat. Faults: host.*.
   */
  async rest(address: string, random: RandomBytes): Promise<void> {
    const { ledger, clock, log, netns = hereNetns } = this.#deps
    restAddress(ledger.db, { address, nowMs: clock.nowMs() })
    const places = new Set([netns, hereNetns])
    for (const place of places) {
      if (!isIPv4(address)) break
      // The address rests in any case. Clients that get no reset end by their own time limits.
      await resetClientsOf(address, { netns: place, random, timeoutMs: conntrackTimeoutMs }).catch(error => {
        log.error('clients of a VM that is gone may get no reset', { address, error })
      })
    }
    for (const place of places) await forgetConnections(address, conntrackTimeoutMs, place)
  }

  /**
   * Reads and stores all quotas, and restores missing or differing objects. Returns the stored samples. Faults: host.*;
   * those of the database, after the firewall is restored.
   */
  async sample(): Promise<readonly EgressSample[]> {
    const { clock, ledger, log, ruleset, closeRouting } = this.#deps
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
    if (this.#installed !== null)
      await closeRouting?.().catch(error => log.error('routing of VMs is not closed; retrying', { table, error }))
    if (unstored !== null) throw unstored
    return stored
  }

  /** Reads the kernel's state. Serialized, so that nothing is applied between reading and using it. */
  async #read() {
    const { nft, clock } = this.#deps
    // Read before the quotas: if a quota is lost, bytes in between are counted twice, instead of never.
    const taken = this.#receivedBytes()
    const quotas = (await nft.readCounters(nftTimeoutMs))?.quotas ?? new Map<string, Quota>()
    const vms = this.#wanted()
    const observedAtMs = clock.nowMs()
    const samples = vms.flatMap(({ vmId, tap, usedBytes }): EgressRow[] => {
      const { cap, rescue, published } = quotaNames(tap)
      const found = quotas.get(cap)
      const answered = quotas.get(published)
      if (answered !== undefined) this.#published.noteUsed(vmId, answered.usedBytes)
      // A lost quota keeps the last sample; the tap's bytes are counted from there.
      if (found === undefined || hasLost({ usedBytes }, found)) return []
      // Uses the kernel's limit, because a recorded limit may not be in force yet.
      const isBlocked = Math.max(found.usedBytes, usedBytes) >= found.limitBytes
      const rescueBytes = quotas.get(rescue)?.usedBytes ?? 0
      const blockedAtMs = isBlocked ? observedAtMs : null
      const tapBytes = taken.get(tap) ?? null
      return [{ vmId, usedBytes: found.usedBytes, rescueBytes, observedAtMs, blockedAtMs, tapBytes }]
    })
    const pairs = vms.flatMap(quotasOf).map(wanted => ({ wanted, found: quotas.get(wanted.name) }))
    return {
      ...this.#store(samples, vms),
      isDiminished: pairs.some(({ wanted, found }) =>
        found === undefined ? this.#installed?.quotas.has(wanted.name) === true : hasLost(wanted, found),
      ),
      isOutdated: pairs.some(({ wanted, found }) => found !== undefined && found.limitBytes !== wanted.limitBytes),
    }
  }

  /** Stores the samples. A failed write does not stop the firewall's maintenance. */
  #store(
    samples: readonly EgressRow[],
    vms: readonly WantedVm[],
  ): { stored: readonly EgressSample[]; unstored: Error | null } {
    try {
      this.#published.store(new Set(vms.map(({ vmId }) => vmId)))
      return { stored: this.#deps.ledger.transact(tx => recordEgress(tx, samples)), unstored: null }
    } catch (error) {
      return { stored: [], unstored: wrapFault(error, 'store samples') }
    }
  }

  /** Applies changes of the addresses and networks of this host, which are closed to VMs. Faults: host.*. */
  async followAddresses(): Promise<void> {
    const now = this.#ownNow()
    if (JSON.stringify(now) === JSON.stringify(this.#own)) return
    this.#deps.log.info('the networks of this host have changed', { now, before: this.#own })
    await this.sync()
  }

  #ownNow(): OwnAddresses {
    const { ownNetworks, ownAddresses } = this.#deps
    return { ownNetworks: ownNetworks(), hostAddresses: ownAddresses() }
  }

  /** Restores the table of VMs after changes by others, until the signal is aborted. Never rejects. */
  watch(watch: Pick<NftWatch, 'run'>, signal: AbortSignal): Promise<void> {
    return watch.run(
      {
        onForeignChange: ({ certain }) => (certain ? this.#restore(this.#deps.clock.nowMs()) : this.resync()),
        onAddresses: async () => {},
      },
      signal,
    )
  }

  /** Does the same for this host's table, and follows its addresses. Calls `onAddresses` before. Never rejects. */
  watchHost(
    watch: Pick<NftWatch, 'run'>,
    { signal, onAddresses }: { readonly signal: AbortSignal; readonly onAddresses: () => Promise<void> },
  ): Promise<void> {
    return watch.run(
      {
        onForeignChange: async ({ certain }) => {
          const { log, host } = this.#deps
          if (certain)
            log.warn('another program changed the table of this host; restoring it', { table: host.ruleset.table })
          this.#hostText = null
          await this.sync()
        },
        onAddresses: async () => {
          await onAddresses()
          await this.followAddresses()
        },
      },
      signal,
    )
  }

  async #restore(nowMs: number): Promise<void> {
    const { ledger, clock, log, ruleset } = this.#deps
    const { table } = ruleset
    // Two programs that repeatedly change a table must not fill the disk.
    if (clock.monotonicMs() - this.#restoredAtMs >= restoredEventMs) {
      log.error('another program changed our nftables tables; restoring them with their counts', { table })
      noteEvent(ledger.db, log, { nowMs, kind: 'nft.restored', subject: '', detail: { table } })
      this.#restoredAtMs = clock.monotonicMs()
    }
    await this.resync()
  }

  #receivedBytes(): ReadonlyMap<string, number> {
    return receivedBytes(this.#deps.netns ?? hereNetns)
  }

  /** Returns the VMs that the kernel must hold according to the ledger. */
  #wanted(): WantedVm[] {
    const { db } = this.#deps.ledger
    const { egressLimitBytes, rescueLimitBytes } = this.#deps
    const taken = this.#receivedBytes()
    const used = new Map(listEgress(db).map(row => [row.vmId, row]))
    const rows = listResources(db, 'nft')
    for (const tap of this.#removed) if (!rows.some(row => row.name === tap)) this.#removed.delete(tap)
    // One query for all, because a query for each VM blocked the thread for 300 ms with a thousand VMs.
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
      const isPublic = this.#deps.ruleset.publicPort !== null && network === 'world'
      const published = isPublic ? this.#published.of(vmId) : undefined
      const at = { vmId, tap, address, addressV6, mac: macAddress(vmId), opened, network }
      return [{ ...at, ...limits, unseenBytes, ...(published === undefined ? {} : { published }) }]
    })
  }

  #keepList(): void {
    const { names, ledger } = this.#deps
    if (names === null || !this.#isNamedStale) return
    this.#isNamedStale = false
    swapMeta(ledger.db, namesFact, listText(names))
  }

  async #apply(): Promise<void> {
    const { nft, ruleset, names: listed, closeRouting } = this.#deps
    const own = this.#ownNow()
    if (this.#readFirst) this.#installed = null
    this.#readFirst = false
    const read = this.#installed === null ? await nft.readCounters(nftTimeoutMs) : null
    const isKnown = this.#installed !== null
    const inKernel = this.#installed ?? installedOf(read)
    const found = read?.quotas ?? new Map<string, Quota>()
    const vms = this.#wanted().map(vm => countedIn(found, vm))
    const objects = {
      quotas: new Set(vms.flatMap(quotasOf).map(({ name }) => name)),
      counters: new Set(vms.map(vm => vm.tap)),
    }
    const removed = {
      quotas: [
        ...[...inKernel.quotas].filter(name => !objects.quotas.has(name)),
        // The same transaction adds these again.
        ...vms.flatMap(quotasOf).flatMap(wanted => (mustRenew(wanted, found.get(wanted.name)) ? [wanted.name] : [])),
      ],
      counters: [...inKernel.counters].filter(name => !objects.counters.has(name)),
    }
    // The kernel's state is unknown until nft returns, so it is read again after a failure.
    this.#installed = null
    const gatewayVmService = gatewayVmServiceOf(this.#gatewayVm, vms)
    const names = listed === null ? null : { port: listed.port, isStale: this.#isNamedStale }
    await nft.applyRuleset(rulesetText({ ...ruleset, ...own, gatewayVmService, names, vms, removed }), nftTimeoutMs)
    this.#installed = objects
    this.#own = own
    this.#keepList()
    if (!isKnown) await this.#openAgain()
    await this.#applyHost(gatewayVmService)
    // Not before the table that marks is there: VMs of an earlier build would reach nothing.
    if (!isKnown) await closeRouting?.()
  }

  /** Applies this host's table after that of VMs, because clients are mapped to the gateway's VM once it is open. */
  async #applyHost(gatewayVmService: GatewayVmService | null): Promise<void> {
    const { nft, ruleset } = this.#deps.host
    const text = hostTableText({ ...ruleset, gatewayVmService })
    if (text === this.#hostText) return
    this.#hostText = null
    await nft.applyRuleset(text, nftTimeoutMs)
    this.#hostText = text
  }

  /** Reopens stored addresses that others may have removed. If one fails, the next query opens it. */
  async #openAgain(): Promise<void> {
    const addresses = this.#named.list()
    if (addresses.length === 0) return
    const { nft, ruleset, log } = this.#deps
    try {
      await nft.applyRuleset(openNamesText(ruleset.table, addresses), nftTimeoutMs)
    } catch (error) {
      log.error('addresses of names stay closed until instances look them up again', { count: addresses.length, error })
    }
  }
}

type OwnAddresses = Pick<NftPlan, 'ownNetworks' | 'hostAddresses'>

function listText({ entries }: { readonly entries: readonly string[] }): string {
  return entries.toSorted().join('\n')
}

function installedOf(read: Counters | null): Installed {
  return { quotas: new Set(read?.quotas.keys()), counters: new Set(read?.counters.keys()) }
}
