// The kernel in a bzImage, and whether it can be started unpacked. Pure. Linux Documentation/arch/x86/boot.rst (the
// header), scripts/Makefile.lib (the size after the payload), include/xen/interface/elfnote.h.

/** Position of the compressed kernel and its unpacked size, in bytes. */
export type Payload = { readonly offset: number; readonly length: number; readonly unpackedBytes: number }

/** Positions in the file of the fields of struct setup_header (include/uapi/asm/bootparam.h). */
export const SETUP = { sectors: 0x1f1, magic: 0x202, protocol: 0x206, payload: 0x248, payloadBytes: 0x24c } as const
const headerBytes = 0x250
const magic = 0x53726448
/** The first boot protocol with a payload field. */
const protocolMin = 0x0208
const zstdMagic = 0xfd2fb528
const sizeBytes = 4
/** Larger than any kernel. */
const unpackedBytesMax = 256 << 20

/** Returns the payload of a kernel compressed with zstd. Null for another file or another compression. */
export function zstdPayload(file: Uint8Array): Payload | null {
  if (file.length < headerBytes) return null
  const view = viewOf(file)
  if (view.getUint32(SETUP.magic, true) !== magic || view.getUint16(SETUP.protocol, true) < protocolMin) return null
  const sectors = view.getUint8(SETUP.sectors) || 4
  const offset = (sectors + 1) * 512 + view.getUint32(SETUP.payload, true)
  const length = view.getUint32(SETUP.payloadBytes, true) - sizeBytes
  if (length < sizeBytes || offset + length + sizeBytes > file.length) return null
  if (view.getUint32(offset, true) !== zstdMagic) return null
  const unpackedBytes = view.getUint32(offset + length, true)
  return unpackedBytes > unpackedBytesMax ? null : { offset, length, unpackedBytes }
}

const elf64LittleEndian = 0x0102464c457f
const elfHeaderBytes = 64
const programHeaderBytes = 56
const noteSegment = 4
const noteHeadBytes = 12
/** XEN_ELFNOTE_PHYS32_ENTRY. */
const entryNote = 18

/** Reports whether an ELF file names the entry point of a kernel that PVH starts, the only one that QEMU accepts. */
export function hasPvhEntry(elf: Uint8Array): boolean {
  if (elf.length < elfHeaderBytes) return false
  const view = viewOf(elf)
  if (Number(view.getBigUint64(0, true) & 0xffffffffffffn) !== elf64LittleEndian) return false
  const table = Number(view.getBigUint64(32, true))
  const count = view.getUint16(56, true)
  if (view.getUint16(54, true) !== programHeaderBytes || table + count * programHeaderBytes > elf.length) return false
  for (let at = table; at < table + count * programHeaderBytes; at += programHeaderBytes) {
    if (view.getUint32(at, true) !== noteSegment) continue
    const from = Number(view.getBigUint64(at + 8, true))
    const length = Number(view.getBigUint64(at + 32, true))
    if (from + length <= elf.length && holdsEntryNote(elf.subarray(from, from + length))) return true
  }
  return false
}

function holdsEntryNote(notes: Uint8Array): boolean {
  const view = viewOf(notes)
  let at = 0
  while (at + noteHeadBytes <= notes.length) {
    const [nameBytes, valueBytes] = [view.getUint32(at, true), view.getUint32(at + 4, true)]
    const name = new TextDecoder().decode(notes.subarray(at + noteHeadBytes, at + noteHeadBytes + nameBytes))
    if (name === 'Xen\0' && view.getUint32(at + 8, true) === entryNote) return true
    at += noteHeadBytes + aligned(nameBytes) + aligned(valueBytes)
  }
  return false
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / 4) * 4
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
