// DER for simulated certificates and OCSP responses of GPUs, beside the reader of src. Pure.

import { concat } from '../../../../src/base/bytes.ts'

export function tlv(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const contents = concat(...parts)
  const { length } = contents
  const head = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return concat(Uint8Array.of(tag, ...head), contents)
}

export const seq = (...parts: readonly Uint8Array[]): Uint8Array => tlv(0x30, ...parts)
export const octets = (bytes: Uint8Array): Uint8Array => tlv(0x04, bytes)
export const bits = (bytes: Uint8Array): Uint8Array => tlv(0x03, Uint8Array.of(0), bytes)
export const ascii = (tag: number, text: string): Uint8Array => tlv(tag, new TextEncoder().encode(text))

/** A non-negative INTEGER of these bytes, big-endian. */
export function unsigned(bytes: Uint8Array): Uint8Array {
  const start = bytes.findIndex(byte => byte !== 0)
  const short = start < 0 ? Uint8Array.of(0) : bytes.slice(start)
  return tlv(0x02, (short[0] ?? 0) >= 0x80 ? concat(Uint8Array.of(0), short) : short)
}

export function oid(dotted: string): Uint8Array {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  const arcs = [first * 40 + second, ...rest].flatMap(arc => {
    const digits = [arc & 0x7f]
    for (let left = arc >>> 7; left > 0; left >>>= 7) digits.unshift((left & 0x7f) | 0x80)
    return digits
  })
  return tlv(0x06, Uint8Array.from(arcs))
}

/** GeneralizedTime. */
export function time(ms: number): Uint8Array {
  return ascii(0x18, new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, ''))
}
