// The tables in an OVMF firmware: the table of entries with GUIDs, and the SEV metadata (edk2
// OvmfPkg/ResetVector/Ia16/ResetVectorVtf0.asm and X64/OvmfSevMetadata.asm; QEMU hw/i386/pc_sysfw_ovmf.c). Pure.
//
// The table ends 32 bytes before the end of the file. Read it backwards: data, u16 size of the whole entry, GUID.

import { guidText } from '../encoding/guid.ts'
import { type Layout, layoutBytes, readFields, readRecord, type Values } from '../encoding/layout.ts'
import { Malformed, wellFormed } from '../malformed.ts'

export const OVMF_GUIDS = {
  footer: '96b582de-1fb2-45f7-baea-a366c55a082d',
  sevMetadata: 'dc886566-984a-4798-a75e-5585a7bf67cc',
  kernelHashes: '7255371f-3a3b-4b04-927b-1da6efa8d454',
  resetBlock: '00f771de-1a7e-4fcb-890e-68c77e2fb44e',
} as const

/** Section types of the SEV metadata. */
export const OVMF_SECTIONS = {
  secMemory: 1,
  secrets: 2,
  cpuid: 3,
  svsmCallingArea: 4,
  kernelHashes: 0x10,
} as const

export type OvmfSectionKind = keyof typeof OVMF_SECTIONS

export type OvmfSection = { readonly kind: OvmfSectionKind; readonly gpa: number; readonly sizeBytes: number }

/** The memory area for the kernel hashes; `sizeBytes` is what the firmware reserves. */
type KernelHashArea = { readonly gpa: number; readonly sizeBytes: number }

export type OvmfMetadata = {
  /** Sections in the order of the table, which is the order of measurement. */
  readonly sections: readonly OvmfSection[]
  /** Null if the firmware checks no kernel hashes: no entry, or an entry of zeros. */
  readonly kernelHashes: KernelHashArea | null
  /** Address at which application processors start. */
  readonly resetEip: number
}

export const pageBytes = 4096
const footerOffsetBytes = 32
const firmwareBytesMax = 64 * 1024 * 1024
/** Limit for all sections together: more than the low memory of any firmware, and quick to measure. */
const sectionBytesMax = 64 * 1024 * 1024
const sectionCountMax = 64

/** Layouts of the SEV metadata's header and of each descriptor after it. */
const METADATA = { signature: [0, 4], length: [4, 4], version: [8, 4], count: [12, 4] } as const satisfies Layout
const DESCRIPTOR = { gpa: [0, 4], sizeBytes: [4, 4], type: [8, 4] } as const satisfies Layout
const metadataHeaderBytes = layoutBytes(METADATA)
const descriptorBytes = layoutBytes(DESCRIPTOR)

/** Follows the data of an entry; `sizeBytes` is the size of the whole entry. */
const ENTRY_HEADER = { sizeBytes: [0, 2], guid: [2, 16] } as const satisfies Layout
const entryHeaderBytes = layoutBytes(ENTRY_HEADER)

/** Layouts of the entries' data. `fromEnd`: start of the SEV metadata, in bytes before the end of the file. */
const ENTRIES = {
  sevMetadata: { fromEnd: [0, 4] },
  kernelHashes: { gpa: [0, 4], sizeBytes: [4, 4] },
  resetBlock: { eip: [0, 4] },
} as const satisfies Partial<Record<keyof typeof OVMF_GUIDS, Layout>>

const metadataSignature = 0x56455341 // "ASEV"

/** Reads the tables. Throws Malformed for firmware that cannot be launched with SEV-SNP. */
export function readOvmf(firmware: Uint8Array): OvmfMetadata {
  checkFirmwareSize(firmware)
  const entries = tableEntries(firmware)
  wellFormed(entries !== null, 'OVMF: no GUIDed table')
  const metadata = only(entries, 'sevMetadata')
  wellFormed(metadata !== null, 'OVMF: no SEV metadata')
  const reset = only(entries, 'resetBlock')
  wellFormed(reset !== null, 'OVMF: no reset block')
  return {
    sections: readSections(firmware, metadata.fromEnd),
    kernelHashes: readKernelHashArea(entries),
    resetEip: reset.eip,
  }
}

/** Throws Malformed unless the firmware is whole pages and fits below 4 GiB. */
export function checkFirmwareSize(firmware: Uint8Array): void {
  const size = firmware.length
  const isFit = size > 0 && size % pageBytes === 0 && size <= firmwareBytesMax
  wellFormed(isFit, `firmware: ${size} bytes, not 1 to 16384 pages of 4096`)
}

/**
 * Reports whether the firmware reserves memory for kernel hashes; without it QEMU aborts on `kernel-hashes=on`.
 * Firmware that does not check hashes may still have the entry, with base and size zero. Never throws.
 */
