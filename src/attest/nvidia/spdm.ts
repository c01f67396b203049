// An attestation report of a GPU or a switch: the SPDM request for its measurements, and the response. The
// signature covers both. Pure; throws Malformed. DMTF DSP0274 1.1, GET_MEASUREMENTS and MEASUREMENTS (sections 10.11.1
// and 10.11.2).
//
// All devices write the same form: SPDM 1.1, all measurements, SHA-384, ECDSA on P-384. They differ in the opaque data
// (opaque.ts, hgx/report.ts) and in the certificate (dice.ts).

import { isZero } from '../encoding/layout.ts'
import { reader } from '../encoding/reader.ts'
import { wellFormed } from '../malformed.ts'
import { type GpuFields, readOpaque } from './opaque.ts'
import { signatureBytes } from './signature.ts'

export const nonceBytes = 32
/** Size limit. Real reports have about 4 KiB. */
export const reportBytesMax = 64 * 1024

export type DeviceReport<Fields> = {
  /** The request's nonce, chosen by the relying party. */
  readonly nonce: Uint8Array
  /** Measurements by their index in manifests, which is one less than SPDM's. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  readonly fields: Fields
  /** Request and response without the signature: the bytes that it covers. */
  readonly signedBytes: Uint8Array
  /** R and S. */
  readonly signature: Uint8Array
}

export type GpuReport = DeviceReport<GpuFields>

const REQUEST = { version: 0x11, code: 0xe0, signed: 0x01, allMeasurements: 0xff, slot: 0 } as const
const RESPONSE = { version: 0x11, code: 0x60 } as const
/** Measurement blocks in DMTF's format. */
const dmtfSpecification = 1

export const decodeGpuReport = (bytes: Uint8Array): GpuReport => decodeReport(bytes, readOpaque)

/** Decodes a report with the reader of the device's opaque data. */
export function decodeReport<Fields>(bytes: Uint8Array, read: (opaque: Uint8Array) => Fields): DeviceReport<Fields> {
  const what = 'device report'
  wellFormed(bytes.length <= reportBytesMax, `${what}: ${bytes.length} bytes, at most ${reportBytesMax}`)
  const from = reader(bytes, what, 'little')
  const isRequest = from.u8() === REQUEST.version && from.u8() === REQUEST.code
  wellFormed(isRequest, `${what}: it does not begin with a GET_MEASUREMENTS request of SPDM 1.1`)
  const isWhole = from.u8() === REQUEST.signed && from.u8() === REQUEST.allMeasurements
  wellFormed(isWhole, `${what}: the request is not for all measurements with a signature`)
  const nonce = from.bytes(nonceBytes)
  wellFormed(from.u8() === REQUEST.slot, `${what}: the request names another slot than 0`)
  const isResponse = from.u8() === RESPONSE.version && from.u8() === RESPONSE.code
  wellFormed(isResponse, `${what}: no MEASUREMENTS response of SPDM 1.1 follows the request`)
  // The number of indices, which only requests of index 0 have, then the slot.
  wellFormed(from.u16() === 0, `${what}: the response is for another slot than 0`)
  const blocks = from.u8()
  const recordBytes = from.u16() + from.u8() * 0x10000
  wellFormed(recordBytes <= from.left(), `${what}: truncated`)
  const measurements = readMeasurements(from.bytes(recordBytes), blocks)
  // Skip the GPU's own nonce.
  from.bytes(nonceBytes)
  const fields = read(from.sized(from.left()))
  const signedBytes = bytes.slice(0, bytes.length - from.left())
  wellFormed(from.left() >= signatureBytes, `${what}: ${from.left()} bytes of signature, not ${signatureBytes}`)
  const signature = from.bytes(signatureBytes)
  // Some tools hand over the driver's whole buffer. The lengths above fix where the signature ends.
  wellFormed(isZero(from.bytes(from.left())), `${what}: bytes after the signature that are not zero`)
  return { nonce, measurements, fields, signedBytes, signature }
}

function readMeasurements(record: Uint8Array, blocks: number): ReadonlyMap<number, Uint8Array> {
  const what = 'measurements'
  const from = reader(record, what, 'little')
  const measurements = new Map<number, Uint8Array>()
  for (let block = 0; block < blocks; block += 1) {
    const index = from.u8()
    wellFormed(index >= 1 && !measurements.has(index - 1), `${what}: index ${index} is zero or stands twice`)
    wellFormed(from.u8() === dmtfSpecification, `${what}: block ${index} is not of DMTF's form`)
    const sizeBytes = from.u16()
    // Bit 7 marks a raw value. The manifest defines what is measured.
    from.u8()
    const value = from.sized(sizeBytes)
    wellFormed(value.length + 3 === sizeBytes, `${what}: block ${index} has two lengths`)
    measurements.set(index - 1, value)
  }
  from.end()
  wellFormed(measurements.size > 0, `${what}: there are none`)
  return measurements
}
