// The table of kernel, initrd and command-line hashes that firmware checks what it boots against
// (QEMU target/i386/sev.c, edk2 OvmfPkg/AmdSev/BlobVerifierLibSevHashes). Pure.

import { guidBytes, guidSizeBytes } from '../encoding/guid.ts'
import { wellFormed } from '../malformed.ts'

export type KernelHashes = {
  /** SHA-256 each. */
  readonly kernel: Uint8Array
  /** Of no bytes when there is no initrd. */
  readonly initrd: Uint8Array
  /** Of the command line with its trailing NUL. */
  readonly cmdline: Uint8Array
}

const tableGuid = '9438d606-4f22-4cc9-b479-a793d411fd21'

/** In the order of the table. */
const ENTRIES = [
  ['cmdline', '97d02dd8-bd20-4c94-aa78-e7714d36ab2a'],
  ['initrd', '44baf731-3a2f-4bd7-9af1-41e29169781d'],
  ['kernel', '4de79437-abd2-427f-b835-d5b172d2045b'],
] as const satisfies readonly (readonly [keyof KernelHashes, string])[]

export const kernelHashSizeBytes = 32
/** GUID, u16 length of the whole entry. */
const headerBytes = guidSizeBytes + 2
const entryBytes = headerBytes + kernelHashSizeBytes
/** What the table's own length field says. */
const tableBytes = headerBytes + ENTRIES.length * entryBytes
/** What QEMU writes: padded to a multiple of 16. */
export const kernelHashTableBytes = Math.ceil(tableBytes / 16) * 16
const pageBytes = 4096

/** The table with its padding: 176 bytes. */
export function writeKernelHashes(hashes: KernelHashes): Uint8Array {
  const table = new Uint8Array(kernelHashTableBytes)
  const view = new DataView(table.buffer)
  table.set(guidBytes(tableGuid), 0)
  view.setUint16(guidSizeBytes, tableBytes, true)
  ENTRIES.forEach(([name, guid], index) => {
    const at = headerBytes + index * entryBytes
    wellFormed(hashes[name].length === kernelHashSizeBytes, `kernel hashes: ${name} is not 32 bytes`)
    table.set(guidBytes(guid), at)
    view.setUint16(at + guidSizeBytes, entryBytes, true)
    table.set(hashes[name], at + headerBytes)
  })
  return table
}

/** The page that is loaded: zeros around the table at `offset`. */
export function kernelHashPage(hashes: KernelHashes, offset: number): Uint8Array {
  wellFormed(offset >= 0 && offset + kernelHashTableBytes <= pageBytes, 'kernel hashes: the table leaves its page')
  const page = new Uint8Array(pageBytes)
  page.set(writeKernelHashes(hashes), offset)
  return page
}

/** Reads a page that holds the table at `offset` and nothing else. Throws Malformed on anything else. */
export function readKernelHashPage(page: Uint8Array, offset: number): KernelHashes {
  wellFormed(page.length === pageBytes, 'kernel hashes: not one page')
  wellFormed(offset >= 0 && offset + kernelHashTableBytes <= pageBytes, 'kernel hashes: the table leaves its page')
  const hashAt = (name: keyof KernelHashes) => {
    const at = offset + headerBytes + ENTRIES.findIndex(([entry]) => entry === name) * entryBytes + headerBytes
    return page.slice(at, at + kernelHashSizeBytes)
  }
  const hashes = { kernel: hashAt('kernel'), initrd: hashAt('initrd'), cmdline: hashAt('cmdline') }
  // One writer for both directions: GUIDs, lengths and padding are right exactly when it writes the same page.
  const expected = kernelHashPage(hashes, offset)
  wellFormed(
    page.every((byte, at) => byte === expected[at]),
    'kernel hashes: not a table in an empty page',
  )
  return hashes
}
