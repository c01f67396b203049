// The steps that create and release a VM on this host. Effects: directories, taps, nft, QEMU and swtpm processes.
//
// The ledger row of a resource is written before the resource is created and deleted after it is removed. Every step is
// repeatable: after a kill, the daemon begins again and finds what exists.

import { unreachable } from '../../base/assert.ts'
import { pause } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { Runtime } from '../../base/runtime.ts'
import { configureTap, openTap, removeTap, TapStates } from '../../host/network/tap.ts'
import { routeVm, unrouteVm, type VmNamespace } from '../../host/network/vm-namespace.ts'
import { usualLimits } from '../../host/qemu/agent-channel.ts'
import { qmpTimeoutMs } from '../../host/qemu/qmp.ts'
import { listenUnix } from '../../host/qemu/unix-socket.ts'
import { truncateAbove } from '../../linux/files/regular.ts'
import { removeFile } from '../../linux/files/removal.ts'
import { ensureDir, type Owner } from '../../linux/files.ts'
import { isAlive, type ProcessIdentity, signalProcess, waitGone } from '../../linux/process.ts'
import { removeForeignTree } from '../../linux/tree.ts'
import type { LedgerDb } from '../../store/db.ts'
import { recordResource, resourceOf, resourcesOf, strikeResource } from '../../store/ledger/resource.query.ts'
import type { Resource, ResourceKind, Vm } from '../../store/ledger/vm.table.ts'
import { gatewayVmChannelLimits } from '../evidence/gateway-vm.driver.ts'
import type { TakeGpus, TakenGpus } from '../gpu/gpu.driver.ts'
import { makeDisk, resumeWhenFree } from '../launch/disk.driver.ts'
import { gatewayVmImage, type Image } from '../launch/image.driver.ts'
import { type ImageFile, openImageFile } from '../launch/image-file.driver.ts'
import type { JailFiles } from '../launch/jail-files.driver.ts'
import { type StartJailed, settled } from '../launch/jailed.driver.ts'
import type { Launcher, PreparedLaunch } from '../launch/launcher.driver.ts'
import type { HostPlatform } from '../launch/platform.driver.ts'
import { type QemuGpus, type QemuPlatform, qemuArgv, type ScratchLimits, type SnpBoot } from '../launch/qemu.plan.ts'
import { findTpm, type StartedTpm, startTpm } from '../launch/tpm.driver.ts'
import { findQemu, releaseUid, reserveUid } from '../launch/uid.driver.ts'
import type { UnpackedKernels } from '../launch/unpacked-kernel.driver.ts'
import { macAddress, tapName, type UidRange, type VmPaths, vmPaths } from '../launch.plan.ts'
import { attachLink, type VmLink } from '../link.driver.ts'
import type { VmNetwork } from '../network/network.driver.ts'

export type VmDriverDeps = Runtime & {
  readonly db: LedgerDb
  readonly network: Pick<VmNetwork, 'sync' | 'remove' | 'rest'>
  readonly stateDir: string
  readonly qemu: string
  /** Returns the path of the swtpm program for VMs that start now. Null if they get no TPM. */
  readonly swtpm: () => string | null
  readonly jailFiles: JailFiles
  readonly start: StartJailed
  readonly uids: UidRange
  /** Groups of the devices that QEMU opens. */
  readonly groups: readonly number[]
  readonly platform: HostPlatform
  readonly scratchLimits: ScratchLimits
  /** Returns an image by name. Throws Fault image.invalid. */
  readonly image: (name: string) => Image | Promise<Image>
  readonly launcher: Pick<Launcher, 'prepare'>
  /** Null if kernels unpack themselves: on snp because they are measured in that form, on kvm because that is fast. */
  readonly kernels: UnpackedKernels | null
  readonly takeGpus: TakeGpus
  /** Network namespace of the taps. */
  readonly namespace: VmNamespace
  readonly nextHop: string
  readonly nextHopV6: string
  readonly mtuBytes: number
  readonly tapPrefix: string
  readonly consoleBytesMax: number
  readonly stopGraceMs: number
}

