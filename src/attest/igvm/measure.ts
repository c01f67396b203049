// The launch digest of an IGVM file. Pure. Loaders add different pages in different orders, so every digest names its
// profile.

import type { Hash } from '../hash.ts'
import { type LaunchPart, type LaunchRegion, measureRegions } from '../launch/digest.ts'
import type { PageType } from '../launch/page-info.ts'
import { KVM_FORCED, kvmVmsaGpa } from '../launch/vmsa.ts'
import { changeVmsa, checkLaunchFeatures, readVmsa } from '../launch/vmsa-layout.ts'
import { wellFormed } from '../malformed.ts'
import { type IgvmFile, readIgvm } from './file.ts'
import { IGVM_PLATFORMS, type IgvmHeader, type PageDataType } from './headers.ts'

/**
 * `directive-order`: in the order of the directives (microsoft/igvm, igvm-tooling). `qemu-kvm`: as QEMU 10.1 and later
 * loads it (QEMU backends/igvm.c). QEMU adds a run of pages at its end, parameter areas immediately, and VMSAs last,
 * with the bits that KVM forces.
 */
export const IGVM_PROFILES = ['directive-order', 'qemu-kvm'] as const
export type IgvmProfile = (typeof IGVM_PROFILES)[number]

export type IgvmDigest = {
  readonly digest: Uint8Array
  readonly profile: IgvmProfile
  readonly parts: readonly LaunchPart[]
}

/**
 * Returns the launch digest. Throws Malformed if the file is malformed, not for SEV-SNP, or refused by the profile's
 * loader.
 */
export async function measureIgvm(
  file: Uint8Array | IgvmFile,
  options: { readonly profile: IgvmProfile; readonly sha384?: Hash | undefined },
): Promise<IgvmDigest> {
  const parsed = file instanceof Uint8Array ? readIgvm(file) : file
  const regions = igvmRegions(parsed, options.profile)
  const measured = await measureRegions(regions, options)
  return { ...measured, profile: options.profile }
}

/** Returns the headers that SEV-SNP loads. Throws Malformed if the file does not list the platform. */
export function snpHeaders(file: IgvmFile): IgvmHeader[] {
  const platform = file.headers.find(header => header.kind === 'supportedPlatform' && isSnp(header))
  wellFormed(platform?.kind === 'supportedPlatform', 'IGVM: not for SEV-SNP')
  const mask = platform.compatibilityMask
  return file.headers.filter(header => !('compatibilityMask' in header) || (header.compatibilityMask & mask) !== 0)
}

function isSnp(header: IgvmHeader): boolean {
  return header.kind === 'supportedPlatform' && header.platform === IGVM_PLATFORMS.sevSnp
}

/** Returns the measured regions in the profile's order, without shared pages. */
export function igvmRegions(file: IgvmFile, profile: IgvmProfile): LaunchRegion[] {
  const regions = profile === 'qemu-kvm' ? qemuOrder(file) : directiveOrder(file)
  const seen = new Set<bigint>()
  for (const header of snpHeaders(file)) if (isShared(header)) addPage(seen, header.gpa, 'a shared page')
  for (const { name, type, gpa, pageCount } of regions) {
    if (type === 'vmsa') continue
    for (let page = 0; page < pageCount; page += 1) addPage(seen, gpa + BigInt(page * pageBytes), name)
  }
  return regions
}

/**
 * Adds a page. Throws Malformed if it was added before: hardware refuses to load a page twice, and readers could
 * disagree about a page with two contents.
 */
function addPage(seen: Set<bigint>, at: bigint, name: string): void {
  wellFormed(!seen.has(at), `IGVM: page 0x${at.toString(16)} of ${name} loaded twice`)
  wellFormed(seen.size < pagesMax && at < 1n << 52n, `IGVM: ${name} outside memory`)
  seen.add(at)
}

const pageBytes = 4096
/** The largest number of pages in one launch. */
const pagesMax = 1 << 17

type PageData = IgvmHeader & { kind: 'pageData' }
type VpContext = IgvmHeader & { kind: 'vpContext' }

function isShared(header: IgvmHeader): header is PageData {
  return header.kind === 'pageData' && header.isShared
}

function directiveOrder(file: IgvmFile): LaunchRegion[] {
  const areas = areaSizes(file)
  return snpHeaders(file).flatMap(header => {
    // "The page contents must be preserved, but are not part of the launch measurement" (IgvmPageDataFlags).
    if (header.kind === 'pageData') return header.isShared ? [] : [pageRegion(header)]
    if (header.kind === 'parameterInsert') return [insertRegion(header, areas)]
    return header.kind === 'vpContext' ? [contextRegion(header, stateOf(header))] : []
  })
}

