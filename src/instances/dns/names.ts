// Keeps the name table right: after each commit on an instance or its VM, and wholly every few seconds. Effects:
// reads the store; timer.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { HOST_LISTENERS, type HostName } from '../../config/listen.ts'
import type { DirectoryDb } from '../../store/db.ts'
import { instanceByVm, listLiving } from '../../store/directory/instance.query.ts'
import { type NamedInstance, prepareNamed, setAddress } from '../../store/directory/instance-address.query.ts'
import type { VmEngine } from '../../vm/engine.ts'
import { sshKeyDigest } from '../public-key.codec.ts'
import { type Addresses, instanceAddresses } from './address.plan.ts'
import { type NameTableMemory, NameTableWriter, nameTableMemory } from './name-table.ts'
import { hostKey, hostsPerAnswerMax } from './zone.plan.ts'

export type NamesDeps = {
  readonly db: DirectoryDb
  readonly hostId: string
  readonly engine: Pick<VmEngine, 'view'>
  /**
   * In a fleet the names of all hosts' instances are answered for, and this writes addresses of this host's. Absent on
   * a single host.
   */
  readonly report?: (write: (tx: DirectoryDb) => void) => void
  /** Whether names may be missing that there are: then no name is said to be absent. Absent: never. */
  readonly isPartial?: () => boolean
  /** The most names that can have an address, the appliance's own included. */
  readonly namesMax: number
  /** Addresses of the appliance itself, under the labels of the domain; null where none is known. */
  readonly hostAddresses: () => HostAddresses
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
}

/** Addresses of a host's own services. */
export type HostAddresses = Readonly<Record<HostName, Addresses | null>>

type Named = {
  readonly name: string
  readonly addresses: Addresses
  /** Fingerprint of the attested SSH host key. */
  readonly fingerprint: Uint8Array | null
}

const refreshMs = 5_000
/** Instances looked at before others get their turn. */
const refreshBatch = 100

export class Names {
  readonly memory: NameTableMemory
  readonly #deps: NamesDeps
  readonly #writer: NameTableWriter
  readonly #find: (id: string) => NamedInstance | null
  /** Names in the table, by the instance's id. */
  readonly #named = new Map<string, string>()
  /** Other hosts of the fleet that are there. */
  #others: readonly HostAddresses[] = []
  readonly #stopping = new AbortController()
  #running: Promise<void> = Promise.resolve()

  constructor(deps: NamesDeps) {
    this.#deps = deps
    this.memory = nameTableMemory(deps.namesMax)
    this.#writer = new NameTableWriter(this.memory)
    this.#find = prepareNamed(deps.db)
  }

  /** Call after a commit, before its response. On return the table matches the store. Never throws. */
  instanceChanged(id: string): void {
    const found = this.#lookUp(id)
    if (found === null) this.#remove(id)
    else this.#set(id, found)
  }

  /** Null for no name: no name is better than one that leads to somebody else. */
  #lookUp(id: string): Named | null {
    try {
      const instance = this.#find(id)
      const addresses = instance === null ? null : this.#addressesOf(id, instance)
      if (instance === null || addresses === null) return null
      const { name, organization, sshHostKey } = instance
      const fingerprint = sshHostKey === null ? null : sshKeyDigest(sshHostKey)
      return { name: `${name}.${organization}`, addresses, fingerprint }
    } catch (error) {
      this.#deps.log.error('an instance could not be looked up; its name has no address until it can be', { id, error })
      return null
    }
  }

  #addressesOf(id: string, instance: NamedInstance): Addresses | null {
    const { engine, hostId, report } = this.#deps
    if (report === undefined) return instanceAddresses(instance, vmId => engine.view(vmId))
    if (instance.hostId !== hostId) return isReachable(instance) ? addressesIn(instance) : null
    const addresses = instanceAddresses(instance, vmId => engine.view(vmId))
    const { v4, v6 } = addresses ?? { v4: null, v6: null }
    if (v4 !== instance.address || v6 !== instance.addressV6) {
      report(tx => setAddress(tx, id, addresses === null ? null : { address: v4, addressV6: v6 }))
    }
    return addresses
  }

  /** In a fleet: the other hosts that serve now, those first that an answer is to name. */
  othersAre(hosts: readonly HostAddresses[]): void {
    this.#others = hosts
    this.#setHosts()
  }

  #setHosts(): void {
    const own = this.#deps.hostAddresses()
    for (const label of Object.keys(HOST_LISTENERS) as HostName[]) {
      const all = [own, ...this.#others].flatMap(host => host[label] ?? [])
      const known = new Map(all.map(addresses => [`${addresses.v4} ${addresses.v6}`, addresses]))
      const hosts = [...known.values()].slice(0, hostsPerAnswerMax)
      for (let n = 0; n < hostsPerAnswerMax; n += 1) {
        const addresses = hosts[n]
        if (addresses === undefined) this.#writer.remove(hostKey(label, n))
        else this.#writer.set(hostKey(label, n), addresses)
      }
    }
  }

  /** The same for the instance that a VM belongs to. */
  vmChanged(vmId: string): void {
    try {
      const instance = instanceByVm(this.#deps.db, vmId)
      if (instance !== null) this.instanceChanged(instance.id)
    } catch (error) {
      this.#deps.log.error('the instance of a VM could not be looked up; names follow with the next refresh', { error })
    }
  }

  /** Fills the table, and from then on looks at everything again and again, should a change have been missed. */
  async start(): Promise<void> {
    await this.#refresh()
    this.#running = this.#refreshRepeatedly()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }

  #set(id: string, { name, addresses, fingerprint }: Named): void {
    if (this.#writer.set(name, addresses, fingerprint)) this.#named.set(id, name)
    else this.#deps.log.error('the name table is full', { name })
  }

  #remove(id: string): void {
    const name = this.#named.get(id)
    if (name === undefined) return
    this.#writer.remove(name)
    this.#named.delete(id)
  }

  async #refreshRepeatedly(): Promise<void> {
    const { clock, log } = this.#deps
    while (!this.#stopping.signal.aborted) {
      await pause(clock, refreshMs, this.#stopping.signal)
      try {
        if (!this.#stopping.signal.aborted) await this.#refresh()
      } catch (error) {
        log.error('the name table was not refreshed', { error })
      }
    }
  }

  async #refresh(): Promise<void> {
    const { db, hostId, clock } = this.#deps
    const isPartial = this.#deps.isPartial?.() ?? false
    if (isPartial) this.#writer.setPartial(true)
    this.#setHosts()
    const living = listLiving(db, this.#deps.report === undefined ? hostId : null).map(instance => instance.id)
    // Removed instances first: a new one may have an old one's name.
    const ids = [...new Set(this.#named.keys()).difference(new Set(living)), ...living]
    for (const [index, id] of ids.entries()) {
      if (index % refreshBatch === refreshBatch - 1) await pause(clock, 0, this.#stopping.signal)
      if (this.#stopping.signal.aborted) return
      this.instanceChanged(id)
    }
    this.#writer.setPartial(isPartial)
  }
}

/** An instance of another host, by what that host has reported last. */
function isReachable({ desired, status }: NamedInstance): boolean {
  return desired === 'present' && (status === 'provisioning' || status === 'ready')
}

function addressesIn({ address, addressV6 }: NamedInstance): Addresses | null {
  return address === null && addressV6 === null ? null : { v4: address, v6: addressV6 }
}
