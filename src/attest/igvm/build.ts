// Builds the IGVM files of our images: firmware, its sections, the kernel-hash page, and one VMSA for each processor.
// Pure. No page is shared, because QEMU does not support that flag. id-block-header.ts writes the launch signer's
// header.

import { toHex } from '../../base/bytes.ts'
import type { Hash } from '../hash.ts'
import { firmwareRegion, type LaunchCpus, type LaunchRegion, laterRegions } from '../launch/digest.ts'
import type { IdAuth, IdBlock } from '../launch/id-block.ts'
import type { KernelHashes } from '../launch/kernel-hashes.ts'
import { readOvmf } from '../launch/ovmf.ts'
import type { PageType } from '../launch/page-info.ts'
import { wellFormed } from '../malformed.ts'
import { writeIgvm } from './file.ts'
import { IGVM_PLATFORMS, type IgvmHeader, type PageDataType } from './headers.ts'
import { writeIdBlockHeader } from './id-block-header.ts'
import { measureIgvm } from './measure.ts'

export type IgvmBuild = Pick<LaunchCpus, 'vcpus' | 'vcpuType' | 'features'> & {
  readonly firmware: Uint8Array
  /** Null for firmware without a hash page and VMs without a kernel; the page then stays empty. */
  readonly kernelHashes: KernelHashes | null
  /** The guest policy (AMD 56860, table 10). */
  readonly policy: bigint
  /** Signed ID block. Its measurement must equal the file's digest under `qemu-kvm`, and its policy `policy`. */
  readonly idBlock?: { readonly block: IdBlock; readonly auth: IdAuth }
  readonly sha384?: Hash | undefined
}

/** Compatibility mask of SEV-SNP, the only platform in our files. */
const snpMask = 1

/** Builds the file. Throws Malformed if the parts contradict each other. */
export async function buildIgvm(build: IgvmBuild): Promise<Uint8Array> {
  const metadata = readOvmf(build.firmware)
  const regions = [firmwareRegion(build.firmware), ...laterRegions({ ...build, metadata, profile: 'qemu-kvm' })]
  const headers: IgvmHeader[] = [
    {
      kind: 'supportedPlatform',
      compatibilityMask: snpMask,
      highestVtl: 0,
      platform: IGVM_PLATFORMS.sevSnp,
      platformVersion: 1,
      sharedGpaBoundary: 0n,
    },
    { kind: 'guestPolicy', policy: build.policy, compatibilityMask: snpMask },
    ...contextsNumbered(regions.flatMap(headersOf)),
  ]
  if (build.idBlock !== undefined) headers.push(await idBlockHeader(build, headers))
  return writeIgvm({ headers })
}

/** The format's data type for each page type. Zero pages are normal pages without data. */
const DATA_TYPES = {
  normal: 'normal',
  zero: 'normal',
  secrets: 'secrets',
  cpuid: 'cpuid',
} as const satisfies Partial<Record<PageType, PageDataType>>

function headersOf({ name, type, gpa, pageCount, contents }: LaunchRegion): IgvmHeader[] {
  return Array.from({ length: pageCount }, (_, index): IgvmHeader => {
    const data = contents?.subarray(index * pageBytes, (index + 1) * pageBytes) ?? null
    const place = { gpa: gpa + BigInt(index * pageBytes), compatibilityMask: snpMask }
    if (type === 'vmsa') return { kind: 'vpContext', ...place, vpIndex: 0, state: data, padding: new Uint8Array(4) }
    wellFormed(type !== 'unmeasured', `IGVM: ${name} cannot be built`)
    return { kind: 'pageData', ...place, isUnmeasured: false, isShared: false, dataType: DATA_TYPES[type], data }
  })
}

const pageBytes = 4096

function contextsNumbered(headers: readonly IgvmHeader[]): IgvmHeader[] {
  let vpIndex = 0
  return headers.map(header => {
    if (header.kind !== 'vpContext') return header
    const numbered = { ...header, vpIndex }
    vpIndex += 1
    return numbered
  })
}

async function idBlockHeader(build: IgvmBuild, headers: readonly IgvmHeader[]): Promise<IgvmHeader> {
  const { block, auth } = build.idBlock ?? {}
  wellFormed(block !== undefined && auth !== undefined, 'IGVM: no ID block')
  const { digest } = await measureIgvm({ headers }, { profile: 'qemu-kvm', sha384: build.sha384 })
  wellFormed(toHex(block.measurement) === toHex(digest), 'IGVM: the ID block names another launch digest')
  wellFormed(block.policy === build.policy, 'IGVM: the ID block names another policy')
  return writeIdBlockHeader({ block, auth }, snpMask)
}
