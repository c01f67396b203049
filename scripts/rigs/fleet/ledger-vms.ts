// VMs of a host whose machines, taps, routes and counters are files of a directory: they outlive the process that made
// them, as the kernel's do. The engine, its ledger, addresses and samples of egress are the host's own. Effects: those
// files, SQL on the host's database, timers.

import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../../src/base/clock.ts'
import { systemErrorCode } from '../../../src/base/fault.ts'
import type { Logger } from '../../../src/base/log.ts'
import type { Hello } from '../../../src/contract/vm/agent-responses.ts'
import type { LedgerDb, Store } from '../../../src/store/db.ts'
import { restAddress } from '../../../src/store/ledger/address.query.ts'
import { recordEgress } from '../../../src/store/ledger/egress.query.ts'
import { listResources, recordResource, resourcesOf, strikeResource } from '../../../src/store/ledger/resource.query.ts'
import type { EgressSample, ResourceKind, Vm } from '../../../src/store/ledger/vm.table.ts'
import { tapName } from '../../../src/vm/launch.plan.ts'
import type { VmLink } from '../../../src/vm/link.driver.ts'
import { VmReconciler, type VmReconcilerDeps } from '../../../src/vm/machine/reconciler.ts'
import { createClockGuard } from '../clock-guard.ts'
import type { FakeVms } from './fake-vms.ts'

export type LedgerVms = FakeVms & {
  /** Takes up what an earlier process left. */
  readonly start: () => void
  readonly claimed: (vmId: string, instanceId: string) => void
  /** Reads the counters into the ledger. */
  readonly sample: () => Promise<readonly EgressSample[]>
}

export type LedgerVmsOptions = {
  /** The host's, with a folder for each kind of thing. */
  readonly directory: string
  readonly bootMs: number
  /** Network of their addresses. */
  readonly pool: string
}

/** Folders with a file for each thing of this kind, by its name on the host. */
export const FOLDERS = { qemu: 'vms', tap: 'taps', nft: 'counters', address: 'routes' } as const
/** By the VM's id: its instance, and once it has ended its counter. */
const claimsFolder = 'claims'
const endedFolder = 'counted'

const roomy = { memoryMib: 1e9, vcpus: 1e6, addresses: 1e6, asids: null, bootingMax: 64 }
/** So that addresses are given again within a run. */
const addressRestMs = 3_000
const guestNetwork = {
  ...{ nextHop: '169.254.88.1', nextHopV6: 'fd73:7472:6f6e:67::1', nextHopMac: '0a:73:74:72:6f:6e' },
  ...{ mtuBytes: 1_500, resolvers: [] },
}

export function openLedgerVms(
  options: LedgerVmsOptions,
  deps: { readonly store: Pick<Store, 'ledger' | 'hostId'>; readonly clock: Clock; readonly log: Logger },
): LedgerVms {
  const { directory, bootMs, pool } = options
  const { store, clock, log } = deps
  const { ledger, hostId } = store
  for (const folder of [...Object.values(FOLDERS), claimsFolder, endedFolder])
    mkdirSync(join(directory, folder), { recursive: true })
  const driver = new FileDriver(directory, bootMs, ledger.db, clock)
  const engine = new VmReconciler({
    ...{ ledger, hostId, driver, clock, log, addressRestMs, guestNetwork },
    guard: createClockGuard(clock),
    capacity: roomy,
    bootTimeoutMs: 60_000,
    diskGibMax: () => 1_000,
    platform: 'tcg',
    evidence: { collateral: null, simulated: () => Promise.reject(new Error('nobody asks here')) },
    isHostStopping: async () => false,
    probeSsh: async () => {},
    pools: { v4: pool, v6: null },
    capacityWaitMs: 10_000,
    hostLoss: null,
  })
  return {
    define: (vmId, spec) => engine.define(vmId, spec),
    dismiss: vmId => engine.dismiss(vmId),
    view: vmId => {
      const view = engine.view(vmId)
      // A row of a VM that has gone stays for a while.
      return view?.state === 'gone' ? null : view
    },
    onChange: listener => engine.onChange(listener),
    ids: () => readdirSync(join(directory, FOLDERS.qemu)),
    start: () => engine.start(),
    claimed: (vmId, instanceId) => writeFileSync(join(directory, claimsFolder, vmId), instanceId),
    sample: async () => {
      const observedAtMs = clock.nowMs()
      const samples = listResources(ledger.db, 'nft').flatMap(({ vmId, name }) => {
        const usedBytes = bytesIn(join(directory, FOLDERS.nft, name))
        return usedBytes === null ? [] : [{ vmId, usedBytes, rescueBytes: 0, observedAtMs, blockedAtMs: null }]
      })
      return ledger.transact(tx => recordEgress(tx, samples))
    },
    stop: () => void engine.stop(),
  }
}

/** A VM that has been claimed sends so much. */
export function sendBytes(directory: string, vmId: string, bytes: number): void {
  if (!existsSync(join(directory, claimsFolder, vmId))) return
  try {
    const fd = openSync(counterOf(directory, vmId), constants.O_WRONLY | constants.O_APPEND)
    writeSync(fd, `${bytes}\n`)
    closeSync(fd)
  } catch (error) {
    // It has ended.
    if (systemErrorCode(error) !== 'ENOENT') throw error
  }
}

export type Sent = { readonly instanceId: string; readonly bytes: number; readonly hasEnded: boolean }

/** Bytes that each claimed VM of a host has sent. */
export function sentBytes(directory: string): Sent[] {
  return readdirSync(join(directory, claimsFolder)).map(vmId => {
    const instanceId = readFileSync(join(directory, claimsFolder, vmId), 'utf8')
    const now = bytesIn(counterOf(directory, vmId))
    return { instanceId, bytes: now ?? bytesIn(join(directory, endedFolder, vmId)) ?? 0, hasEnded: now === null }
  })
}

