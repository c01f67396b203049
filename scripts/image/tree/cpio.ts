// Initrd archives in the "new ASCII" cpio format (kernel Documentation/driver-api/early-userspace/buffer-format.rst).
// Pure.

import { ImageFault } from '../image-fault.ts'

export type CpioEntry =
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'link'; readonly path: string; readonly target: string }
  | { readonly kind: 'file'; readonly path: string; readonly bytes: Uint8Array; readonly executable: boolean }
  | { readonly kind: 'device'; readonly path: string; readonly major: number; readonly minor: number }

const magic = '070701'
const alignmentBytes = 4
const modes = { directory: 0o040755, link: 0o120777, device: 0o020600, executable: 0o100755, file: 0o100644 } as const

/** The archive of these entries, in their order, owned by root, with one time. Parents must precede children. */
export function cpioArchive(entries: readonly CpioEntry[], mtimeSeconds: number): Uint8Array {
  const parts: Uint8Array[] = []
  entries.forEach((entry, index) => {
    parts.push(...member(entry, index + 1, mtimeSeconds))
  })
  parts.push(...record({ name: 'TRAILER!!!', inode: 0, mode: 0, mtimeSeconds: 0, data: new Uint8Array() }))
  return Buffer.concat(parts)
}

function member(entry: CpioEntry, inode: number, mtimeSeconds: number): Uint8Array[] {
  const common = { name: entry.path, inode, mtimeSeconds }
  switch (entry.kind) {
    case 'directory':
      return record({ ...common, mode: modes.directory, data: new Uint8Array() })
    case 'link':
      return record({ ...common, mode: modes.link, data: new TextEncoder().encode(entry.target) })
    case 'device':
      return record({ ...common, mode: modes.device, data: new Uint8Array(), device: entry })
    case 'file':
      return record({ ...common, mode: entry.executable ? modes.executable : modes.file, data: entry.bytes })
  }
}

type Header = {
  readonly name: string
  readonly inode: number
  readonly mode: number
  readonly mtimeSeconds: number
  readonly data: Uint8Array
  readonly device?: { readonly major: number; readonly minor: number }
}

function record(header: Header): Uint8Array[] {
  const name = new TextEncoder().encode(`${header.name}\0`)
  const fields = {
    inode: header.inode,
    mode: header.mode,
    uid: 0,
    gid: 0,
    links: 1,
    mtime: header.mtimeSeconds,
    size: header.data.length,
    deviceMajor: 0,
    deviceMinor: 0,
    specialMajor: header.device?.major ?? 0,
    specialMinor: header.device?.minor ?? 0,
    nameSize: name.length,
    check: 0,
  }
  const words = Object.values(fields).map(value => {
    if (!Number.isInteger(value) || value < 0 || value > 0xffff_ffff) {
      throw new ImageFault('recipe_invalid', `${header.name} does not fit a cpio header`)
    }
    return value.toString(16).padStart(8, '0').toUpperCase()
  })
  const head = new TextEncoder().encode(magic + words.join(''))
  return [head, name, padding(head.length + name.length), header.data, padding(header.data.length)]
}

function padding(sizeBytes: number): Uint8Array {
  return new Uint8Array((alignmentBytes - (sizeBytes % alignmentBytes)) % alignmentBytes)
}
