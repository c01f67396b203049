// SNP launches of the appliance's own driver, recorded by the rig of scripts/rigs/snp. Call it in a namespace of your
// own (scripts/rigs/netns.ts). Effects: taps, QEMU processes in their jails, mounts over /dev.

import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { link } from '../../../scripts/rigs/guest/two-guests.ts'
import { firstOwnUid, uidsPerProcess } from '../../../scripts/rigs/launch/own-uids.ts'
import { type LaunchRecord, readRecording } from '../../../scripts/rigs/snp/recording.ts'
import {
  buildRecordingQemu,
  filesOfTree,
  mountSevDevice,
  recordedCbitPosition,
  unmountAll,
} from '../../../scripts/rigs/snp/recording-qemu.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { launchDigest } from '../../../src/attest/launch/digest.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { openOperatorKey } from '../../../src/host/operator-key.ts'
import { groupsOfDevices } from '../../../src/host/system.ts'
import { openStore } from '../../../src/store/db.ts'
import { resourceOf } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import { gpuTaker } from '../../../src/vm/gpu/gpu.driver.ts'
import { type Image, loadImage } from '../../../src/vm/launch/image.driver.ts'
import { createJailFiles } from '../../../src/vm/launch/jail-files.driver.ts'
import { type JailedStart, startJailed } from '../../../src/vm/launch/jailed.driver.ts'
import { Launcher, type PreparedLaunch } from '../../../src/vm/launch/launcher.driver.ts'
import { vmPaths } from '../../../src/vm/launch.plan.ts'
import { VmDriver } from '../../../src/vm/machine/vm.driver.ts'

const patienceMs = 60_000

export type RecordedLaunch = {
  readonly records: readonly LaunchRecord[]
  /** QEMU's whole log. */
  readonly log: string
  readonly start: JailedStart
  readonly signed: PreparedLaunch['signed']
  readonly measurement: string
  /** From /proc while QEMU runs. */
  readonly process: {
    readonly uid: number
    readonly argv: readonly string[]
    readonly rootEntries: readonly string[]
    readonly devices: readonly string[]
    /** Files that it has open, by descriptor: their paths outside of its jail. */
    readonly openFiles: ReadonlyMap<number, string>
  }
}

export type LaunchShape = {
  readonly directory: string
  readonly vcpus: number
  readonly cpuModel: string
  /** Changes what QEMU gets after the appliance's own checks, as a hostile host would. */
  readonly tamper?: (launch: PreparedLaunch) => Partial<PreparedLaunch>
}

/**
 * For one test file. Close it at its end. `tree`: files of another QEMU and its libraries, whose jail gets a list of
 * files that the rig makes. All else is production's.
 */
