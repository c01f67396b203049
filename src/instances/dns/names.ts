// Keeps the name table correct: after each commit on an instance or its VM, and completely every few seconds.
// Effects: reads the store; timer.

import { type Clock, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { HOST_LISTENERS, type HostName } from '../../config/listen.ts'
import type { DirectoryDb } from '../../store/db.ts'
import { instanceByVm } from '../../store/directory/instance.query.ts'
import {
  type NamedInstance,
  type NamedInstances,
  prepareNamed,
  setAddress,
} from '../../store/directory/instance-address.query.ts'
import type { VmEngine } from '../../vm/engine.ts'
import { sshKeyDigest } from '../public-key.codec.ts'
import { type Addresses, instanceAddresses } from './address.plan.ts'
import { type NameTableMemory, NameTableWriter, nameTableMemory } from './name-table.ts'
import { hostKey, hostsPerAnswerMax } from './zone.plan.ts'

export type NamesDeps = {
  readonly db: DirectoryDb
  readonly hostId: string
  readonly engine: Pick<VmEngine, 'view'>
  /** Writes addresses of this host's instances for other hosts, if they answer for their names too. */
  readonly report: (write: (tx: DirectoryDb) => void) => void
  /** Reports whether existing names may be missing here. Then no answer denies that a name exists. */
  readonly isPartial: () => boolean
  /** Limit on names with an address, including the appliance's own. */
  readonly namesMax: number
  /** Returns addresses of the appliance itself, by label of the domain; null if unknown. */
  readonly hostAddresses: () => HostAddresses
  readonly clock: Pick<Clock, 'sleep'>
  readonly log: Logger
}

/** Addresses of a host's own services. */
export type HostAddresses = Readonly<Record<HostName, Addresses | null>>

const refreshMs = 5_000
/** Instances per turn, before other work runs. */
const refreshBatch = 100

export class Names {
  readonly memory: NameTableMemory
  readonly #deps: NamesDeps
  readonly #writer: NameTableWriter
  readonly #instances: NamedInstances
  /** Names in the table by instance id. `text`: all stored values of the name. */
  readonly #named = new Map<string, { readonly name: string; readonly text: string }>()
  /** Ids of instances by their name in the table. */
  readonly #owners = new Map<string, string>()
  /** Other running hosts of the fleet. */
  #others: readonly HostAddresses[] = []
  readonly #stopping = new AbortController()
  #running: Promise<void> = Promise.resolve()

  constructor(deps: NamesDeps) {
    this.#deps = deps
    this.memory = nameTableMemory(deps.namesMax)
    this.#writer = new NameTableWriter(this.memory)
    this.#instances = prepareNamed(deps.db)
  }

  /** Call it after a commit, before its response. Afterwards the table matches the store. Never throws. */
  instanceChanged(id: string): void {
    this.#follow([id])
  }

  /** Removes names of instances without addresses, because a stale one could lead to another tenant. */
  #follow(ids: readonly string[]): void {
    const found = new Map(this.#find(ids).map(instance => [instance.id, instance]))
    for (const id of ids) {
      const instance = found.get(id)
      const isNamed = instance !== undefined && this.#name(instance)
      if (!isNamed) this.#remove(id)
    }
  }

  #find(ids: readonly string[]): NamedInstance[] {
    try {
      return this.#instances.find(ids)
    } catch (error) {
      this.#deps.log.error('instances could not be looked up; their names have no address until they can be', {
        ids,
        error,
      })
      return []
    }
  }

  /** Writes the name of an instance. Returns false if it has no address, or the address is unknown. */
  #name(instance: NamedInstance): boolean {
    const { id, organization, sshHostKey } = instance
    try {
      const addresses = this.#addressesOf(id, instance)
      if (addresses === null) return false
      const text = JSON.stringify([addresses.v4, addresses.v6, sshHostKey])
      if (this.#named.get(id)?.text === text) return true
      const name = `${instance.name}.${organization}`
      const fingerprint = sshHostKey === null ? null : sshKeyDigest(sshHostKey)
      if (this.#writer.set(name, addresses, fingerprint)) {
        this.#named.set(id, { name, text })
        this.#owners.set(name, id)
      } else this.#deps.log.error('the name table is full', { name })
      return true
    } catch (error) {
      this.#deps.log.error('an instance could not be looked up; its name has no address until it can be', { id, error })
      return false
    }
  }

  #addressesOf(id: string, instance: NamedInstance): Addresses | null {
    const { engine, hostId, report } = this.#deps
    if (instance.hostId !== hostId) return isReachable(instance) ? addressesIn(instance) : null
    const addresses = instanceAddresses(instance, vmId => engine.view(vmId))
    const { v4, v6 } = addresses ?? { v4: null, v6: null }
    if (v4 !== instance.address || v6 !== instance.addressV6) {
      report(tx => setAddress(tx, id, addresses === null ? null : { address: v4, addressV6: v6 }))
    }
    return addresses
  }

  /** Sets the other hosts of the fleet that currently serve, in the order in which an answer names them. */
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

  /** Does the same as `instanceChanged` for the instance of a VM. */
  vmChanged(vmId: string): void {
    try {
      const instance = instanceByVm(this.#deps.db, vmId)
      if (instance !== null) this.instanceChanged(instance.id)
    } catch (error) {
      this.#deps.log.error('the instance of a VM could not be looked up; names follow with the next refresh', { error })
    }
  }

  /** Fills the table, then rechecks everything at intervals, in case a change was missed. */
  async start(): Promise<void> {
    await this.#refresh()
    this.#running = this.#refreshRepeatedly()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }

  #remove(id: string): void {
    const name = this.#named.get(id)?.name
    if (name === undefined) return
    this.#named.delete(id)
    // Another instance may have the name by now.
    if (this.#owners.get(name) !== id) return
    this.#writer.remove(name)
    this.#owners.delete(name)
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
    const { clock } = this.#deps
    const isPartial = this.#deps.isPartial()
    if (isPartial) this.#writer.setPartial(true)
    this.#setHosts()
    const living = this.#instances.living()
    // Process removed instances first: a new one may reuse a name.
    const ids = [...new Set(this.#named.keys()).difference(new Set(living)), ...living]
    for (let at = 0; at < ids.length; at += refreshBatch) {
      if (at > 0) await pause(clock, 0, this.#stopping.signal)
      if (this.#stopping.signal.aborted) return
      this.#follow(ids.slice(at, at + refreshBatch))
    }
    this.#writer.setPartial(isPartial)
  }
}

/** Reports whether an instance of another host has addresses, according to that host's last report. */
function isReachable({ desired, status }: NamedInstance): boolean {
  return desired === 'present' && (status === 'provisioning' || status === 'ready')
}

function addressesIn({ address, addressV6 }: NamedInstance): Addresses | null {
  return address === null && addressV6 === null ? null : { v4: address, v6: addressV6 }
}
