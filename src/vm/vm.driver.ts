// The steps that make and unmake a VM on this host. Effects: directories, taps, nft, QEMU processes.
//
// Each thing is a ledger row before it is made, and the row goes after the thing has gone. Every step may be repeated: a daemon that was
// killed in the middle begins again and finds what is there.

import { unreachable } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { configureTap, openTap, removeTap } from '../host/network/tap.ts'
import { qmpTimeoutMs } from '../host/qemu/qmp.ts'
import { ensureDir, type Owner, removeFile, removeTree, truncateAbove } from '../linux/files.ts'
import { findByUuid, isAlive, type ProcessIdentity, signalProcess, spawnDetached, waitGone } from '../linux/process.ts'
import type { Db } from '../store/db.ts'
import { recordResource, resourceOf, resourcesOf, strikeResource } from '../store/ledger/resource.query.ts'
import type { Resource, ResourceKind, Vm } from '../store/ledger/vm.table.ts'
import type { Image } from './image.driver.ts'
import { macAddress, tapName, type VmPaths, vmPaths } from './launch.plan.ts'
import { attachLink, type VmLink } from './link.driver.ts'
import type { VmNetwork } from './network.driver.ts'
import { type QemuPlatform, qemuArgv, unprivilegedArgv } from './qemu.plan.ts'

export type VmDriverDeps = {
  readonly db: Db
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly network: VmNetwork
  readonly stateDir: string
  readonly qemu: string
  readonly user: string
  /** Of `user`: owns the VM directories. */
  readonly owner: Owner
  readonly platform: QemuPlatform
  readonly image: (name: string) => Image
  readonly gateway: string
  readonly mtuBytes: number
  readonly tapPrefix: string
  readonly consoleBytesMax: number
  readonly stopGraceMs: number
}

export type VmDriver = {
  /** Makes everything up to a paused QEMU. Faults: host.*, image.invalid. */
  readonly build: (vm: Vm) => Promise<void>
  readonly isAlive: (vm: Vm) => boolean
  /** Faults: qmp.*, channel.*. */
  readonly attach: (vm: Vm, onChange: () => void) => Promise<VmLink>
  /** Bounds what QEMU has written to its log since the last time. Never throws. */
  readonly trim: (vm: Vm) => void
  /** Asks guest and QEMU to end; returns when they have, or when the grace period is over. Never throws. */
  readonly powerDown: (vm: Vm, link: VmLink | null) => Promise<void>
  /** Undoes the ledger, newest first. `keepDirectory` leaves the directory with the console's text for the operator. Faults: host.*. */
  readonly release: (vm: Vm, options: { readonly keepDirectory: boolean }) => Promise<void>
}

const attachTimeoutMs = 15_000
const killTimeoutMs = 10_000
const commandTimeoutMs = 10_000
const tapFd = 3

