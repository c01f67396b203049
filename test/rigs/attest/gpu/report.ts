// SIMULATED reports of GPUs: SPDM request and response in the form of Hopper's and Blackwell's. Pure, but for the key.

import { concat, utf8 } from '../../../../src/base/bytes.ts'
import { type Holder, sign } from './authority.ts'

const u16 = (value: number) => Uint8Array.of(value & 0xff, value >> 8)

/** Opaque data by type. */
export type Opaque = Readonly<Record<number, Uint8Array>>

export function opaqueOf(fwid: Uint8Array): Opaque {
  const text = (value: string) => concat(utf8(value), Uint8Array.of(0))
  return {
    6: Uint8Array.of(0x00, 0x9f, 0x00, 0x96, 0x01, 0, 0, 0),
    14: Uint8Array.of(1, 2, 3, 4),
    15: text('882'),
    16: text('0'),
    17: text('1010'),
    18: text('0200'),
    3: text('550.90.07'),
    11: Uint8Array.of(0x55),
    20: fwid,
    21: Uint8Array.of(0x55),
    34: u16(1),
    36: u16(0),
  }
}

/** 64 measurements, each unlike the others; 5 is zeros. */
export function sampleMeasurements(): Uint8Array[] {
  return Array.from({ length: 64 }, (_, at) => new Uint8Array(48).fill(at === 5 ? 0 : at + 1))
}

export type ReportParts = {
  readonly nonce: Uint8Array
  readonly measurements: readonly Uint8Array[]
  readonly opaque: Opaque
  readonly request?: readonly number[]
}

/** Without the signature. */
export function reportBytes({
  nonce,
  measurements,
  opaque,
  request = [0x11, 0xe0, 0x01, 0xff],
}: ReportParts): Uint8Array {
  const blocks = measurements.map((value, at) =>
    concat(Uint8Array.of(at + 1, 1), u16(value.length + 3), Uint8Array.of(1), u16(value.length), value),
  )
  const record = concat(...blocks)
  const data = Object.entries(opaque).map(([type, value]) => concat(u16(Number(type)), u16(value.length), value))
  const fields = concat(...data)
  return concat(
    concat(Uint8Array.from(request), nonce, Uint8Array.of(0)),
    Uint8Array.of(0x11, 0x60, 0, 0, measurements.length, record.length & 0xff, record.length >> 8, 0),
    record,
    new Uint8Array(32).fill(0x5a),
    u16(fields.length),
    fields,
  )
}

export async function signedReport(parts: ReportParts, leaf: Holder): Promise<Uint8Array> {
  const bytes = reportBytes(parts)
  return concat(bytes, await sign(leaf.keys, bytes))
}
