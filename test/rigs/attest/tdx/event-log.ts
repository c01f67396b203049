// SIMULATED event logs in the form of a TD's firmware (CCEL), written by hand. Pure.

import { sha384 } from '../../../../src/attest/hash.ts'
import { concat, utf8 } from '../../../../src/base/bytes.ts'

export function u32(value: number): Uint8Array {
  return Uint8Array.of(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24)
}

export type SimulatedEvent = {
  readonly index: number
  readonly data: string
  readonly type?: number
  readonly digest?: Uint8Array
}

/** `algorithm`: of the log, with its digest size. */
export function ccelHeader(algorithm = Uint8Array.of(0x0c, 0, 48, 0), count = 1): Uint8Array {
  const body = concat(
    utf8('Spec ID Event03\0'),
    u32(0),
    Uint8Array.of(0, 2, 0, 2),
    u32(count),
    algorithm,
    Uint8Array.of(0),
  )
  return concat(u32(1), u32(3), new Uint8Array(20), u32(body.length), body)
}

export function ccelEvent({ index, data, type = 13, digest = sha384(utf8(data)) }: SimulatedEvent): Uint8Array {
  return concat(u32(index), u32(type), u32(1), Uint8Array.of(0x0c, 0), digest, u32(data.length), utf8(data))
}

export function ccelLog(...events: readonly SimulatedEvent[]): Uint8Array {
  return concat(ccelHeader(), ...events.map(ccelEvent))
}
