// Describes an IGVM file for people and verifiers: platforms, digests, and the kernel that its firmware accepts. Pure.

import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { type Hash, digest as webDigest } from '../hash.ts'
import { firmwareEndGpa } from '../launch/digest.ts'
import { type BootFiles, type KernelHashes, kernelHashesOf, readKernelHashPage } from '../launch/kernel-hashes.ts'
import { type OvmfMetadata, readOvmf } from '../launch/ovmf.ts'
import { Malformed } from '../malformed.ts'
import { type Check, check, fail, notChecked } from '../verdict.ts'
import { checkIgvmLayout } from './expected.ts'
import { type IgvmFile, readIgvm } from './file.ts'
import { IGVM_PLATFORMS, type IgvmHeader, type IgvmKind } from './headers.ts'
import { IGVM_PROFILES, type IgvmProfile, measureIgvm, snpHeaders } from './measure.ts'

type IgvmPlatform = { readonly name: string; readonly compatibilityMask: number; readonly highestVtl: number }

/** A digest, or why the profile's loader would refuse the file. */
export type IgvmDigestOrReason =
  | { readonly kind: 'digest'; readonly digest: Uint8Array }
  | { readonly kind: 'none'; readonly reason: string }

export type IgvmDescription = {
  readonly platforms: readonly IgvmPlatform[]
  /** Number of headers of each kind. */
  readonly headers: Readonly<Partial<Record<IgvmKind, number>>>
  /** The SEV-SNP guest policy; null if the file sets none. */
  readonly policy: bigint | null
  readonly vmsaCount: number
  /** Pages that the host can read and change; no digest covers them. */
  readonly sharedPageCount: number
  readonly digests: Readonly<Record<IgvmProfile, IgvmDigestOrReason>>
  /** The firmware that ends at 4 GiB; null if the file has none that this library can read. */
  readonly firmware: { readonly sizeBytes: number; readonly sha256: Uint8Array } | null
  /** The hashes that the firmware compares with kernel, initrd and command line; null if it compares none. */
  readonly kernelHashes: KernelHashes | null
  /** The measurement that the file's ID block signs; null without an ID block. */
  readonly idBlockMeasurement: Uint8Array | null
  /**
   * `igvm-layout`: the file loads only this firmware, so that the hashes in the file decide what boots. Then
   * `igvm-kernel`, `igvm-initrd`, `igvm-cmdline`: the hashes match the given files; not-checked for a file that is not
   * given.
   */
  readonly checks: readonly Check[]
}

/** A file to compare with, or 'any' to skip it. For an image without an initrd, pass an empty one. */
export type IgvmExpectation = {
  readonly kernel: Uint8Array | 'any'
  readonly initrd: Uint8Array | 'any'
  readonly cmdline: string | { readonly any: true }
}

/** Describes a file. Throws Malformed if the bytes are not an IGVM file for SEV-SNP. */
export async function describeIgvm(
  bytes: Uint8Array,
  options: { readonly expected: IgvmExpectation | 'any'; readonly sha384?: Hash | undefined },
): Promise<IgvmDescription> {
  const file = readIgvm(bytes)
  const headers = snpHeaders(file)
  const { loaded, kernelHashes, policy } = bootOfIgvm(file)
  const idBlock = headers.find(header => header.kind === 'snpIdBlock')
  return {
    platforms: file.headers.flatMap(header => (header.kind === 'supportedPlatform' ? [platformOf(header)] : [])),
    headers: countKinds(file),
    policy,
    vmsaCount: headers.filter(({ kind }) => kind === 'vpContext').length,
    sharedPageCount: headers.filter(header => header.kind === 'pageData' && header.isShared).length,
    digests: await digestsOf(file, options.sha384),
    firmware:
      loaded === null
        ? null
        : { sizeBytes: loaded.firmware.length, sha256: await webDigest('SHA-256', loaded.firmware) },
    kernelHashes,
    idBlockMeasurement: idBlock?.kind === 'snpIdBlock' ? idBlock.measurement : null,
    checks: [
      checkIgvmLayout(file, loaded === null ? null : { ...loaded, kernelHashes }),
      ...(await kernelChecks(kernelHashes, options.expected)),
    ],
  }
}

type IgvmBoot = {
  /** The firmware that ends at 4 GiB, with its tables; null if the file has none that this library can read. */
  readonly loaded: { readonly firmware: Uint8Array; readonly metadata: OvmfMetadata } | null
  readonly kernelHashes: KernelHashes | null
  readonly policy: bigint | null
}

/**
 * Returns the kernel and firmware that a file boots. Throws Malformed if it is not for SEV-SNP or loads a page twice.
 */