export async function recordingBench({ tree = null }: { readonly tree?: string | null } = {}) {
  const dir = mkdtempSync('/tmp/snp-launch-')
  chmodSync(dir, 0o711)
  const [stateDir, rig, dev] = ['state', 'rig', 'dev'].map(name => join(dir, name)) as [string, string, string]
  mkdirSync(join(stateDir, 'vms'), { recursive: true, mode: 0o711 })
  for (const path of [rig, dev]) mkdirSync(path, { mode: 0o755 })
  const qemu = await buildRecordingQemu(rig, tree)
  await mountSevDevice(dev)
  const store = openStore(':memory:')
  const operatorKey = await openOperatorKey(stateDir)
  const namespace = createVmNamespace({ ...link, name: 'srt-snp' })
  await namespace.open()
  const close = () => {
    unmountAll(dev)
    rmSync(dir, { recursive: true, force: true })
  }
  const jailFiles = createJailFiles()
  const ofQemu = tree === null ? jailFiles.ofQemu : async () => ({ program: qemu, files: filesOfTree(qemu, tree) })
  let count = 0

  const record = async ({ directory, vcpus, cpuModel, tamper }: LaunchShape): Promise<RecordedLaunch> => {
    count += 1
    const image: Image = loadImage(directory)
    const launcher = new Launcher({
      ...{ db: store.ledger.db, clock: systemClock, operatorKey, vcpuType: cpuModel },
      ...{ boot: { kind: 'bios', firmware: null }, igvmDirectory: join(stateDir, 'igvm'), beforeLaunch: () => {} },
    })
    const seen: { start?: JailedStart; launch?: PreparedLaunch } = {}
    const uid = firstOwnUid()
    const driver = new VmDriver({
      ...{ db: store.ledger.db, clock: systemClock, random: systemRandom, log: silentLogger },
      ...{ network: { sync: async () => {}, remove: async () => {}, rest: async () => {} }, stateDir, qemu },
      ...{ swtpm: () => null, jailFiles: { ...jailFiles, ofQemu }, uids: { min: uid, max: uid + uidsPerProcess - 1 } },
      ...{ groups: groupsOfDevices('snp'), kernels: null, takeGpus: gpuTaker() },
      platform: { kind: 'snp', cpu: { cpuModel, cbitPosition: recordedCbitPosition, reducedPhysBits: 1 } },
      start: (start, fds) => {
        seen.start = start
        return startJailed(start, fds)
      },
      launcher: {
        prepare: async (vm, of) => {
          const launch = await launcher.prepare(vm, of)
          seen.launch = { ...launch, ...tamper?.(launch) }
          return seen.launch
        },
      },
      ...{ scratchLimits: { mibPerS: 256, iops: 4000 }, image: () => image, namespace, mtuBytes: 1500 },
      ...{ nextHop: '169.254.88.1', nextHopV6: 'fd73:7472:6f6e:67::1', tapPrefix: 'sr' },
      ...{ consoleBytesMax: 65_536, stopGraceMs: 0 },
    })
    const id = newUuid()
    const nowMs = systemClock.nowMs()
    const spec = { image: 'instance', vcpus, memoryMib: 512, scratchGib: 1 }
    insertVm(store.ledger.db, { id, hostId: store.hostId, ...spec, nowMs })
    moveVm(store.ledger.db, { id, from: 'waiting', to: 'launching', nowMs, address: `10.88.0.${1 + (count % 250)}` })
    const vm = present(vmById(store.ledger.db, id), 'inserted')
    const log = () => readFileSync(vmPaths(stateDir, id).qemuLog, 'latin1')
    try {
      await driver.build(vm)
      const pid = Number(resourceOf(store.ledger.db, id, 'qemu')?.name.split(':')[0])
      const link = await driver
        .attach(vm, () => {})
        .catch((error: unknown) => {
          throw new Error(`attach: ${log().slice(-2000)}`, { cause: error })
        })
      try {
        await until(
          'QEMU starts a processor or ends',
          patienceMs,
          () => log().includes('\nsnp run') || !driver.isAlive(vm),
        )
        const status = driver.isAlive(vm) ? readFileSync(`/proc/${pid}/status`, 'utf8') : ''
        return {
          ...{ records: readRecording(log()), log: log() },
          start: present(seen.start, 'started'),
          signed: present(seen.launch, 'prepared').signed,
          measurement: present(seen.launch, 'prepared').document.measurement,
          process: {
            uid: Number(/^Uid:\t(\d+)/m.exec(status)?.[1]),
            argv: readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1),
            rootEntries: readdirSync(`/proc/${pid}/root`),
            devices: readdirSync(`/proc/${pid}/root/dev`).toSorted(),
            openFiles: openFilesOf(pid),
          },
        }
      } finally {
        link.close()
      }
    } finally {
      await driver.release(vm, { keepDirectory: false })
    }
  }
  return { record, close }
}

function openFilesOf(pid: number): ReadonlyMap<number, string> {
  const all = readdirSync(`/proc/${pid}/fd`).map((fd): [number, string] => [
    Number(fd),
    readlinkSync(`/proc/${pid}/fd/${fd}`),
  ])
  return new Map(all.toSorted(([a], [b]) => a - b))
}

/** A file of an image, and the place of a byte that a test changes. */
export const CHANGED_BYTES = [
  ['firmware', 100],
  ['kernel', 0x290],
  ['initrd', 4_000],
] as const

type Measured = { readonly vcpus: number; readonly cpuModel: string; readonly cmdline?: string } & Partial<
  Record<'firmware' | 'kernel' | 'initrd', Uint8Array>
>

/** Returns the digest that `strongroom measure ovmf` computes, of an image's files and of the changed ones. */
export async function measuredDigest(directory: string, { vcpus, cpuModel, ...changed }: Measured): Promise<string> {
  const read = (name: string) => new Uint8Array(readFileSync(join(directory, name)))
  const { digest } = await launchDigest({
    ...{ firmware: read('firmware'), kernel: read('kernel'), initrd: read('initrd') },
    ...{ cmdline: readFileSync(join(directory, 'cmdline'), 'utf8'), ...changed },
    ...{ vcpus, vcpuType: cpuModel, features: 1n, profile: 'qemu-kvm' },
  })
  return toHex(digest)
}
