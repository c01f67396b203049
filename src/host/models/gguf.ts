// Checks by its header whether a file can be a GGUF model (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md,
// "File Structure"). Pure.

import { type Layout, layoutBytes, readFields } from '../../attest/encoding/layout.ts'

const GGUF_HEADER = {
  magic: [0, 4],
  version: [4, 4],
  tensorCount: [8, 8],
  metadataCount: [16, 8],
} as const satisfies Layout

export const ggufHeaderBytes = layoutBytes(GGUF_HEADER)

/** "GGUF", as a little-endian number. */
const magic = 0x4655_4747
/** The versions with counts of 64 bits, which llama.cpp reads. */
const VERSIONS = [2, 3]
/** Many times the count of any model. No share: limits one file of the operator. */
const countMax = 1_000_000n
/** The shortest form of each: name of one byte, one dimension; name of one byte, value of one byte. */
const tensorInfoBytesMin = 33n
const metadataBytesMin = 14n

/** Returns why the head of a file of `sizeBytes` is not a model's; null if it is. */
export function ggufProblem(head: Uint8Array, sizeBytes: number): string | null {
  if (head.length < ggufHeaderBytes) return `${sizeBytes} bytes are too few for a GGUF file`
  const fields = readFields('GGUF header', head, GGUF_HEADER)
  if (fields.magic !== magic) return 'not a GGUF file: it does not begin with "GGUF"'
  if (!VERSIONS.includes(fields.version)) {
    const isBigEndian = VERSIONS.includes(swapped(fields.version))
    return isBigEndian ? 'a GGUF file for big-endian machines' : `GGUF version ${fields.version}, not 2 or 3`
  }
  const { tensorCount, metadataCount } = fields
  if (tensorCount === 0n || metadataCount === 0n) return 'a GGUF file without tensors or without metadata, so no model'
  if (tensorCount > countMax || metadataCount > countMax) {
    return `its GGUF header names ${tensorCount} tensors and ${metadataCount} metadata fields, which no model has`
  }
  const leastBytes = BigInt(ggufHeaderBytes) + tensorCount * tensorInfoBytesMin + metadataCount * metadataBytesMin
  if (BigInt(sizeBytes) < leastBytes) return `cut short: its GGUF header needs more than its ${sizeBytes} bytes`
  return null
}

function swapped(value: number): number {
  const bytes = new DataView(new ArrayBuffer(4))
  bytes.setUint32(0, value, true)
  return bytes.getUint32(0, false)
}

/** Returns part and count in a name that llama.cpp gives to one part of a split model; null for any other name. */
export function ggufPart(fileName: string): { readonly part: number; readonly of: number } | null {
  const found = /-(\d{5})-of-(\d{5})\.gguf$/.exec(fileName)
  return found === null || found[2] === '00001' ? null : { part: Number(found[1]), of: Number(found[2]) }
}