export function bootOfIgvm(file: IgvmFile): IgvmBoot {
  const headers = snpHeaders(file)
  const loaded = firmwareOf(headers)
  const policy = headers.find(header => header.kind === 'guestPolicy')
  return {
    loaded,
    kernelHashes: loaded === null ? null : committedHashes(headers, loaded.metadata),
    policy: policy?.kind === 'guestPolicy' ? policy.policy : null,
  }
}

function platformOf(header: IgvmHeader & { kind: 'supportedPlatform' }): IgvmPlatform {
  const { platform, compatibilityMask, highestVtl } = header
  const name = Object.entries(IGVM_PLATFORMS).find(([, number]) => number === platform)?.[0] ?? `platform ${platform}`
  return { name, compatibilityMask, highestVtl }
}

function countKinds(file: IgvmFile): Partial<Record<IgvmKind, number>> {
  const counts: Partial<Record<IgvmKind, number>> = {}
  for (const { kind } of file.headers) counts[kind] = (counts[kind] ?? 0) + 1
  return counts
}

async function digestsOf(file: IgvmFile, sha384: Hash | undefined): Promise<Record<IgvmProfile, IgvmDigestOrReason>> {
  const results = IGVM_PROFILES.map(async profile => {
    try {
      const { digest } = await measureIgvm(file, { profile, sha384 })
      return [profile, { kind: 'digest', digest }] as const
    } catch (error) {
      if (error instanceof Malformed) return [profile, { kind: 'none', reason: error.message }] as const
      throw error
    }
  })
  return Object.fromEntries(await Promise.all(results)) as Record<IgvmProfile, IgvmDigestOrReason>
}

const pageBytes = 4096

/** Returns the pages whose contents the digest covers, by address. */
function measuredPages(headers: readonly IgvmHeader[]): Map<bigint, Uint8Array> {
  const pages = new Map<bigint, Uint8Array>()
  for (const header of headers) {
    if (header.kind !== 'pageData' || header.dataType !== 'normal') continue
    if (header.isUnmeasured || header.isShared || header.data === null) continue
    if (pages.has(header.gpa)) throw new Malformed(`IGVM: page 0x${header.gpa.toString(16)} loaded twice`)
    pages.set(header.gpa, header.data)
  }
  return pages
}

/** Reads the measured pages that end at 4 GiB as OVMF. */
function firmwareOf(headers: readonly IgvmHeader[]): IgvmBoot['loaded'] {
  const pages = measuredPages(headers)
  const found: Uint8Array[] = []
  for (let gpa = firmwareEndGpa; ; ) {
    gpa -= BigInt(pageBytes)
    const page = pages.get(gpa)
    if (page === undefined) break
    found.push(page)
  }
  const firmware = new Uint8Array(found.length * pageBytes)
  found.forEach((page, index) => {
    firmware.set(page, firmware.length - (index + 1) * pageBytes)
  })
  try {
    return { firmware, metadata: readOvmf(firmware) }
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
}

/** Reads the hash table at the firmware's address. Null if the file has none: the firmware then boots nothing. */
function committedHashes(headers: readonly IgvmHeader[], { kernelHashes: area }: OvmfMetadata): KernelHashes | null {
  if (area === null) return null
  const offset = area.gpa % pageBytes
  const page = measuredPages(headers).get(BigInt(area.gpa - offset))
  if (page === undefined) return null
  try {
    return readKernelHashPage(page, offset)
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
}

const CHECK_NAMES = { kernel: 'igvm-kernel', initrd: 'igvm-initrd', cmdline: 'igvm-cmdline' } as const

async function kernelChecks(committed: KernelHashes | null, expected: IgvmExpectation | 'any'): Promise<Check[]> {
  const { kernel, initrd, cmdline }: IgvmExpectation =
    expected === 'any' ? { kernel: 'any', initrd: 'any', cmdline: { any: true } } : expected
  const files: BootFiles = {
    kernel: kernel === 'any' ? new Uint8Array(0) : kernel,
    initrd: initrd === 'any' ? undefined : initrd,
    cmdline: typeof cmdline === 'string' ? cmdline : undefined,
  }
  const given = { kernel: kernel !== 'any', initrd: initrd !== 'any', cmdline: typeof cmdline === 'string' }
  const hashes = await kernelHashesOf(files)
  return (['kernel', 'initrd', 'cmdline'] as const).map(part => {
    const name = CHECK_NAMES[part]
    if (!given[part]) return notChecked(name, `no ${part} to compare with`, false)
    if (committed === null) return fail(name, 'the file holds no kernel hashes')
    const failure = `the hash in the IGVM file is ${toHex(committed[part])}, that of the given ${part} is ${toHex(hashes[part])}`
    return check(name, equalConstantTime(committed[part], hashes[part]), failure)
  })
}
