// Writes DER (X.690): the few forms that a certificate request contains. Pure.

import { concat } from '../../base/bytes.ts'

/** Encodes one element with these contents. `tag`: the identifier octet; tags above 30 are not supported. */
export function derElement(tag: number, ...contents: readonly Uint8Array[]): Uint8Array {
  const length = contents.reduce((sum, { byteLength }) => sum + byteLength, 0)
  return concat(Uint8Array.of(tag, ...lengthOctets(length)), ...contents)
}

/** Encodes an OBJECT IDENTIFIER (X.690 8.19). `dotted`: at least two arcs, the first 0 or 1, all below 2^31. */
export function derOid(dotted: string): Uint8Array {
  const [first = 0, second = 0, ...arcs] = dotted.split('.').map(Number)
  return derElement(0x06, Uint8Array.from([first * 40 + second, ...arcs].flatMap(base128)))
}

/** Encodes a length: the short form below 128, otherwise the shortest long form (X.690 8.1.3 and 10.1). */
function lengthOctets(length: number): number[] {
  if (length < 0x80) return [length]
  const octets: number[] = []
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) octets.unshift(rest % 256)
  return [0x80 | octets.length, ...octets]
}

/** Splits an arc into groups of seven bits. All octets except the last have their top bit set. */
function base128(arc: number): number[] {
  const octets = [arc % 128]
  for (let rest = Math.floor(arc / 128); rest > 0; rest = Math.floor(rest / 128)) octets.unshift(0x80 | (rest % 128))
  return octets
}