export function createVmDriver(deps: VmDriverDeps): VmDriver {
  const { db } = deps
  const record = (vm: Vm, kind: ResourceKind, name: string) =>
    recordResource(db, { vmId: vm.id, kind, name, nowMs: deps.clock.nowMs() })

  const processOf = (vm: Vm): ProcessIdentity | null => {
    const row = resourceOf(db, vm.id, 'qemu')
    return row === null ? null : (parseIdentity(row.name, vm.id) ?? findByUuid(vm.id))
  }

  const alive = (vm: Vm): boolean => {
    const identity = processOf(vm)
    return identity !== null && isAlive(identity)
  }

  /** QEMU that dies at once, of a bad image for example, is not waited for. */
  const abortWhenGone = async (vm: Vm, waiting: AbortController) => {
    while (!waiting.signal.aborted && alive(vm)) await deps.clock.sleep(alivePollMs, waiting.signal).catch(() => {})
    waiting.abort()
  }

  const build = async (vm: Vm) => {
    const running = findByUuid(vm.id)
    if (running !== null) {
      record(vm, 'qemu', identityName(running))
      return
    }
    if (vm.address === null) throw new Fault('internal', `VM ${vm.id} has no address`)
    const paths = vmPaths(deps.stateDir, vm.id)
    record(vm, 'directory', paths.directory)
    ensureDir(paths.directory, { mode: 0o700, owner: deps.owner })
    const name = tapName(deps.tapPrefix, vm.id)
    record(vm, 'tap', name)
    const tap = openTap(name)
    try {
      record(vm, 'nft', name)
      // The guard stands before the interface is up: no packet passes uncounted.
      await deps.network.sync()
      const { gateway, mtuBytes } = deps
      const mac = macAddress(vm.id)
      await configureTap({ name, gateway, address: vm.address, mac, mtuBytes, timeoutMs: commandTimeoutMs })
      record(vm, 'qemu', `unspawned:${vm.id}`)
      record(vm, 'qemu', identityName(spawnQemu(vm, paths, tap.fd)))
    } finally {
      // QEMU holds its own copy; when it dies the interface goes with it.
      tap.close()
    }
  }

  const spawnQemu = (vm: Vm, paths: VmPaths, fd: number): ProcessIdentity => {
    const argv = qemuArgv({
      qemu: deps.qemu,
      vmId: vm.id,
      vcpus: vm.vcpus,
      memoryMib: vm.memoryMib,
      mac: macAddress(vm.id),
      tapFd,
      paths,
      image: deps.image(vm.image),
      platform: deps.platform,
    })
    return spawnDetached(unprivilegedArgv(deps.user, argv), {
      uuid: vm.id,
      stdoutFile: paths.qemuLog,
      extraFds: [fd],
      scope: `strongroom-${vm.id}`,
    }).identity
  }

  const undo = async (vm: Vm, resource: Resource): Promise<void> => {
    switch (resource.kind) {
      case 'qemu': {
        const identity = parseIdentity(resource.name, vm.id) ?? findByUuid(vm.id)
        if (identity === null) return
        signalProcess(identity, 'SIGKILL')
        if (!(await waitGone(identity, killTimeoutMs))) {
          throw new Fault('host.command_timeout', `QEMU ${identity.pid} of VM ${vm.id} does not die`)
        }
        return
      }
      case 'nft':
        return deps.network.remove(resource.name)
      case 'tap':
        return removeTap(resource.name, commandTimeoutMs)
      case 'directory':
        return removeTree(resource.name)
      case 'address':
        // A reservation only: the row is the thing.
        return
      default:
        return unreachable(resource.kind)
    }
  }

  return {
    build,
    isAlive: alive,
    attach: async (vm, onChange) => {
      const waiting = new AbortController()
      void abortWhenGone(vm, waiting)
      try {
        return await attachLink({
          paths: vmPaths(deps.stateDir, vm.id),
          consoleBytesMax: deps.consoleBytesMax,
          timeoutMs: attachTimeoutMs,
          signal: waiting.signal,
          random: deps.random,
          log: deps.log,
          onChange,
        })
      } finally {
        waiting.abort()
      }
    },
    trim: vm => {
      try {
        truncateAbove(vmPaths(deps.stateDir, vm.id).qemuLog, qemuLogBytesMax)
      } catch (error) {
        deps.log.warn('the log of QEMU could not be bounded', { vm: vm.id, error })
      }
    },
    powerDown: async (vm, link) => {
      const identity = processOf(vm)
      if (link === null || identity === null || !isAlive(identity)) return
      const deadlineMs = deps.clock.monotonicMs() + deps.stopGraceMs
      const ignore = () => {}
      await Promise.all([
        link.channel.shutdown(qmpTimeoutMs.default).catch(ignore),
        link.qmp.command('system_powerdown', qmpTimeoutMs.default).catch(ignore),
      ])
      while (deps.clock.monotonicMs() < deadlineMs && !link.observe().stopped && isAlive(identity)) {
        await deps.clock.sleep(stopPollMs)
      }
      await link.qmp.command('quit', qmpTimeoutMs.default).catch(ignore)
      await waitGone(identity, qmpTimeoutMs.blocking)
    },
    release: async (vm, { keepDirectory }) => {
      for (const resource of resourcesOf(db, vm.id)) {
        if (resource.kind === 'directory' && keepDirectory) {
          removeSockets(vmPaths(deps.stateDir, vm.id))
          continue
        }
        try {
          await undo(vm, resource)
        } catch (error) {
          throw wrapFault(error, `release ${resource.kind} ${resource.name} of VM ${vm.id}`)
        }
        strikeResource(db, { vmId: vm.id, kind: resource.kind })
      }
    },
  }
}

/** A guest can make QEMU complain as often as it likes. QEMU appends, so an emptied file stays small. */
const qemuLogBytesMax = 1_048_576
const stopPollMs = 20
const alivePollMs = 50

/** Ledger name of a running QEMU. One that is about to be spawned stands as `unspawned:` and is found by its UUID. */
function identityName(identity: ProcessIdentity): string {
  return `${identity.pid}:${identity.startTicks}`
}

function parseIdentity(name: string, uuid: string): ProcessIdentity | null {
  const match = /^([0-9]+):([0-9]+)$/.exec(name)
  return match === null ? null : { pid: Number(match[1]), startTicks: Number(match[2]), uuid }
}

function removeSockets(paths: VmPaths): void {
  for (const path of [paths.qmp, paths.qmpRescue, paths.channel, paths.console]) removeFile(path)
}
