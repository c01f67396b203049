// What an OVMF firmware says of itself in its GUIDed table (edk2 OvmfPkg/ResetVector; QEMU hw/i386/pc_sysfw_ovmf.c). Pure.
//
// The table ends 32 bytes before the end of the file and is read backwards: data, u16 size of the whole entry, GUID.

const footerOffsetBytes = 32
const entryHeaderBytes = 18

/** GUIDs as they lie in the file: the first three groups little-endian. */
const GUIDS = {
  footer: '96b582de-1fb2-45f7-baea-a366c55a082d',
  kernelHashes: '7255371f-3a3b-4b04-927b-1da6efa8d454',
} as const

/**
 * True when the firmware reserves memory for kernel hashes. QEMU aborts on `kernel-hashes=on` without it. Firmware that does not check
 * hashes has the entry all the same, with base and size zero.
 */
export function hasKernelHashTable(firmware: Uint8Array): boolean {
  const entry = tableEntries(firmware).find(({ guid }) => guid === GUIDS.kernelHashes)
  return entry?.data.length === hashEntryDataBytes && entry.data.some(byte => byte !== 0)
}

/** u32 base, u32 size. */
const hashEntryDataBytes = 8

type Entry = { readonly guid: string; readonly sizeBytes: number; readonly data: Uint8Array }

/** The table's entries, last first; empty when there is no well-formed table. */
function tableEntries(firmware: Uint8Array): Entry[] {
  const end = firmware.length - footerOffsetBytes
  const footer = entryBefore(firmware, end)
  if (footer === null || footer.guid !== GUIDS.footer) return []
  const start = end - footer.sizeBytes
  const entries: Entry[] = []
  let at = end - entryHeaderBytes
  while (at > start) {
    const entry = entryBefore(firmware, at)
    if (entry === null || at - entry.sizeBytes < start) return []
    entries.push(entry)
    at -= entry.sizeBytes
  }
  return entries
}

function entryBefore(firmware: Uint8Array, end: number): Entry | null {
  if (end < entryHeaderBytes) return null
  const view = new DataView(firmware.buffer, firmware.byteOffset, firmware.byteLength)
  const at = end - 16
  const sizeBytes = view.getUint16(at - 2, true)
  if (sizeBytes < entryHeaderBytes || sizeBytes > end) return null
  const word = (offset: number, hexDigits: number, value: number) =>
    value.toString(16).padStart(hexDigits, '0').slice(offset)
  const tail = firmware.subarray(at + 8, at + 16).toHex()
  const guid = [
    word(0, 8, view.getUint32(at, true)),
    word(0, 4, view.getUint16(at + 4, true)),
    word(0, 4, view.getUint16(at + 6, true)),
    tail.slice(0, 4),
    tail.slice(4),
  ].join('-')
  return { guid, sizeBytes, data: firmware.subarray(end - sizeBytes, at - 2) }
}
