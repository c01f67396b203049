// Moves every VM towards its desired state. Effects: through the driver; state only by compare-and-set.
//
// One worker per VM, woken by changes and looking at the whole situation each time (level-triggered), so a lost event costs time, never
// correctness. VMs never wait for each other, except for room and for their turn to boot.

import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers } from '../base/workers.ts'
import type { Hello, Network } from '../contract/agent.ts'
import type { Store } from '../store/db.ts'
import { appendEvent } from '../store/ledger/event.query.ts'
import { listResources, recordResource } from '../store/ledger/resource.query.ts'
import { dismissVm, insertVm, listVms, moveVm, reservedBy, vmById } from '../store/ledger/vm.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import { admission, type Capacity } from './admission.plan.ts'
import { VM_FAILURES, type VmEngine, type VmFailureCode } from './engine.ts'
import { freeAddress } from './launch.plan.ts'
import type { VmLink } from './link.driver.ts'
import type { VmDriver } from './vm.driver.ts'
import { failureOf, next, type VmEvent } from './vm.machine.ts'

export type ReconcilerDeps = {
  readonly store: Store
  readonly driver: VmDriver
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly capacity: Capacity
  readonly pool: string
  /** What every guest's network has in common. */
  readonly guestNetwork: Omit<Network, 'address'>
  readonly bootTimeoutMs: number
  readonly capacityWaitMs: number
  /** VMs known before this boot of the host have lost their QEMU with it. */
  readonly hostRestarted: boolean
}

export type Reconciler = VmEngine & {
  /** Takes up every VM of this host. */
  readonly start: () => void
  /** Stops watching. VMs run on. */
  readonly stop: () => Promise<void>
}

/** What this daemon knows of a VM besides its row; nothing that a restart may not forget. */
type Entry = {
  link: VmLink | null
  state: Vm['state'] | null
  /** When this daemon first saw the VM in its present state, monotonic. */
  sinceMs: number
  /** The greeting that listeners know of. */
  told: Hello | null
}

const networkTimeoutMs = 10_000
const retryMinMs = 200
const retryMaxMs = 10_000
/** Everything is looked at this often, should an event have been lost. */
const sweepMs = 5_000

