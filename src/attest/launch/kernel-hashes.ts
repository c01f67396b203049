// The hashes of kernel, initrd and command line, and the table of hashes that the firmware accepts (QEMU
// target/i386/sev.c, edk2 OvmfPkg/AmdSev/BlobVerifierLibSevHashes). Pure.

import { concat, utf8 } from '../../base/bytes.ts'
import { guidBytes } from '../encoding/guid.ts'
import { type Layout, layoutBytes, readFields, writeRecord } from '../encoding/layout.ts'
import { digest, type Hash } from '../hash.ts'
import { wellFormed } from '../malformed.ts'

export type KernelHashes = {
  /** SHA-256, as all three. */
  readonly kernel: Uint8Array
  /** The hash of no bytes if there is no initrd. */
  readonly initrd: Uint8Array
  /** Hash of the command line including its trailing NUL. */
  readonly cmdline: Uint8Array
}

const tableGuid = '9438d606-4f22-4cc9-b479-a793d411fd21'

/** Entries in the order of the table. */
const ENTRIES = [
  ['cmdline', '97d02dd8-bd20-4c94-aa78-e7714d36ab2a'],
  ['initrd', '44baf731-3a2f-4bd7-9af1-41e29169781d'],
  ['kernel', '4de79437-abd2-427f-b835-d5b172d2045b'],
] as const satisfies readonly (readonly [keyof KernelHashes, string])[]

export const kernelHashSizeBytes = 32
/** A header, then one entry for each hash. `sizeBytes`: size of the whole table, or of the whole entry. */
const HEADER = { guid: [0, 16], sizeBytes: [16, 2] } as const satisfies Layout
const ENTRY = { guid: [0, 16], sizeBytes: [16, 2], hash: [18, kernelHashSizeBytes] } as const satisfies Layout
const headerBytes = layoutBytes(HEADER)
const entryBytes = layoutBytes(ENTRY)
const tableBytes = headerBytes + ENTRIES.length * entryBytes
/** Size that QEMU writes: padded to a multiple of 16. */
const kernelHashTableBytes = Math.ceil(tableBytes / 16) * 16
const pageBytes = 4096

/** Encodes the table with its padding: 176 bytes. */
export function writeKernelHashes(hashes: KernelHashes): Uint8Array {
  const what = 'kernel hashes'
  const entries = ENTRIES.map(([name, guid]) => {
    return writeRecord(what, ENTRY, { guid: guidBytes(guid), sizeBytes: entryBytes, hash: hashes[name] })
  })
  const header = writeRecord(what, HEADER, { guid: guidBytes(tableGuid), sizeBytes: tableBytes })
  return concat(header, ...entries, new Uint8Array(kernelHashTableBytes - tableBytes))
}

/** Returns the page that is loaded: the table at `offset`, surrounded by zeros. */
export function kernelHashPage(hashes: KernelHashes, offset: number): Uint8Array {
  wellFormed(offset >= 0 && offset + kernelHashTableBytes <= pageBytes, 'kernel hashes: the table leaves its page')
  const page = new Uint8Array(pageBytes)
  page.set(writeKernelHashes(hashes), offset)
  return page
}

/** Reads a page that holds only the table at `offset`. Throws Malformed for any other page. */
export function readKernelHashPage(page: Uint8Array, offset: number): KernelHashes {
  wellFormed(page.length === pageBytes, 'kernel hashes: not one page')
  wellFormed(offset >= 0 && offset + kernelHashTableBytes <= pageBytes, 'kernel hashes: the table leaves its page')
  const hashAt = (name: keyof KernelHashes) => {
    const at = offset + headerBytes + ENTRIES.findIndex(([entry]) => entry === name) * entryBytes
    return readFields('kernel hashes', page.subarray(at), ENTRY).hash
  }
  const hashes = { kernel: hashAt('kernel'), initrd: hashAt('initrd'), cmdline: hashAt('cmdline') }
  // GUIDs, lengths and padding are right exactly if the writer produces the same page from these hashes.
  const expected = kernelHashPage(hashes, offset)
  wellFormed(
    page.every((byte, at) => byte === expected[at]),
    'kernel hashes: not a table in an empty page',
  )
  return hashes
}

export type BootFiles = {
  readonly kernel: Uint8Array
  readonly initrd?: Uint8Array | undefined
  /** Command line without the trailing NUL. Default: empty. */
  readonly cmdline?: string | undefined
}

const nul = new Uint8Array(1)

/** Hashes the kernel file, the initrd (no bytes if there is none) and the command line with its NUL, by SHA-256. */
export async function kernelHashesOf(files: BootFiles, sha256?: Hash): Promise<KernelHashes> {
  const hash = async (bytes: Uint8Array) => (sha256 === undefined ? digest('SHA-256', bytes) : sha256(bytes))
  const [kernel, initrd, cmdline] = await Promise.all([
    hash(files.kernel),
    hash(files.initrd ?? new Uint8Array(0)),
    hash(cmdlineBytes(files.cmdline)),
  ])
  return { kernel, initrd, cmdline }
}

/** Returns the bytes of a command line that are hashed. Throws Malformed for a NUL inside, where readers would stop. */
export function cmdlineBytes(cmdline = ''): Uint8Array {
  wellFormed(!cmdline.includes('\0'), 'kernel command line: a NUL inside')
  return concat(utf8(cmdline), nul)
}
