// The VM engine with a driver that does what each test says: real SQLite, manual clock, no QEMU.

import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createClockGuard } from '../../../scripts/rigs/clock-guard.ts'
import { spec } from '../../../scripts/rigs/instances/claimless.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Hello } from '../../../src/contract/vm/agent-responses.ts'
import type { Network } from '../../../src/contract/vm/network.ts'
import type { SshProbe } from '../../../src/host/network/ssh-probe.ts'
import { openStore } from '../../../src/store/db.ts'
import { restAddress } from '../../../src/store/ledger/address.query.ts'
import { recordResource, resourceOf, strikeResource } from '../../../src/store/ledger/resource.query.ts'
import { vmById } from '../../../src/store/ledger/vm.query.ts'
import type { VmState } from '../../../src/store/ledger/vm.table.ts'
import type { Capacity } from '../../../src/vm/admission.plan.ts'
import type { Pools } from '../../../src/vm/capacity.query.ts'
import type { EvidenceSources } from '../../../src/vm/evidence/report.driver.ts'
import type { LinkObservation, VmLink } from '../../../src/vm/link.driver.ts'
import { VmReconciler } from '../../../src/vm/machine/reconciler.ts'
import type { VmDriver } from '../../../src/vm/machine/vm.driver.ts'

type Driver = Pick<VmDriver, Exclude<keyof VmDriver, 'pausedVms'>>

export const bootTimeoutMs = 30_000
export const addressRestMs = 600_000
export { spec }
export const roomy: Capacity = { memoryMib: 8192, vcpus: 16, addresses: 14, asids: null, bootingMax: 2 }
export const hello: Hello = {
  protocol: 2,
  version: '1',
  bootId: 'b',
  boxKey: 'k',
  sshHostKey: 'ssh-ed25519 A',
  claimId: null,
  platform: 'none',
}

export function engineBench(
  options: {
    capacity?: Capacity
    capacityWaitMs?: number
    hostRestarted?: boolean
    pools?: Partial<Pools>
    scratchGib?: number
    diskGibMax?: number
    driver?: Partial<Driver>
    evidence?: EvidenceSources
  } = {},
) {
  const store = openStore(':memory:')
  const clock = createManualClock()
  const alive = new Set<string>()
  const seen = new Map<string, LinkObservation>()
  const changed = new Map<string, () => void>()
  const networks: Network[] = []
  const releases: string[] = []
  /** VMs whose agent is asked anew who it is. */
  const forgotten: string[] = []
  const resumed: string[] = []
  /** The simulated state of all VMs. Tests change it. */
  const world = {
    monitor: async (): Promise<unknown> => ({}),
    agent: async (_timeoutMs: number): Promise<Hello> => hello,
    ssh: async (_probe: SshProbe): Promise<void> => {},
    network: async (): Promise<boolean> => true,
    attach: async (): Promise<void> => {},
    open: async (): Promise<void> => {},
    isHostStopping: false,
  }
  const linkTo = (vmId: string): VmLink => ({
    qmp: { command: async () => (await world.monitor()) as never, close: () => {} },
    channel: {
      hello: (timeoutMs: number) => world.agent(timeoutMs),
      network: async (network: Network) => networks.push(network),
      close: () => {},
    } as never,
    observe: () => seen.get(vmId) ?? { closed: false, stopped: false, paused: false, hello: null },
    greet: () => {},
    forget: () => void forgotten.push(vmId),
    resume: async () => {},
    close: () => {},
  })
  const driver: Driver = {
    build: async vm => {
      recordResource(store.ledger.db, { vmId: vm.id, kind: 'qemu', name: `q-${vm.id}`, nowMs: clock.nowMs() })
      alive.add(vm.id)
    },
    isAlive: vm => alive.has(vm.id),
    attach: async (vm, onChange) => {
      await world.attach()
      changed.set(vm.id, onChange)
      return linkTo(vm.id)
    },
    boundLog: () => {},
    open: () => world.open(),
    resume: async (vm, link) => {
      if (link.observe().paused) resumed.push(vm.id)
      return null
    },
    checkNetwork: () => world.network(),
    powerDown: async () => {},
    release: async (vm, { keepDirectory }) => {
      releases.push(`${vm.id} ${keepDirectory}`)
      alive.delete(vm.id)
      for (const kind of ['address', 'address_v6'] as const) {
        const address = resourceOf(store.ledger.db, vm.id, kind)?.name
        if (address !== undefined) restAddress(store.ledger.db, { address, nowMs: clock.nowMs() })
      }
      for (const kind of ['qemu', 'address', 'address_v6'] as const)
        strikeResource(store.ledger.db, { vmId: vm.id, kind })
    },
    ...options.driver,
  }
  /** Another engine on the same store, as after a restart of the daemon. */
  const create = (hostRestarted = options.hostRestarted ?? false) =>
    new VmReconciler({
      ledger: store.ledger,
      hostId: store.hostId,
      driver,
      clock,
      guard: createClockGuard(clock),
      log: silentLogger,
      capacity: options.capacity ?? roomy,
      bootTimeoutMs,
      diskGibMax: () => options.diskGibMax ?? 1000,
      addressRestMs,
      platform: 'tcg',
      evidence: options.evidence ?? {
        collateral: null,
        simulated: () => Promise.reject(new Error('nobody asks here')),
      },
      isHostStopping: async () => world.isHostStopping,
      probeSsh: probe => world.ssh(probe),
      pools: { v4: '10.88.0.0/28', v6: null, ...options.pools },
      capacityWaitMs: options.capacityWaitMs ?? 0,
      hostLoss: hostRestarted ? 'host_restarted' : null,
      guestNetwork: {
        nextHop: '169.254.88.1',
        nextHopV6: 'fd73:7472:6f6e:67::1',
        nextHopMac: '0a:73:74:72:6f:6e',
        mtuBytes: 1500,
        resolvers: ['192.0.2.53', '2001:db8::53'],
      },
    })
  const engine = create()
  const define = (by = engine): string => {
    const id = newUuid()
    by.define(id, { ...spec, scratchGib: options.scratchGib ?? 0 })
    return id
  }
  const observe = async (id: string, observation: Partial<LinkObservation>) => {
    seen.set(id, { closed: false, stopped: false, paused: false, hello: null, ...observation })
    changed.get(id)?.()
    await clock.elapse(0)
  }
  const dismiss = async (id: string, by = engine) => {
    by.dismiss(id)
    await clock.elapse(0)
  }
  const state = (id: string): VmState | undefined => vmById(store.ledger.db, id)?.state
  const failure = (id: string) => vmById(store.ledger.db, id)?.failureCode
  return {
    world,
    store,
    clock,
    engine,
    create,
    define,
    observe,
    dismiss,
    state,
    failure,
    alive,
    networks,
    releases,
    resumed,
    forgotten,
  }
}
