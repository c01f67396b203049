// The launch digest of a VM (AMD 56860 rev 1.58, 8.17.2), predicted from what QEMU and KVM load. Pure.

import { present } from '../../base/assert.ts'
import { type Hash, sha384, digest as webDigest } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { type BootFiles, type KernelHashes, kernelHashesOf, kernelHashPage } from './kernel-hashes.ts'
import {
  checkFirmwareSize,
  type OvmfMetadata,
  type OvmfSection,
  type OvmfSectionKind,
  pageBytes,
  readOvmf,
} from './ovmf.ts'
import {
  hasMeasuredContents,
  launchDigestBytes,
  type PageInfo,
  type PageType,
  pageInfoBytes,
  putPageInfo,
} from './page-info.ts'
import { vcpuSignature } from './vcpu-types.ts'
import { kvmVmsaGpa, qemuVmsas } from './vmsa.ts'

/** The program that loads the VM: it chooses the order and types of the pages. */
export type LaunchProfile = 'qemu-kvm'

/**
 * How QEMU receives the firmware. `bios`: with -bios, its zeroed memory added as zero pages. `igvm`: in an IGVM file,
 * with zeroed memory as normal pages of zeros (IGVM_VHS_PAGE_DATA; QEMU target/i386/sev.c). The two give different
 * digests for the same inputs.
 */
export type LaunchVehicle = 'bios' | 'igvm'

export type LaunchRegion = {
  readonly name: string
  readonly type: PageType
  readonly gpa: bigint
  readonly pageCount: number
  /** All pages of the region, for types whose contents are measured; null for other types. */
  readonly contents: Uint8Array | null
}

/** One region with the digest after its last page. */
export type LaunchPart = Omit<LaunchRegion, 'contents'> & { readonly digest: Uint8Array }

export type LaunchDigest = {
  /** 48 bytes: MEASUREMENT in the report. */
  readonly digest: Uint8Array
  readonly profile: LaunchProfile
  readonly parts: readonly LaunchPart[]
}

export type LaunchCpus = {
  /** Number of processors, 1 to 1024. */
  readonly vcpus: number
  /** A model of VCPU_SIGNATURES, or its CPUID signature. */
  readonly vcpuType: string | number
  /** SEV_FEATURES. */
  readonly features: bigint
  readonly profile: LaunchProfile
  readonly vehicle?: LaunchVehicle
  /** A native SHA-384 to use instead of WebCrypto. */
  readonly sha384?: Hash | undefined
}

export type LaunchInput = LaunchCpus & { readonly firmware: Uint8Array } & Partial<BootFiles>

/** For verifiers without the firmware file: the digest after the firmware's pages, its tables, and the boot hashes. */
export type PrecomputedLaunch = LaunchCpus & {
  readonly firmwareDigest: Uint8Array
  readonly metadata: OvmfMetadata
  /** Null if the firmware checks no hashes. */
  readonly kernelHashes: KernelHashes | null
}

export const vcpuCountMax = 1024
/** 512 MiB: more than any launch loads, and quick to hash. */
const launchPagesMax = 1 << 17

/** Address at which the firmware ends. */
export const firmwareEndGpa = 0x1_0000_0000n

/**
 * Computes the launch digest. Throws Malformed for firmware or parameters that cannot launch. An initrd or a command
 * line requires a kernel.
 */
export async function launchDigest(input: LaunchInput): Promise<LaunchDigest> {
  const { firmware, kernel, initrd, cmdline } = input
  const metadata = readOvmf(firmware)
  wellFormed(kernel !== undefined || (initrd === undefined && cmdline === undefined), 'launch: no kernel')
  const kernelHashes = kernel === undefined ? null : await kernelHashesOf({ kernel, initrd, cmdline })
  const rest = laterRegions({ ...input, metadata, kernelHashes })
  return { ...(await measureRegions([firmwareRegion(firmware), ...rest], input)), profile: input.profile }
}

/** Computes the same digest without the firmware file. */
export async function precomputedLaunchDigest(input: PrecomputedLaunch): Promise<LaunchDigest> {
  wellFormed(input.firmwareDigest.length === launchDigestBytes, 'launch: firmware digest is not 48 bytes')
  const measured = await measureRegions(laterRegions(input), { ...input, start: input.firmwareDigest })
  return { ...measured, profile: input.profile }
}

/** Returns the digest after the firmware alone, for `precomputedLaunchDigest`. */
export async function firmwareLaunchDigest(
  firmware: Uint8Array,
  options: { sha384?: Hash | undefined } = {},
): Promise<Uint8Array> {
  return (await measureRegions([firmwareRegion(firmware)], options)).digest
}

/** Returns the firmware's pages as a region that ends at 4 GiB. */
export function firmwareRegion(firmware: Uint8Array): LaunchRegion {
  checkFirmwareSize(firmware)
  return {
    name: 'firmware',
    type: 'normal',
    gpa: firmwareEndGpa - BigInt(firmware.length),
    pageCount: firmware.length / pageBytes,
    contents: firmware,
  }
}

/** Returns the regions loaded after the firmware: its sections in table order, then one VMSA for each processor. */
export function laterRegions(launch: Omit<PrecomputedLaunch, 'firmwareDigest'>): LaunchRegion[] {
  const { metadata, kernelHashes, vcpus, features } = launch
  const isCount = Number.isInteger(vcpus) && vcpus >= 1 && vcpus <= vcpuCountMax
  wellFormed(isCount, `launch: ${vcpus} vCPUs, not 1 to ${vcpuCountMax}`)
  const table = kernelHashes === null ? null : tablePage(metadata, kernelHashes)
  const vehicle = launch.vehicle ?? 'bios'
  const sections = metadata.sections.map(section => sectionRegion(section, vehicle, table))
  const vmsas = qemuVmsas(metadata, { signature: vcpuSignature(launch.vcpuType), features })
  const processors = Array.from({ length: vcpus }, (_, index): LaunchRegion => {
    const contents = index === 0 ? vmsas.first : vmsas.other
    return { name: `vmsa ${index}`, type: 'vmsa', gpa: kvmVmsaGpa, pageCount: 1, contents }
  })
  return [...sections, ...processors]
}

