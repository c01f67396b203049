// Reads structures whose length depends on their contents, forward and never past the end. Pure. layout.ts reads fixed
// records. TPM structures are big-endian (TPM 2.0 Library, Part 1, section 4.2); event logs (TCG PFP, section 10) and
// IGVM files are little-endian.

import { wellFormed } from '../malformed.ts'

export type Reader = {
  u8(): number
  u16(): number
  u32(): number
  u64(): bigint
  /** Returns a copy of the next bytes. */
  bytes(count: number): Uint8Array
  /** Reads a TPM2B: a u16 length, at most `max`, then that many bytes. */
  sized(max: number): Uint8Array
  left(): number
  /** Throws if any bytes are left. */
  end(): void
}

/** Creates a reader. Each of its methods throws Malformed, naming `what`, if the bytes run out. */
export function reader(bytes: Uint8Array, what: string, order: 'big' | 'little' = 'big'): Reader {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const little = order === 'little'
  let at = 0
  const take = (count: number): number => {
    wellFormed(count <= bytes.length - at, `${what}: truncated`)
    at += count
    return at - count
  }
  const self: Reader = {
    u8: () => view.getUint8(take(1)),
    u16: () => view.getUint16(take(2), little),
    u32: () => view.getUint32(take(4), little),
    u64: () => view.getBigUint64(take(8), little),
    bytes: count => {
      const start = take(count)
      return new Uint8Array(bytes.subarray(start, start + count))
    },
    sized: max => {
      const length = self.u16()
      wellFormed(length <= max, `${what}: a field of ${length} bytes, at most ${max}`)
      return self.bytes(length)
    },
    left: () => bytes.length - at,
    end: () => wellFormed(at === bytes.length, `${what}: trailing bytes`),
  }
  return self
}