export function hasKernelHashTable(firmware: Uint8Array): boolean {
  try {
    return readKernelHashArea(tableEntries(firmware) ?? []) !== null
  } catch (error) {
    if (error instanceof Malformed) return false
    throw error
  }
}

type Entry = { readonly guid: string; readonly data: Uint8Array }

function readKernelHashArea(entries: readonly Entry[]): KernelHashArea | null {
  const area = only(entries, 'kernelHashes')
  if (area === null || (area.gpa === 0 && area.sizeBytes === 0)) return null
  const { gpa, sizeBytes } = area
  wellFormed(gpa !== 0 && sizeBytes !== 0, 'OVMF: kernel-hash area with base or size zero')
  wellFormed((gpa % pageBytes) + sizeBytes <= pageBytes, 'OVMF: kernel-hash area crosses a page')
  return area
}

/**
 * Returns the data of the entry with this GUID. Throws Malformed for two such entries: readers could disagree on them.
 */
function only<Name extends keyof typeof ENTRIES>(
  entries: readonly Entry[],
  name: Name,
): Values<(typeof ENTRIES)[Name]> | null {
  const found = entries.filter(({ guid }) => guid === OVMF_GUIDS[name])
  wellFormed(found.length <= 1, `OVMF: two ${name} entries`)
  const data = found[0]?.data
  return data === undefined ? null : readRecord(`OVMF: ${name} entry`, data, ENTRIES[name])
}

function readSections(firmware: Uint8Array, fromEnd: number): OvmfSection[] {
  wellFormed(fromEnd >= metadataHeaderBytes && fromEnd <= firmware.length, 'OVMF: SEV metadata outside the firmware')
  const bytes = firmware.subarray(firmware.length - fromEnd)
  const header = readFields('OVMF: SEV metadata', bytes, METADATA)
  const { count } = header
  wellFormed(header.signature === metadataSignature, 'OVMF: SEV metadata signature')
  wellFormed(header.version === 1, 'OVMF: SEV metadata version')
  wellFormed(count <= sectionCountMax, `OVMF: ${count} SEV sections`)
  const length = metadataHeaderBytes + count * descriptorBytes
  wellFormed(header.length === length, 'OVMF: SEV metadata length')
  wellFormed(length <= bytes.length, 'OVMF: SEV metadata ends early')
  let total = 0
  return Array.from({ length: count }, (_, index) => {
    const section = readSection(bytes.subarray(metadataHeaderBytes + index * descriptorBytes))
    total += section.sizeBytes
    wellFormed(total <= sectionBytesMax, 'OVMF: SEV sections too large')
    return section
  })
}

function readSection(bytes: Uint8Array): OvmfSection {
  const { gpa, sizeBytes, type } = readFields('OVMF: SEV section', bytes, DESCRIPTOR)
  const kind = sectionKind(type)
  wellFormed(gpa % pageBytes === 0 && sizeBytes % pageBytes === 0, `OVMF: ${kind} section not in whole pages`)
  wellFormed(sizeBytes > 0 && gpa + sizeBytes <= 2 ** 32, `OVMF: ${kind} section outside memory`)
  wellFormed(kind !== 'kernelHashes' || sizeBytes === pageBytes, 'OVMF: kernelHashes section is not one page')
  return { kind, gpa, sizeBytes }
}

/** Returns the kind of a section type. Throws Malformed for a type that this library cannot measure. */
export function sectionKind(type: number): OvmfSectionKind {
  for (const [kind, value] of Object.entries(OVMF_SECTIONS)) if (value === type) return kind as OvmfSectionKind
  throw new Malformed(`OVMF: SEV section of unknown type ${type}`)
}

/** Returns the table's entries, last first; null if there is no well-formed table. */
function tableEntries(firmware: Uint8Array): Entry[] | null {
  const end = firmware.length - footerOffsetBytes
  const footer = headerBefore(firmware, end)
  if (footer === null || footer.guid !== OVMF_GUIDS.footer) return null
  const start = end - footer.sizeBytes
  const entries: Entry[] = []
  let at = end - entryHeaderBytes
  while (at > start) {
    const header = headerBefore(firmware, at)
    if (header === null || at - header.sizeBytes < start) return null
    entries.push({ guid: header.guid, data: firmware.subarray(at - header.sizeBytes, at - entryHeaderBytes) })
    at -= header.sizeBytes
  }
  return entries
}

function headerBefore(firmware: Uint8Array, end: number): { guid: string; sizeBytes: number } | null {
  if (end < entryHeaderBytes) return null
  const { guid, sizeBytes } = readFields('OVMF: entry', firmware.subarray(end - entryHeaderBytes), ENTRY_HEADER)
  if (sizeBytes < entryHeaderBytes || sizeBytes > end) return null
  return { guid: guidText(guid), sizeBytes }
}