export function createReconciler(deps: ReconcilerDeps): Reconciler {
  const { store, clock, log, driver } = deps
  const entries = new Map<string, Entry>()
  const listeners: ((vmId: string) => void)[] = []
  const stopping = new AbortController()
  const survivors = new Set<string>()

  const work = async (vmId: string): Promise<void> => {
    const vm = vmById(store.db, vmId)
    if (vm === null || vm.state === 'gone') {
      entries.get(vmId)?.link?.close()
      entries.delete(vmId)
      return
    }
    const entry = entries.get(vmId) ?? { link: null, state: null, sinceMs: 0, told: null }
    entries.set(vmId, entry)
    if (entry.state !== vm.state) Object.assign(entry, { state: vm.state, sinceMs: clock.monotonicMs() })
    const dismissed = vm.desired === 'gone' && next(vm.state, 'dismissed') !== null
    const event = dismissed ? 'dismissed' : await step(vm, entry)
    if (event !== null) move(vm, event)
  }

  const workers = createWorkers({
    clock,
    work,
    retryMinMs,
    retryMaxMs,
    onFailure: ({ key, error, retryMs }) =>
      log.warn('VM work failed; it will be tried again', { vm: key, retryMs, error }),
  })
  const { wake, alarm } = workers

  const wakeWaiting = () => {
    for (const vm of listVms(store.db, store.hostId)) if (vm.state === 'waiting') wake(vm.id)
  }

  const move = (vm: Vm, event: VmEvent): void => {
    const to = next(vm.state, event)
    if (to === null) return
    const failureCode = to === 'failed' ? failureOf(vm.state, event, survivors.has(vm.id)) : undefined
    const nowMs = clock.nowMs()
    const moved = store.transact(tx => {
      const failure = failureCode === undefined ? {} : { failureCode, failureMessage: VM_FAILURES[failureCode] }
      const address = to === 'gone' ? { address: null } : {}
      if (!moveVm(tx, { id: vm.id, from: vm.state, to, nowMs, ...failure, ...address })) return false
      appendEvent(tx, { nowMs, kind: `vm.${to}`, subject: vm.id, detail: { from: vm.state, event, failureCode } })
      return true
    })
    // Lost the race or not, the row has changed since we looked.
    wake(vm.id)
    if (moved) announce(vm.id, { from: vm.state, to, event })
  }

  const announce = (vmId: string, change: { from: string; to: string; event: string }) => {
    log.info('VM moved', { vm: vmId, ...change })
    if (change.to !== 'launching') wakeWaiting()
    for (const listener of listeners) listener(vmId)
  }

  /** Does what the state asks for. Null: nothing to decide now; something will wake us. */
  const step = (vm: Vm, entry: Entry): Promise<VmEvent | null> | VmEvent | null => {
    switch (vm.state) {
      case 'waiting':
        return admit(vm, entry)
      case 'launching':
        return build(vm)
      case 'booting':
        return boot(vm, entry)
      case 'running':
        return watch(vm, entry)
      case 'failed':
        return clean(vm, entry)
      case 'stopping':
        return takeDown(vm, entry)
      case 'gone':
        return null
    }
  }

  const admit = (vm: Vm, entry: Entry): VmEvent | null => {
    const verdict = store.transact(tx => {
      const answer = admission(vm, reservedBy(tx, store.hostId), deps.capacity)
      if (answer.kind !== 'admit') return answer
      const taken = new Set(listResources(tx, 'address').map(row => row.name))
      const address = freeAddress(deps.pool, taken)
      if (address === null) return { kind: 'full', lacking: 'addresses' } as const
      const nowMs = clock.nowMs()
      recordResource(tx, { vmId: vm.id, kind: 'address', name: address, nowMs })
      moveVm(tx, { id: vm.id, from: 'waiting', to: 'launching', nowMs, address })
      return answer
    })
    if (verdict.kind === 'admit') {
      wake(vm.id)
      announce(vm.id, { from: 'waiting', to: 'launching', event: 'admitted' })
      return null
    }
    if (verdict.kind === 'queue') return null
    const leftMs = entry.sinceMs + deps.capacityWaitMs - clock.monotonicMs()
    if (leftMs <= 0) {
      log.warn('no room for a VM', { vm: vm.id, lacking: verdict.lacking })
      return 'refused'
    }
    alarm(vm.id, leftMs)
    return null
  }

  const build = async (vm: Vm): Promise<VmEvent> => {
    try {
      await driver.build(vm)
      return 'spawned'
    } catch (error) {
      log.error('a VM could not be started', { vm: vm.id, error })
      return 'spawn_failed'
    }
  }

  /** Connections to QEMU, or the event that there can be none. Faults: qmp.*, channel.*. */
  const linked = async (vm: Vm, entry: Entry): Promise<VmLink | VmEvent> => {
    if (!driver.isAlive(vm)) return 'qemu_gone'
    if (entry.link?.observe().closed) drop(entry)
    if (entry.link !== null) return entry.link
    try {
      entry.link = await driver.attach(vm, () => wake(vm.id))
      return entry.link
    } catch (error) {
      if (!driver.isAlive(vm)) return 'qemu_gone'
      throw error
    }
  }

  const boot = async (vm: Vm, entry: Entry): Promise<VmEvent | null> => {
    const leftMs = entry.sinceMs + deps.bootTimeoutMs - clock.monotonicMs()
    if (leftMs <= 0) return 'deadline'
    const link = await linked(vm, entry)
    if (typeof link === 'string') return link
    const { stopped, hello } = link.observe()
    if (stopped) return 'guest_stopped'
    if (hello === null) {
      link.greet(leftMs)
      alarm(vm.id, leftMs)
      return null
    }
    if (vm.address === null) throw new Fault('internal', 'a booting VM has an address')
    await link.channel.network({ ...deps.guestNetwork, address: vm.address }, networkTimeoutMs)
    return 'greeted'
  }

  const watch = async (vm: Vm, entry: Entry): Promise<VmEvent | null> => {
    driver.trim(vm)
    const link = await linked(vm, entry)
    if (typeof link === 'string') return link
    const { stopped, hello } = link.observe()
    if (stopped) return 'guest_stopped'
    if (hello === null) link.greet(deps.bootTimeoutMs)
    // Services may wait for what a guest says after a reattach, though no state changes.
    if (hello !== entry.told) for (const listener of listeners) listener(vm.id)
    entry.told = hello
    return null
  }

  const clean = async (vm: Vm, entry: Entry): Promise<null> => {
    drop(entry)
    await driver.release(vm, { keepDirectory: true })
    wakeWaiting()
    return null
  }

  const takeDown = async (vm: Vm, entry: Entry): Promise<VmEvent> => {
    // Attaching to a VM only to stop it gently is not worth a wait: without a link it is ended by force.
    await driver.powerDown(vm, entry.link)
    drop(entry)
    await driver.release(vm, { keepDirectory: false })
    return 'released'
  }

  const drop = (entry: Entry) => {
    entry.link?.close()
    entry.link = null
  }

  const sweep = async () => {
    while (!stopping.signal.aborted) {
      await clock.sleep(sweepMs, stopping.signal).catch(() => {})
      for (const vm of listVms(store.db, store.hostId)) if (vm.state !== 'failed') wake(vm.id)
    }
  }

  return {
    define: (tx, spec) => {
      const id = newUuid(deps.random)
      insertVm(tx, { id, hostId: store.hostId, ...spec, nowMs: clock.nowMs() })
      return id
    },
    dismiss: (tx, vmId) => dismissVm(tx, vmId),
    wake,
    view: vmId => {
      const vm = vmById(store.db, vmId)
      if (vm === null) return null
      const hello = vm.state === 'running' ? (entries.get(vmId)?.link?.observe().hello ?? null) : null
      return {
        id: vm.id,
        state: vm.state,
        address: vm.address,
        failureCode: vm.failureCode as VmFailureCode | null,
        guest: hello,
      }
    },
    claim: async (vmId, sealed, timeoutMs) => {
      const link = entries.get(vmId)?.link
      if (!link) throw new Fault('channel.closed', `VM ${vmId} is not attached`)
      try {
        return await link.channel.claim(sealed, timeoutMs)
      } catch (error) {
        // Perhaps its agent restarted and has other keys by now: ask again before the next attempt.
        link.forget()
        wake(vmId)
        throw error
      }
    },
    onChange: listener => {
      listeners.push(listener)
    },
    start: () => {
      for (const vm of listVms(store.db, store.hostId)) {
        if (deps.hostRestarted && (vm.state === 'booting' || vm.state === 'running')) survivors.add(vm.id)
        wake(vm.id)
      }
      void sweep()
    },
    stop: async () => {
      stopping.abort()
      await workers.stop()
      for (const entry of entries.values()) drop(entry)
    },
  }
}
