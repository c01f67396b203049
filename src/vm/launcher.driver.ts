// Prepares launches: opens what QEMU is to load, says and signs what it has to be, keeps that on record, and refuses what is not so.
// Effects: reads files, writes the ledger.
//
// On snp the firmware checks the same again, of what is really loaded. Elsewhere this is the only check: it stands for the firmware's.

import { sha256 } from '../attest/hash.ts'
import { measureIgvm } from '../attest/igvm/measure.ts'
import { firmwareRegion, type LaunchCpus, laterRegions, measureRegions } from '../attest/launch/digest.ts'
import { signIdBlock } from '../attest/launch/id-block-sign.ts'
import { cmdlineBytes } from '../attest/launch/kernel-hashes.ts'
import { readOvmf } from '../attest/launch/ovmf.ts'
import { present } from '../base/assert.ts'
import { fromHex, toBase64, toHex, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { type LaunchDocument, launchText } from '../contract/launch.ts'
import type { OperatorKey } from '../host/operator-key.ts'
import type { LedgerDb } from '../store/db.ts'
import { recordLaunch } from '../store/ledger/launch.query.ts'
import type { Vm } from '../store/ledger/vm.table.ts'
import {
  differingParts,
  type GivenLaunch,
  guestPolicy,
  hostDataOf,
  type LaunchPart,
  type LaunchShape,
  launchDocument,
  launchProfile,
} from './expected.plan.ts'
import type { Image } from './image.driver.ts'
import { FileDigests, type ImageFile, openImageFile, readWhole } from './image-file.driver.ts'
import type { SignedLaunch, SnpBoot } from './qemu.plan.ts'

/** What is about to be launched is not what this host expects. */
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
  readonly boot: SnpBoot
}

/** Open until it is disposed of. */
export type PreparedLaunch = Disposable & {
  /** The firmware, or the IGVM file. */
  readonly firmware: ImageFile
  readonly kernel: ImageFile
  readonly initrd: ImageFile
  readonly cmdline: string
  readonly document: LaunchDocument
  readonly signed: SignedLaunch
}

/** SEV_FEATURES of a plain SEV-SNP guest: bit 0, SNP itself. */
const features = 1n
/** Inputs whose launch digest is kept: images come and go, and each has a few shapes. */
const digestCountMax = 64

export class Launcher {
  readonly #deps: LauncherDeps
  readonly #files: FileDigests
  readonly #digests = new Map<string, Promise<Uint8Array>>()

  constructor(deps: LauncherDeps) {
    this.#deps = deps
    this.#files = new FileDigests(deps.clock)
  }

  /**
   * Everything for one launch: opened, signed, on record and checked. The caller disposes of it once QEMU has its descriptors.
   * Faults: image.invalid (files, or no measurement for this shape), launch.mismatch (LaunchMismatch).
   */
  async prepare(vm: Pick<Vm, 'id' | 'vcpus' | 'memoryMib'>, image: Image): Promise<PreparedLaunch> {
    const { db, clock, operatorKey } = this.#deps
    const launch = await this.#open(vm, image)
    try {
      const { document } = launch
      recordLaunch(db, {
        vmId: vm.id,
        document: launchText(document),
        measurement: document.measurement,
        hostData: toHex(hostDataOf(document)),
        operatorKey: toHex(operatorKey.digest),
        launchedAtMs: clock.nowMs(),
      })
      await this.check(vm.id, launch)
      return launch
    } catch (error) {
      launch[Symbol.dispose]()
      throw error
    }
  }

