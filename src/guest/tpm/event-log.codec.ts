// The event log of the agent's extensions: TCG2, one bank. Pure.
//
// Without ACPI the kernel shows no firmware log, and with direct boot it would hold little: the launch measurement
// covers the kernel and its command line. So the agent, part of the measured root, extends two PCRs that are still
// untouched. TCG PC Client Platform Firmware Profile 1.06, section 10. Little-endian.

import { sha256 } from '../../attest/hash.ts'
import { BANKS } from '../../attest/tpm/algorithm.ts'
import { GUEST_PCRS } from '../../attest/tpm/evidence.ts'
import { concat, utf8 } from '../../base/bytes.ts'

export type Measured = { readonly commandLine: Uint8Array; readonly image: Uint8Array }

/** The extensions in their order. The digest is of the data. */
export function eventsOf(
  measured: Measured,
): { readonly pcr: number; readonly digest: Uint8Array; data: Uint8Array }[] {
  return (Object.keys(GUEST_PCRS) as (keyof typeof GUEST_PCRS)[]).map(name => {
    const data = measured[name]
    return { pcr: GUEST_PCRS[name], digest: sha256(data), data }
  })
}

/** EV_IPL: boot loaders measure kernels and command lines with it. */
const eventIpl = 0x0000000d
const noAction = 0x00000003

export function encodeEventLog(measured: Measured): Uint8Array {
  const { id, sizeBytes } = BANKS['SHA-256']
  const specId = concat(
    utf8('Spec ID Event03\0'),
    u32(0), // platform class: client
    Uint8Array.of(0, 2, 0, 2), // version 2.0, errata 0, UINTN of 8 bytes
    ...[u32(1), u16(id), u16(sizeBytes), Uint8Array.of(0)],
  )
  const first = concat(u32(0), u32(noAction), new Uint8Array(20), u32(specId.length), specId)
  const events = eventsOf(measured).map(({ pcr, digest, data }) =>
    concat(u32(pcr), u32(eventIpl), u32(1), u16(id), digest, u32(data.length), data),
  )
  return concat(first, ...events)
}

function u16(value: number): Uint8Array {
  return Uint8Array.of(value & 0xff, value >> 8)
}

function u32(value: number): Uint8Array {
  return concat(u16(value & 0xffff), u16(value >>> 16))
}