/** All VMs of a host end with their things, as when its machine starts again. */
export function loseVms(directory: string): void {
  for (const name of readdirSync(join(directory, FOLDERS.tap))) {
    const vmId = readFileSync(join(directory, FOLDERS.tap, name), 'utf8')
    const counter = join(directory, FOLDERS.nft, name)
    if (existsSync(counter)) renameSync(counter, join(directory, endedFolder, vmId))
  }
  for (const folder of Object.values(FOLDERS)) {
    for (const name of readdirSync(join(directory, folder))) rmSync(join(directory, folder, name))
  }
}

/** Null if there is no counter, any more or yet. */
function bytesIn(path: string): number | null {
  if (!existsSync(path)) return null
  return readFileSync(path, 'utf8')
    .split('\n')
    .reduce((sum, line) => sum + Number(line), 0)
}

function counterOf(directory: string, vmId: string): string {
  return join(directory, FOLDERS.nft, tapName(tapPrefix, vmId))
}

const tapPrefix = 'srt'

const hello: Hello = {
  ...{ protocol: 2, version: '1', bootId: 'b', boxKey: 'k', sshHostKey: null, claimId: null, platform: 'none' },
}

type Driver = VmReconcilerDeps['driver']

/** As VmDriver: a thing's row is written before the thing is made and deleted after it has gone. */
class FileDriver implements Driver {
  readonly #directory: string
  readonly #bootMs: number
  readonly #db: LedgerDb
  readonly #clock: Clock

  constructor(directory: string, bootMs: number, db: LedgerDb, clock: Clock) {
    this.#directory = directory
    this.#bootMs = bootMs
    this.#db = db
    this.#clock = clock
  }

  async build(vm: Vm): Promise<void> {
    const name = tapName(tapPrefix, vm.id)
    const { address } = vm
    if (address === null) throw new Error('a VM has an address')
    this.#record(vm, 'tap', name)
    await this.#make('tap', name, vm.id)
    await this.#make('address', address, vm.id)
    this.#record(vm, 'nft', name)
    await this.#make('nft', name, '')
    this.#record(vm, 'qemu', vm.id)
    await this.#make('qemu', vm.id, String(performance.timeOrigin + performance.now()))
  }

  isAlive({ id }: Vm): boolean {
    return existsSync(this.#path('qemu', id))
  }

  async attach(vm: Vm, onChange: () => void): Promise<VmLink> {
    let isOpen = true
    let isGreeted = false
    const readyInMs = Number(readFileSync(this.#path('qemu', vm.id), 'utf8')) + this.#bootMs - Date.now()
    return {
      qmp: { command: async () => ({}) as never, close: () => {} },
      channel: { hello: async () => hello, network: async () => {}, close: () => {} } as never,
      observe: () => ({ closed: !this.isAlive(vm), stopped: false, paused: false, hello: isGreeted ? hello : null }),
      greet: () => {
        setTimeout(
          () => {
            isGreeted = true
            if (isOpen) onChange()
          },
          Math.max(1, Math.min(this.#bootMs, readyInMs)),
        )
      },
      forget: () => {},
      resume: async () => {},
      close: () => {
        isOpen = false
      },
    }
  }

  async checkNetwork({ id }: Vm): Promise<boolean> {
    return existsSync(this.#path('tap', tapName(tapPrefix, id)))
  }

  async open(): Promise<void> {}

  async resume(): Promise<null> {
    return null
  }

  boundLog(): void {}

  async powerDown(): Promise<void> {}

  async release(vm: Vm): Promise<void> {
    for (const { kind, name } of resourcesOf(this.#db, vm.id)) {
      if (kind === 'nft') this.#endCounter(name, vm.id)
      else if (kind === 'address') {
        this.#unroute(name, vm.id)
        restAddress(this.#db, { address: name, nowMs: this.#clock.nowMs() })
      } else if (kind === 'tap' || kind === 'qemu') rmSync(this.#path(kind, name), { force: true })
      await turn()
      strikeResource(this.#db, { vmId: vm.id, kind })
    }
  }

  #path(kind: keyof typeof FOLDERS, name: string): string {
    return join(this.#directory, FOLDERS[kind], name)
  }

  #record(vm: Vm, kind: ResourceKind, name: string): void {
    recordResource(this.#db, { vmId: vm.id, kind, name, nowMs: this.#clock.nowMs() })
  }

  /** A thing that is there already stays; another VM's is an error. */
  async #make(kind: keyof typeof FOLDERS, name: string, text: string): Promise<void> {
    const path = this.#path(kind, name)
    await turn()
    if (!existsSync(path)) {
      // A process that is killed leaves no half of a file.
      const whole = join(this.#directory, 'whole')
      writeFileSync(whole, text)
      renameSync(whole, path)
    } else if ((kind === 'tap' || kind === 'address') && readFileSync(path, 'utf8') !== text) {
      throw new Error(`${kind} ${name} is another VM's`)
    }
  }

  #unroute(address: string, vmId: string): void {
    const path = this.#path('address', address)
    if (!existsSync(path)) return
    if (readFileSync(path, 'utf8') !== vmId) throw new Error(`address ${address} is another VM's`)
    rmSync(path)
  }

  #endCounter(name: string, vmId: string): void {
    const path = this.#path('nft', name)
    if (existsSync(path)) renameSync(path, join(this.#directory, endedFolder, vmId))
  }
}

/** A process may be killed between any two steps. */
async function turn(): Promise<void> {
  await Bun.sleep(1)
}
