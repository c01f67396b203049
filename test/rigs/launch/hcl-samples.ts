// Azure HCL reports in each version that OpenHCL writes. SNP report and claims are real, of Azure's Milan machines,
// whose wrapper has version 1. The wrapper is rewritten here: neither AMD's signature nor the claims' hash covers it.

import { concat } from '../../../src/base/bytes.ts'

const dataAt = 0x4c0
const dataHeaderBytes = 20

export type HclVersions = { readonly header: number; readonly data: number }

/**
 * A real report of version 1 in the wrapper of another. Request data of version 2 has a capability bitmap of 4 bytes
 * before the claims.
 */
export function hclReportAs(real: Uint8Array, { header, data }: HclVersions): Uint8Array {
  const [at, size] = claimsOf(real)
  const extension = data >= 2 ? Uint8Array.of(7, 0, 0, 0) : new Uint8Array(0)
  const bytes = concat(
    real.slice(0, dataAt + dataHeaderBytes),
    extension,
    real.slice(at, at + size),
    new Uint8Array(64),
  )
  const view = new DataView(bytes.buffer)
  view.setUint32(0x04, header, true)
  view.setUint32(0x08, bytes.length - 64, true)
  view.setUint32(dataAt, dataHeaderBytes + extension.length + size, true)
  view.setUint32(dataAt + 4, data, true)
  return bytes
}

/** Where the claims of a version 1 report begin, and their length. */
export function claimsOf(real: Uint8Array): readonly [offset: number, sizeBytes: number] {
  return [dataAt + dataHeaderBytes, new DataView(real.buffer, real.byteOffset).getUint32(dataAt + 16, true)]
}

/** The same bytes with one 32-bit field changed. */
export function withField(bytes: Uint8Array, offset: number, value: number): Uint8Array {
  const copy = bytes.slice()
  new DataView(copy.buffer).setUint32(offset, value, true)
  return copy
}