function qemuOrder(file: IgvmFile): LaunchRegion[] {
  const areas = areaSizes(file)
  const loaded = new Set(snpHeaders(file))
  const regions: LaunchRegion[] = []
  const contexts = new Map<number, VpContext>()
  let run: PageData[] = []
  let last: IgvmHeader | undefined
  for (const header of file.headers) {
    wellFormed(
      header.kind !== 'optional' && header.kind !== 'errorRange',
      `IGVM: QEMU does not support a ${header.kind} header`,
    )
    if (loaded.has(header)) {
      if (header.kind === 'pageData') {
        const at = `0x${header.gpa.toString(16)}`
        // QEMU backends/igvm.c ignores the flag: it would measure a shared page as private.
        wellFormed(
          !header.isShared,
          `IGVM: QEMU does not know the shared flag, and would load page ${at} as a private one`,
        )
        // A run continues only if the immediately preceding header is its last page.
        if (run.length > 0 && !(last === run.at(-1) && continuesRun(run, header))) {
          regions.push(...run.map(pageRegion))
          run = []
        }
        run.push(header)
      } else if (header.kind === 'parameterInsert') regions.push(insertRegion(header, areas))
      else if (header.kind === 'vpContext') contexts.set(header.vpIndex, header)
    }
    last = header
  }
  return [...regions, ...run.map(pageRegion), ...processors(contexts)]
}

/** Compares the attributes of pages that QEMU adds together: qigvm_page_attrs_equal. */
function continuesRun(run: readonly PageData[], next: PageData): boolean {
  const last = run.at(-1)
  return (
    last !== undefined &&
    last.gpa + BigInt(pageBytes) === next.gpa &&
    (last.data === null) === (next.data === null) &&
    last.isUnmeasured === next.isUnmeasured &&
    last.dataType === next.dataType &&
    last.compatibilityMask === next.compatibilityMask
  )
}

/** Returns one VMSA for each processor, from index 0. KVM adds them last, at its own address. */
function processors(contexts: ReadonlyMap<number, VpContext>): LaunchRegion[] {
  return Array.from({ length: contexts.size }, (_, index) => {
    const context = contexts.get(index)
    wellFormed(context !== undefined, `IGVM: no context for processor ${index} of ${contexts.size}`)
    wellFormed(context.gpa === kvmVmsaGpa, `IGVM: context at 0x${context.gpa.toString(16)}, where KVM keeps none`)
    const state = stateOf(context)
    const { cr4, rflags, sevFeatures } = readVmsa(state).fields
    checkLaunchFeatures(sevFeatures)
    const forced = { cr4: cr4 | KVM_FORCED.cr4, rflags: rflags | KVM_FORCED.rflags }
    return contextRegion(context, changeVmsa(state, forced))
  })
}

function areaSizes(file: IgvmFile): Map<number, number> {
  return new Map(
    file.headers.flatMap(header => (header.kind === 'parameterArea' ? [[header.index, header.sizeBytes]] : [])),
  )
}

const PAGE_TYPE_OF = {
  normal: 'normal',
  secrets: 'secrets',
  cpuid: 'cpuid',
  cpuidXf: 'cpuid',
} as const satisfies Record<PageDataType, PageType>

const zeroPage = new Uint8Array(pageBytes)

/**
 * Returns the region of a page. A page without data is a normal page of zeros (IGVM_VHS_PAGE_DATA), not a page of the
 * zero type.
 */
function pageRegion({ gpa, dataType, isUnmeasured, data }: PageData): LaunchRegion {
  const plain = PAGE_TYPE_OF[dataType]
  const type = plain === 'normal' && isUnmeasured ? 'unmeasured' : plain
  return { name: `page ${dataType}`, type, gpa, pageCount: 1, contents: type === 'normal' ? (data ?? zeroPage) : null }
}

function insertRegion(
  { gpa, index }: { readonly gpa: bigint; readonly index: number },
  areas: ReadonlyMap<number, number>,
): LaunchRegion {
  const sizeBytes = areas.get(index)
  wellFormed(sizeBytes !== undefined, `IGVM: no parameter area ${index}`)
  return { name: `parameter area ${index}`, type: 'unmeasured', gpa, pageCount: sizeBytes / pageBytes, contents: null }
}

function contextRegion({ vpIndex, gpa }: VpContext, state: Uint8Array): LaunchRegion {
  return { name: `vmsa ${vpIndex}`, type: 'vmsa', gpa, pageCount: 1, contents: state }
}

function stateOf(context: VpContext): Uint8Array {
  wellFormed(context.state !== null, `IGVM: context ${context.vpIndex} is not a VMSA`)
  return context.state
}