  /** Fault launch.mismatch (LaunchMismatch): what would be loaded is not what the document says. */
  async check(vmId: string, launch: Omit<PreparedLaunch, typeof Symbol.dispose>): Promise<void> {
    const { document, signed } = launch
    const given = { ...(await this.#measure(launch)), signed }
    const parts = await differingParts(given, { document, operatorKey: this.#deps.operatorKey.digest })
    if (parts.length > 0) throw new LaunchMismatch(vmId, parts)
  }

  async #open({ vcpus, memoryMib }: Pick<Vm, 'vcpus' | 'memoryMib'>, image: Image): Promise<PreparedLaunch> {
    const { boot, vcpuType } = this.#deps
    using opened = new DisposableStack()
    const open = (path: string) => opened.use(openImageFile(path))
    const firmware = open(boot.kind === 'igvm' ? boot.file : (boot.firmware ?? image.firmware))
    const files = { firmware, kernel: open(image.kernel), initrd: open(image.initrd) }
    const shape: LaunchShape = { vehicle: boot.kind, vcpuType, vcpus }
    const igvmSha256 = boot.kind === 'igvm' ? await this.#files.sha256(firmware) : null
    const document = launchDocument(image.manifest, { ...shape, memoryMib, igvmSha256 })
    const signed = await this.#sign(document)
    const kept = opened.move()
    return { ...files, cmdline: image.cmdline, document, signed, [Symbol.dispose]: () => kept.dispose() }
  }

  async #sign(document: LaunchDocument): Promise<SignedLaunch> {
    const measurement = present(fromHex(document.measurement), 'the schema says hexadecimal')
    const none = new Uint8Array(16)
    const block = { measurement, familyId: none, imageId: none, guestSvn: 0, policy: guestPolicy }
    const { idBlock, idAuth, auth } = await signIdBlock(block, { idKey: this.#deps.operatorKey.keys })
    return {
      policy: guestPolicy,
      hostData: toBase64(hostDataOf(document)),
      idBlock: { block: toBase64(idBlock), auth: toBase64(idAuth), hasAuthor: auth.author !== null },
    }
  }

  /** By the bytes behind the descriptors that QEMU gets, and the very text of its argument. */
  async #measure(launch: Omit<PreparedLaunch, typeof Symbol.dispose>): Promise<Omit<GivenLaunch, 'signed'>> {
    const { document, cmdline } = launch
    const digests = {
      firmware: await this.#files.sha256(launch.firmware),
      kernel: await this.#files.sha256(launch.kernel),
      initrd: await this.#files.sha256(launch.initrd),
      cmdline: toHex(sha256(utf8(cmdline))),
    }
    const { vcpus, vcpuType, vehicle } = document
    const key = [vehicle, vcpuType, vcpus, ...Object.values(digests)].join('/')
    const known = this.#digests.get(key)
    if (known !== undefined) return { ...digests, digest: await known }
    const digest = this.#digestOf(launch, digests)
    this.#digests.set(key, digest)
    for (const old of this.#digests.keys()) {
      if (this.#digests.size <= digestCountMax) break
      this.#digests.delete(old)
    }
    digest.catch(() => this.#digests.delete(key))
    return { ...digests, digest: await digest }
  }

  async #digestOf(
    { firmware, cmdline, document }: Omit<PreparedLaunch, typeof Symbol.dispose>,
    sha256s: Omit<GivenLaunch, 'signed' | 'digest'>,
  ): Promise<Uint8Array> {
    const { vcpus, vcpuType } = document
    const bytes = await readWhole(firmware)
    if (toHex(new Uint8Array(new Bun.CryptoHasher('sha256').update(bytes).digest())) !== sha256s.firmware)
      throw new Fault('image.invalid', `${firmware.path} changed while it was measured`)
    try {
      if (document.vehicle === 'igvm') return (await measureIgvm(bytes, { profile: launchProfile })).digest
      const hashOf = (name: 'kernel' | 'initrd') => present(fromHex(sha256s[name]), 'a digest is hexadecimal')
      const kernelHashes = {
        kernel: hashOf('kernel'),
        initrd: hashOf('initrd'),
        cmdline: sha256(cmdlineBytes(cmdline)),
      }
      const cpus: LaunchCpus = { vcpus, vcpuType, features, profile: launchProfile }
      const later = laterRegions({ ...cpus, metadata: readOvmf(bytes), kernelHashes })
      return (await measureRegions([firmwareRegion(bytes), ...later])).digest
    } catch (error) {
      throw wrapFault(error, `measure ${firmware.path}`, 'image.invalid')
    }
  }
}