const attachTimeoutMs = 15_000
const killTimeoutMs = 10_000
const commandTimeoutMs = 10_000
const removeTimeoutMs = 60_000
/** The first inherited descriptor after the standard ones. */
const firstFd = 3

/** Paused VMs that are remembered, those that ended since included. No share: a host has fewer VMs. */
const pausedMax = 10_000

export class VmDriver {
  readonly #deps: VmDriverDeps
  readonly #paused = new Map<string, number>()
  readonly #taps: TapStates

  constructor(deps: VmDriverDeps) {
    this.#deps = deps
    this.#taps = new TapStates(deps.clock, deps.namespace)
  }

  /** Creates everything up to a paused QEMU. Faults: host.*, image.invalid, launch.mismatch (LaunchMismatch). */
  async build(vm: Vm): Promise<void> {
    const running = await settledIfAny(findQemu(this.#deps.db, vm.id))
    if (running !== null) {
      this.#record(vm, 'qemu', identityName(running))
      // The TPM was started before QEMU.
      const tpm = await settledIfAny(findTpm(this.#deps.db, { stateDir: this.#deps.stateDir, vmId: vm.id }))
      if (tpm !== null) this.#record(vm, 'tpm', identityName(tpm))
      return
    }
    if ((vm.address ?? vm.addressV6) === null) throw new Fault('internal', `VM ${vm.id} has no address`)
    const { db, clock, random, uids, tapPrefix, network, namespace, launcher, kernels } = this.#deps
    const image = await this.#deps.image(vm.image)
    using launch = await launcher.prepare(vm, image)
    using unpacked = (await kernels?.open(launch.kernel, launch.document.kernelSha256)) ?? null
    const kernel = unpacked ?? launch.kernel
    const paths = this.#paths(vm)
    this.#record(vm, 'directory', paths.directory)
    ensureDir(paths.directory, { mode: 0o700, owner: ourselves() })
    if (vm.scratchGib > 0) this.#record(vm, 'disk', paths.scratch)
    const name = tapName(tapPrefix, vm.id)
    this.#record(vm, 'tap', name)
    const tap = openTap(name, namespace.netns)
    try {
      this.#record(vm, 'nft', name)
      // The guard exists before the interface is up, so that no packet passes uncounted.
      await network.sync()
      await this.#configureTap(vm)
      const uid = await reserveUid({ db, random, range: uids }, { vmId: vm.id, nowMs: clock.nowMs() })
      using tpm = await this.#startTpm(vm, paths, uid)
      this.#record(vm, 'qemu', `unspawned:${vm.id}`)
      const { fd: tapFd } = tap
      const started = await this.#startQemu(vm, { paths, tapFd, uid, image, launch, kernel, tpm })
      this.#record(vm, 'qemu', identityName(started))
    } finally {
      // QEMU holds its own descriptor; the interface ends with QEMU.
      tap.close()
    }
  }

  isAlive(vm: Vm): boolean {
    const identity = this.#processOf(vm)
    return identity !== null && isAlive(identity)
  }

  /** Connects to a running QEMU. Faults: qmp.*, channel.*. */
  async attach(vm: Vm, onChange: () => void): Promise<VmLink> {
    const { consoleBytesMax, random, log } = this.#deps
    // An earlier version gave the directory to QEMU's user. Take it back before trusting anything in it.
    ensureDir(this.#paths(vm).directory, { mode: 0o700, owner: ourselves() })
    const waiting = new AbortController()
    void this.#abortWhenGone(vm, waiting)
    try {
      return await attachLink({
        paths: this.#paths(vm),
        consoleBytesMax,
        channelLimits: vm.image === gatewayVmImage ? gatewayVmChannelLimits : usualLimits,
        timeoutMs: attachTimeoutMs,
        signal: waiting.signal,
        random,
        log,
        onChange,
      })
    } finally {
      waiting.abort()
    }
  }

  /** Reports whether the VM still has its interface. Repairs one that is down or lost its route. Faults: host.*. */
  async checkNetwork(vm: Vm): Promise<boolean> {
    const { tapPrefix, log } = this.#deps
    const name = tapName(tapPrefix, vm.id)
    const state = this.#taps.of(name, vm)
    if (state === 'unrouted') {
      log.warn('the interface of a VM was not up with its route; it is configured again', { vm: vm.id, tap: name })
      await this.#configureTap(vm)
    }
    return state !== 'gone'
  }

  /** Applies the firewall, which passes traffic of VMs that are opened in the ledger. Faults: host.*. */
  open(): Promise<void> {
    return this.#deps.network.sync()
  }

  /** Resumes a VM that was paused for lack of disk space, once there is some. Never throws. */
  async resume(vm: Vm, link: VmLink): Promise<null> {
    if (link.observe().paused) {
      if (this.#paused.size >= pausedMax) this.#paused.clear()
      if (!this.#paused.has(vm.id)) this.#paused.set(vm.id, this.#deps.clock.nowMs())
      await resumeWhenFree(this.#deps, { vmId: vm.id, directory: this.#paths(vm).directory, link })
    }
    if (!link.observe().paused) this.#paused.delete(vm.id)
    return null
  }

  /** Returns when each VM was paused for lack of disk space. A VM that ended since may be among them. */
  pausedVms(): ReadonlyMap<string, number> {
    return this.#paused
  }

  /** Bounds the size of QEMU's log. Never throws. */
  boundLog(vm: Vm): void {
    try {
      for (const path of [this.#paths(vm).qemuLog, this.#paths(vm).tpmLog]) truncateAbove(path, qemuLogBytesMax)
    } catch (error) {
      this.#deps.log.warn('the log of QEMU could not be bounded', { vm: vm.id, error })
    }
  }

  /** Requests guest and QEMU to end. Returns when they have ended or the grace period is over. Never throws. */
  async powerDown(vm: Vm, link: VmLink | null): Promise<void> {
    const { clock, stopGraceMs } = this.#deps
    const identity = this.#processOf(vm)
    if (link === null || identity === null || !isAlive(identity)) return
    const deadlineMs = clock.monotonicMs() + stopGraceMs
    const ignore = () => {}
    await Promise.all([
      link.channel.shutdown(qmpTimeoutMs.default).catch(ignore),
      link.qmp.command('system_powerdown', qmpTimeoutMs.default).catch(ignore),
    ])
    while (clock.monotonicMs() < deadlineMs && !link.observe().stopped && isAlive(identity)) {
      await clock.sleep(stopPollMs)
    }
    await link.qmp.command('quit', qmpTimeoutMs.default).catch(ignore)
    await waitGone(identity, qmpTimeoutMs.blocking)
  }

  /**
   * Removes all resources in the ledger, newest row first. `keepDirectory` keeps the console's text for the operator.
   * Faults: host.*.
   */
  async release(vm: Vm, { keepDirectory }: { readonly keepDirectory: boolean }): Promise<void> {
    const { db } = this.#deps
    for (const resource of resourcesOf(db, vm.id)) {
      if (resource.kind === 'directory' && keepDirectory) {
        removeAllButLogs(this.#paths(vm))
        continue
      }
      try {
        await this.#undo(vm, resource)
      } catch (error) {
        throw wrapFault(error, `release ${resource.kind} ${resource.name} of VM ${vm.id}`)
      }
      strikeResource(db, { vmId: vm.id, kind: resource.kind })
    }
  }

  #paths(vm: Vm): VmPaths {
    return vmPaths(this.#deps.stateDir, vm.id)
  }

  #record(vm: Vm, kind: ResourceKind, name: string): void {
    recordResource(this.#deps.db, { vmId: vm.id, kind, name, nowMs: this.#deps.clock.nowMs() })
  }

  #processOf(vm: Vm): ProcessIdentity | null {
    const row = resourceOf(this.#deps.db, vm.id, 'qemu')
    return row === null ? null : (parseIdentity(row.name, vm.id) ?? findQemu(this.#deps.db, vm.id))
  }

  /** Stops waiting if QEMU dies at once, for example because of a bad image. */
  async #abortWhenGone(vm: Vm, waiting: AbortController): Promise<void> {
    while (!waiting.signal.aborted && this.isAlive(vm)) await pause(this.#deps.clock, alivePollMs, waiting.signal)
    waiting.abort()
  }

  /** Configures the tap, and also the route to this host, which others may have removed. */
  async #configureTap({ id, address, addressV6 }: Vm): Promise<void> {
    const { tapPrefix, nextHop, nextHopV6, mtuBytes, namespace } = this.#deps
    const name = tapName(tapPrefix, id)
    const mac = macAddress(id)
    const v6 = addressV6 === null ? {} : { v6: { nextHop: nextHopV6, address: addressV6 } }
    await namespace.open()
    const tap = { name, nextHop, address, ...v6, mac, mtuBytes, timeoutMs: commandTimeoutMs }
    await configureTap(tap, namespace.netns)
    await routeVm({ link: namespace.link, nextHop, nextHopV6, address, addressV6 })
  }

  /** Starts the TPM; null if this VM has none. Faults: host.*. */
  async #startTpm(vm: Vm, paths: VmPaths, uid: number): Promise<StartedTpm | null> {
    const { swtpm, jailFiles, start, stateDir } = this.#deps
    const program = swtpm()
    if (program === null) return null
    const files = await jailFiles.ofProgram(program)
    this.#record(vm, 'tpm', `unspawned:${vm.id}`)
    const started = await startTpm({ swtpm: files, start, stateDir, vmId: vm.id, paths, uid })
    this.#record(vm, 'tpm', identityName(started.identity))
    return started
  }

  async #startQemu(vm: Vm, { paths, tapFd, uid, image, launch, kernel, tpm }: QemuStart): Promise<ProcessIdentity> {
    const { groups, platform, scratchLimits, jailFiles, start } = this.#deps
    const { vcpus, memoryMib, scratchGib, exchangeGib, modelDisk } = vm
    const addresses = vm.gpus ?? []
    const { program: qemu, files } = await jailFiles.ofQemu(this.#deps.qemu)
    using opened = new DisposableStack()
    const listenAt = (path: string): number => opened.use(listenUnix(path)).fd
    const diskAt = (path: string, sizeGib: number): number | null =>
      sizeGib > 0 ? opened.use(makeDisk(path, sizeGib)).fd : null
    const inherited = new Inherited()
    const gpus = addresses.length === 0 ? null : opened.use(await this.#takeGpus(addresses))
    const fds = {
      root: inherited.add(opened.use(openImageFile(image.root)).fd),
      tap: inherited.add(tapFd),
      qmp: inherited.add(listenAt(paths.qmp)),
      qmpRescue: inherited.add(listenAt(paths.qmpRescue)),
      console: inherited.add(listenAt(paths.console)),
      channel: inherited.add(listenAt(paths.channel)),
      scratch: inherited.addIfAny(diskAt(paths.scratch, scratchGib)),
      exchange: inherited.addIfAny(diskAt(paths.exchange, exchangeGib)),
      model: inherited.addIfAny(modelDisk === null ? null : opened.use(openImageFile(modelDisk)).fd),
      tpm: inherited.addIfAny(tpm === null ? null : tpm.control),
    }
    const argv = qemuArgv({
      qemu,
      vmId: vm.id,
      vcpus,
      memoryMib,
      mac: macAddress(vm.id),
      directory: paths.directory,
      fds,
      image: {
        cmdline: launch.cmdline,
        kernel: ownFd(inherited.add(kernel.fd)),
        initrd: ownFd(inherited.add(launch.initrd.fd)),
      },
      platform: qemuPlatform(platform, launch, ownFd(inherited.add(launch.firmware.fd))),
      scratchLimits,
      gpus: gpus === null ? null : inheritedGpus(gpus, inherited),
    })
    const diskGib = Math.max(scratchGib, exchangeGib)
    const confinement = { uid, groups, platform: platform.kind, vcpus, memoryMib, diskGib, devices: addresses.length }
    const role = { kind: 'qemu', confinement } as const
    const started = await start({ uuid: vm.id, role, files, argv, logFile: paths.qemuLog }, inherited.fds)
    gpus?.readBack()
    return started
  }

  #takeGpus(addresses: readonly string[]): Promise<TakenGpus> {
    const { takeGpus, platform, qemu } = this.#deps
    return takeGpus(addresses, { platform: platform.kind, qemu })
  }

  async #undo(vm: Vm, resource: Resource): Promise<void> {
    switch (resource.kind) {
      case 'qemu':
        return end('QEMU', parseIdentity(resource.name, vm.id) ?? findQemu(this.#deps.db, vm.id))
      case 'tpm': {
        const { db, stateDir } = this.#deps
        return end('swtpm', parseIdentity(resource.name, vm.id) ?? findTpm(db, { stateDir, vmId: vm.id }))
      }
      case 'nft':
        return this.#deps.network.remove(resource.name)
      case 'tap': {
        const { namespace } = this.#deps
        await removeTap(resource.name, commandTimeoutMs, namespace.netns)
        return unrouteVm(
          namespace.link,
          [vm.address, vm.addressV6].flatMap(address => address ?? []),
        )
      }
      case 'disk':
        return removeFile(resource.name)
      case 'directory':
        return removeForeignTree(resource.name, removeTimeoutMs)
      case 'uid':
        return releaseUid(resource.name)
      case 'address':
      case 'address_v6':
        return this.#deps.network.rest(resource.name, this.#deps.random)
      default:
        return unreachable(resource.kind)
    }
  }
}

type QemuStart = {
  readonly paths: VmPaths
  readonly tapFd: number
  readonly uid: number
  readonly image: Image
  readonly launch: PreparedLaunch
  /** The file that is passed to QEMU. */
  readonly kernel: ImageFile
  readonly tpm: StartedTpm | null
}

async function settledIfAny(found: ProcessIdentity | null): Promise<ProcessIdentity | null> {
  return found === null ? null : await settled(found)
}

async function end(what: string, identity: ProcessIdentity | null): Promise<void> {
  if (identity === null) return
  signalProcess(identity, 'SIGKILL')
  if (!(await waitGone(identity, killTimeoutMs))) {
    throw new Fault('host.command_timeout', `${what} ${identity.pid} of VM ${identity.uuid} does not die`)
  }
}

/** Our descriptors, with the numbers under which QEMU inherits them. */
class Inherited {
  readonly fds: number[] = []

  add(fd: number): number {
    return firstFd + this.fds.push(fd) - 1
  }

  addIfAny(fd: number | null): number | null {
    return fd === null ? null : this.add(fd)
  }
}

function inheritedGpus({ iommu, devices, mmioWindowMib }: TakenGpus, inherited: Inherited): QemuGpus {
  return { iommu: inherited.add(iommu), devices: devices.map(fd => inherited.add(fd)), mmioWindowMib }
}

/**
 * Returns the path that reopens an inherited descriptor: the same file, even if another file has its name by now
 * (proc_pid_fd(5)).
 */
function ownFd(fd: number): string {
  return `/proc/self/fd/${fd}`
}

/** Returns the platform for QEMU, which loads the checked files by descriptor. */
function qemuPlatform(platform: HostPlatform, { document, signed }: PreparedLaunch, file: string): QemuPlatform {
  if (platform.kind !== 'snp') return platform
  const boot: SnpBoot = document.vehicle === 'igvm' ? { kind: 'igvm', file } : { kind: 'bios', firmware: file }
  return { kind: 'snp', boot, launch: { ...platform.cpu, ...signed } }
}

/** A guest can make QEMU log without end. QEMU appends, so an emptied file stays small. */
const qemuLogBytesMax = 1_048_576
const stopPollMs = 20
const alivePollMs = 50

/**
 * Returns the ledger name of a running QEMU. Before the spawn it is `unspawned:`, and the process is found by its UUID.
 */
function identityName(identity: ProcessIdentity): string {
  return `${identity.pid}:${identity.startTicks}`
}

function parseIdentity(name: string, uuid: string): ProcessIdentity | null {
  const match = /^([0-9]+):([0-9]+)$/.exec(name)
  return match === null ? null : { pid: Number(match[1]), startTicks: Number(match[2]), uuid }
}

function ourselves(): Owner {
  return { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
}

/** Removes all files except logs. The scratch disk has a separate row. */
function removeAllButLogs(paths: VmPaths): void {
  const { qmp, qmpRescue, channel, console, exchange, tpmState } = paths
  for (const path of [qmp, qmpRescue, channel, console, exchange, tpmState]) removeFile(path)
}
