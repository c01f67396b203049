// Prepares launches: opens the files for QEMU, computes, signs and records the expected launch, and refuses a launch
// that differs. Effects: reads files, writes the ledger.
//
// On snp the firmware repeats the check on the loaded bytes. Elsewhere this is the only check.

import { sha256 } from '../../attest/hash.ts'
import type { SignedId } from '../../attest/igvm/id-block-header.ts'
import { firmwareRegion, type LaunchCpus, laterRegions, measureRegions } from '../../attest/launch/digest.ts'
import { guestFeatures, guestPolicy, launchProfile } from '../../attest/launch/guest.ts'
import { writeIdAuth, writeIdBlock } from '../../attest/launch/id-block.ts'
import { signIdBlock } from '../../attest/launch/id-block-sign.ts'
import { cmdlineBytes } from '../../attest/launch/kernel-hashes.ts'
import { readOvmf } from '../../attest/launch/ovmf.ts'
import { present } from '../../base/assert.ts'
import { fromHex, toBase64, toHex, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import { type LaunchDocument, launchText } from '../../contract/vm/launch.ts'
import type { OperatorKey } from '../../host/operator-key.ts'
import type { LedgerDb } from '../../store/db.ts'
import { recordLaunch } from '../../store/ledger/launch.query.ts'
import type { Launch, Vm } from '../../store/ledger/vm.table.ts'
import {
  differingParts,
  expectedMeasurement,
  type GivenIgvm,
  type GivenLaunch,
  hostDataOf,
  type LaunchPart,
  type LaunchShape,
  launchDocument,
} from './expected.plan.ts'
import { readIgvmLaunch } from './igvm.plan.ts'
import { IgvmFiles } from './igvm-file.driver.ts'
import { type Image, isOfNamed } from './image.driver.ts'
import { FileDigests, type ImageFile, nativeHashes, openImageFile, readWhole } from './image-file.driver.ts'
import type { BootSource } from './platform.driver.ts'
import type { SignedLaunch } from './qemu.plan.ts'

/** A launch that differs from the one that this host expects. */
export class LaunchMismatch extends Fault {
  readonly parts: readonly LaunchPart[]

  constructor(vmId: string, parts: readonly LaunchPart[]) {
    super('launch.mismatch', `VM ${vmId} would not be launched from what this host expects: ${parts.join(', ')}`)
    this.parts = parts
  }
}

export type LauncherDeps = {
  readonly db: LedgerDb
  readonly clock: Pick<Clock, 'nowMs'>
  readonly operatorKey: Pick<OperatorKey, 'keys' | 'digest'>
  readonly vcpuType: string
  readonly boot: BootSource
  /** Directory of the IGVM files that this host launches from. */
  readonly igvmDirectory: string
  /** Called before QEMU starts. If it throws, there is no launch. */
  readonly beforeLaunch: (launch: Pick<Launch, 'measurement' | 'workload'>) => void
}

/** A prepared launch, which holds open files until it is disposed of. */
export type PreparedLaunch = Disposable & {
  /** The firmware, or the IGVM file with this host's ID block. */
  readonly firmware: ImageFile
  /** SHA-256 of the firmware that the image's manifest names. */
  readonly firmwareSha256: string
  readonly kernel: ImageFile
  readonly initrd: ImageFile
  readonly cmdline: string
  readonly document: LaunchDocument
  /** Canonical text of workload.json, whose digest is then HOST_DATA. Null if there is none. */
  readonly workload: string | null
  readonly signed: SignedLaunch
}

/** The parts of a VM that its launch depends on. */
export type LaunchedVm = Pick<Vm, 'id' | 'vcpus' | 'memoryMib' | 'workload'>

/** Digest of the launch, and the parts of its IGVM file. */
type Measured = { readonly digest: Uint8Array; readonly igvm: MeasuredIgvm | null }
type MeasuredIgvm = GivenIgvm & { readonly firmware: string; readonly idBlock: IdPages }
/** ID_BLOCK and ID_AUTH. Empty if the file has none. */
type IdPages = { readonly block: Uint8Array; readonly auth: Uint8Array }

/**
 * Number of launch digests that are cached by their inputs: images change, and each has a few configurations. No
 * share: digests of the operator's images.
 */
const digestCountMax = 64

export class Launcher {
  readonly #deps: LauncherDeps
  readonly #files: FileDigests
  readonly #igvm: IgvmFiles | null
  readonly #digests = new Map<string, Promise<Measured>>()

  constructor(deps: LauncherDeps) {
    this.#deps = deps
    this.#files = new FileDigests(deps.clock)
    const { boot, igvmDirectory: directory } = deps
    this.#igvm = boot.kind === 'igvm' ? new IgvmFiles({ directory, files: this.#files, named: boot.file }) : null
  }

  /**
   * Opens, signs, records and checks everything for one launch. The caller disposes of it once QEMU has its
   * descriptors. Faults: image.invalid (files, or no measurement for this shape), launch.mismatch (LaunchMismatch).
   */
  async prepare(vm: LaunchedVm, image: Image): Promise<PreparedLaunch> {
    const { db, clock, operatorKey, beforeLaunch } = this.#deps
    const launch = await this.#open(vm, image)
    try {
      const { workload } = launch
      const { measurement } = launch.document
      const document = launchText(launch.document)
      recordLaunch(db, {
        vmId: vm.id,
        document,
        workload,
        measurement,
        hostData: toHex(hostDataOf({ document, workload })),
        operatorKey: toHex(operatorKey.digest),
        launchedAtMs: clock.nowMs(),
      })
      await this.check(vm.id, launch)
      beforeLaunch({ measurement, workload })
      return launch
    } catch (error) {
      launch[Symbol.dispose]()
      throw error
    }
  }

  /** Reads and measures the files that a launch checks, so that the first launch is quick. Faults: image.invalid. */
  async readAhead(vm: Omit<LaunchedVm, 'id'>, image: Image): Promise<void> {
    using launch = await this.#open(vm, image)
    await this.#measure(launch)
  }

  /** Checks a launch. Throws Fault launch.mismatch (LaunchMismatch) if the bytes to load do not match the document. */
  async check(vmId: string, launch: Omit<PreparedLaunch, typeof Symbol.dispose>): Promise<void> {
    const { document, workload, firmwareSha256 } = launch
    const operatorKey = this.#deps.operatorKey.digest
    const expected = { document, workload, operatorKey, firmwareSha256 }
    const parts = await differingParts(await this.#measure(launch), expected)
    if (parts.length > 0) throw new LaunchMismatch(vmId, parts)
  }

  async #open({ vcpus, memoryMib, workload }: Omit<LaunchedVm, 'id'>, image: Image): Promise<PreparedLaunch> {
    const { boot, vcpuType } = this.#deps
    using opened = new DisposableStack()
    const open = (path: string) => opened.use(openImageFile(path))
    const [kernel, initrd] = [open(image.kernel), open(image.initrd)]
    const shape: LaunchShape = { vehicle: boot.kind, vcpuType, vcpus }
    const measurement = expectedMeasurement(image.manifest, shape)
    const id = await this.#signId(measurement)
    const igvm = await this.#igvm?.open({ image, kernel, initrd, vcpuType, vcpus, measurement, sign: async () => id })
    const named = boot.kind === 'bios' && isOfNamed(image) ? boot.firmware : null
    const firmware = igvm === undefined ? open(named ?? image.firmware) : opened.use(igvm.file)
    const document = launchDocument(image.manifest, { ...shape, memoryMib, igvmSha256: igvm?.unsigned ?? null })
    const { block, auth } = { block: toBase64(writeIdBlock(id.block)), auth: toBase64(writeIdAuth(id.auth)) }
    const idBlock = { block, auth, hasAuthor: id.auth.author !== null }
    const hostData = toBase64(hostDataOf({ document: launchText(document), workload }))
    const signed = { policy: guestPolicy, hostData, idBlock }
    const kept = opened.move()
    return {
      firmware,
      kernel,
      initrd,
      cmdline: image.cmdline,
      document,
      workload,
      signed,
      firmwareSha256: image.manifest.files.firmware.sha256,
      [Symbol.dispose]: () => kept.dispose(),
    }
  }

  async #signId(measurement: string): Promise<SignedId> {
    const none = new Uint8Array(16)
    const bytes = present(fromHex(measurement), 'the schema requires hexadecimal')
    const block = { measurement: bytes, familyId: none, imageId: none, guestSvn: 0, policy: guestPolicy }
    const { auth } = await signIdBlock(block, { idKey: this.#deps.operatorKey.keys })
    return { block, auth }
  }

  /** Measures the files behind QEMU's descriptors and the text of its argument. */
  async #measure(launch: Omit<PreparedLaunch, typeof Symbol.dispose>): Promise<GivenLaunch> {
    const { document, cmdline, signed } = launch
    const digests = {
      firmware: await this.#files.sha256(launch.firmware),
      kernel: await this.#files.sha256(launch.kernel),
      initrd: await this.#files.sha256(launch.initrd),
      cmdline: toHex(sha256(utf8(cmdline))),
    }
    const { vcpus, vcpuType, vehicle } = document
    const key = [vehicle, vcpuType, vcpus, ...Object.values(digests)].join('/')
    const { digest, igvm } = await this.#measured(key, () => this.#digestOf(launch, digests))
    if (igvm === null) return { ...digests, digest, igvm, signed }
    // QEMU takes the block from the file.
    const idBlock = { ...signed.idBlock, block: toBase64(igvm.idBlock.block), auth: toBase64(igvm.idBlock.auth) }
    return { ...digests, firmware: igvm.firmware, digest, igvm, signed: { ...signed, idBlock } }
  }

  async #measured(key: string, measure: () => Promise<Measured>): Promise<Measured> {
    const known = this.#digests.get(key)
    if (known !== undefined) return await known
    const measured = measure()
    this.#digests.set(key, measured)
    for (const old of this.#digests.keys()) {
      if (this.#digests.size <= digestCountMax) break
      this.#digests.delete(old)
    }
    measured.catch(() => this.#digests.delete(key))
    return await measured
  }

  async #digestOf(
    { firmware, cmdline, document }: Omit<PreparedLaunch, typeof Symbol.dispose>,
    sha256s: { readonly firmware: string; readonly kernel: string; readonly initrd: string },
  ): Promise<Measured> {
    const { vcpus, vcpuType } = document
    const bytes = await readWhole(firmware)
    if (toHex(new Uint8Array(new Bun.CryptoHasher('sha256').update(bytes).digest())) !== sha256s.firmware)
      throw new Fault('image.invalid', `${firmware.path} changed while it was measured`)
    try {
      const cmdlineHash = sha256(cmdlineBytes(cmdline))
      if (document.vehicle === 'igvm') return await measuredIgvm(bytes, toHex(cmdlineHash))
      const hashOf = (name: 'kernel' | 'initrd') => present(fromHex(sha256s[name]), 'a digest is hexadecimal')
      const kernelHashes = { kernel: hashOf('kernel'), initrd: hashOf('initrd'), cmdline: cmdlineHash }
      const cpus: LaunchCpus = { vcpus, vcpuType, features: guestFeatures, profile: launchProfile }
      const later = laterRegions({ ...cpus, metadata: readOvmf(bytes), kernelHashes })
      return { digest: (await measureRegions([firmwareRegion(bytes), ...later])).digest, igvm: null }
    } catch (error) {
      throw wrapFault(error, `measure ${firmware.path}`, 'image.invalid')
    }
  }
}

async function measuredIgvm(bytes: Uint8Array, cmdlineGiven: string): Promise<Measured> {
  const { digest, firmware, idBlock, ...rest } = await readIgvmLaunch(bytes, nativeHashes)
  const none = new Uint8Array(0)
  return {
    digest,
    igvm: { ...rest, cmdlineGiven, firmware: firmware ?? 'none', idBlock: idBlock ?? { block: none, auth: none } },
  }
}