/** Returns the kernel-hash page. Throws Malformed unless the firmware reads it. */
function tablePage(metadata: OvmfMetadata, hashes: KernelHashes): Uint8Array {
  const area = metadata.kernelHashes
  wellFormed(area !== null, 'launch: a kernel with firmware that checks no kernel hashes')
  const sections = metadata.sections.filter(({ kind }) => kind === 'kernelHashes')
  const gpa = area.gpa - (area.gpa % pageBytes)
  wellFormed(sections.length === 1 && sections[0]?.gpa === gpa, 'launch: no kernelHashes section at the hash table')
  const page = kernelHashPage(hashes, area.gpa % pageBytes)
  wellFormed(
    page.subarray((area.gpa % pageBytes) + area.sizeBytes).every(byte => byte === 0),
    'launch: kernel-hash area too small',
  )
  return page
}

/** How each section is loaded: QEMU target/i386/sev.c, snp_populate_metadata_pages. */
const SECTION_TYPES = {
  secMemory: 'zero',
  secrets: 'secrets',
  cpuid: 'cpuid',
  svsmCallingArea: 'zero',
  kernelHashes: 'zero',
} as const satisfies Record<OvmfSectionKind, PageType>

function sectionRegion(section: OvmfSection, vehicle: LaunchVehicle, table: Uint8Array | null): LaunchRegion {
  const { kind, sizeBytes } = section
  const place = { name: kind, gpa: BigInt(section.gpa), pageCount: sizeBytes / pageBytes }
  if (kind === 'kernelHashes' && table !== null) return { ...place, type: 'normal', contents: table }
  const type = SECTION_TYPES[kind]
  if (type === 'zero' && vehicle === 'igvm') return { ...place, type: 'normal', contents: new Uint8Array(sizeBytes) }
  return { ...place, type, contents: null }
}

type LaunchPage = PageInfo & { readonly contents: Uint8Array | null }

/** Extends the digest by every page of every region, in order. `start`: the digest so far; zeros by default. */
export async function measureRegions(
  regions: readonly LaunchRegion[],
  options: { readonly start?: Uint8Array; readonly sha384?: Hash | undefined } = {},
): Promise<{ digest: Uint8Array; parts: LaunchPart[] }> {
  const pages = launchPages(regions)
  const record = new Uint8Array(pageInfoBytes)
  const chainHash = options.sha384 ?? sha384
  const ends = new Map<number, Uint8Array | null>(lastPages(regions).map(index => [index, null]))
  let digest = options.start ?? new Uint8Array(launchDigestBytes)
  let next = hashWindow(pages, 0, options.sha384)
  for (let from = 0; from < pages.length; from += windowPages) {
    const contents = await next
    // WebCrypto hashes the next window while this loop chains the current one.
    next = hashWindow(pages, from + windowPages, options.sha384)
    contents.forEach((hash, index) => {
      const page = pages[from + index]
      wellFormed(page !== undefined, 'launch: a hash without its page')
      putPageInfo(record, page, digest, hash)
      digest = chainHash(record)
      if (ends.has(from + index)) ends.set(from + index, digest.slice())
    })
  }
  await next
  const indices = lastPages(regions)
  const parts = regions.map(({ contents: _, ...region }, index) => ({
    ...region,
    digest: present(ends.get(indices[index] ?? -1), 'every region ends with a page'),
  }))
  return { digest: digest.slice(), parts }
}

/** Returns the index of each region's last page, over all pages. */
function lastPages(regions: readonly LaunchRegion[]): number[] {
  let count = 0
  return regions.map(({ pageCount }) => {
    count += pageCount
    return count - 1
  })
}

/** Pages hashed at once: enough to keep WebCrypto busy, few enough to keep their hashes in memory. */
const windowPages = 256

async function hashWindow(pages: readonly LaunchPage[], from: number, sha384?: Hash): Promise<(Uint8Array | null)[]> {
  const hash = async (contents: Uint8Array) => webDigest('SHA-384', contents)
  const window = pages.slice(from, from + windowPages)
  if (sha384 !== undefined) return window.map(({ contents }) => (contents === null ? null : sha384(contents).slice()))
  return Promise.all(window.map(({ contents }) => (contents === null ? null : hash(contents))))
}

/**
 * Returns the pages of the regions, in order. Throws Malformed before allocating if there are more than
 * `launchPagesMax`.
 */
export function launchPages(regions: readonly LaunchRegion[]): LaunchPage[] {
  const total = regions.reduce((sum, { pageCount }) => sum + pageCount, 0)
  wellFormed(total <= launchPagesMax, `launch: ${total} pages, more than ${launchPagesMax}`)
  return regions.flatMap(({ name, type, gpa, pageCount, contents }) => {
    const isMeasured = hasMeasuredContents(type)
    wellFormed(isMeasured === (contents !== null) && pageCount > 0, `launch: contents of ${name}`)
    wellFormed(contents === null || contents.length === pageCount * pageBytes, `launch: length of ${name}`)
    return Array.from({ length: pageCount }, (_, index) => ({
      type,
      gpa: gpa + BigInt(index * pageBytes),
      contents: contents?.subarray(index * pageBytes, (index + 1) * pageBytes) ?? null,
    }))
  })
}
