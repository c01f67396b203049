// Firmware for tests: pages of noise with the tables of OVMF at their end, written independently of the reader.

import { guidBytes } from '../../../src/attest/encoding/guid.ts'
import { OVMF_GUIDS, OVMF_SECTIONS, type OvmfMetadata } from '../../../src/attest/launch/ovmf.ts'

const pageBytes = 4096

/** `pages` pages; the last one ends with the tables. `noise` gives the bytes before them. */
export function ovmfFirmware(metadata: OvmfMetadata, pages: number, noise: (at: number) => number): Uint8Array {
  const firmware = Uint8Array.from({ length: pages * pageBytes }, (_, at) => noise(at))
  const tables = ovmfTables(metadata)
  firmware.set(tables, firmware.length - tables.length)
  return firmware
}

/** SEV metadata, GUIDed table and the 32 bytes of the reset vector behind it. */
function ovmfTables({ sections, kernelHashes, resetEip }: OvmfMetadata): Uint8Array {
  const metadata = [
    ...[...'ASEV'].map(char => char.charCodeAt(0)),
    ...words(16 + sections.length * 12, 1, sections.length),
    ...sections.flatMap(({ gpa, sizeBytes, kind }) => words(gpa, sizeBytes, OVMF_SECTIONS[kind])),
  ]
  const rest = [
    ...entry('kernelHashes', words(kernelHashes?.gpa ?? 0, kernelHashes?.sizeBytes ?? 0)),
    ...entry('resetBlock', words(resetEip)),
  ]
  // The metadata entry says how far the metadata is from the end of the file.
  const sevEntryBytes = 4 + 18
  const table = rest.length + sevEntryBytes + 18
  const sevMetadata = entry('sevMetadata', words(metadata.length + table + 32))
  const footer = [...halfWord(table), ...guidBytes(OVMF_GUIDS.footer)]
  return Uint8Array.from([...metadata, ...rest, ...sevMetadata, ...footer, ...new Uint8Array(32)])
}

function entry(name: keyof typeof OVMF_GUIDS, data: readonly number[]): number[] {
  return [...data, ...halfWord(data.length + 18), ...guidBytes(OVMF_GUIDS[name])]
}

function words(...values: readonly number[]): number[] {
  return values.flatMap(value => [value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, value >>> 24])
}

function halfWord(value: number): number[] {
  return [value & 0xff, value >>> 8]
}
