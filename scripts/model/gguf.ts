// Writes GGUF, version 3: metadata and tensors in one file (ggml's docs/gguf.md). Pure. Little-endian, every tensor
// F32.

/** Value types of the metadata, by number. */
const TYPE = { uint32: 4, float32: 6, bool: 7, string: 8, array: 9 } as const
const tensorF32 = 0
const version = 3
/** general.alignment, where it is not given. */
const alignmentBytes = 32

export type GgufValue =
  | { readonly kind: 'uint32' | 'float32'; readonly value: number }
  | { readonly kind: 'bool'; readonly value: boolean }
  | { readonly kind: 'string'; readonly value: string }
  | { readonly kind: 'strings'; readonly value: readonly string[] }
  | { readonly kind: 'int32s'; readonly value: readonly number[] }

/** `shape` begins with the dimension whose elements are adjacent. */
export type GgufTensor = { readonly name: string; readonly shape: readonly number[]; readonly data: Float32Array }

/** The whole file. Equal arguments give equal bytes. */
export function encodeGguf(metadata: Readonly<Record<string, GgufValue>>, tensors: readonly GgufTensor[]): Uint8Array {
  const head: Buffer[] = [
    Buffer.from('GGUF'),
    u32(version),
    u64(tensors.length),
    u64(Object.keys(metadata).length),
    ...Object.entries(metadata).flatMap(([key, value]) => [text(key), ...encodeValue(value)]),
  ]
  let offset = 0
  const body: Buffer[] = []
  for (const { name, shape, data } of tensors) {
    if (shape.reduce((a, b) => a * b, 1) !== data.length) throw new Error(`tensor ${name}: data and shape differ`)
    head.push(text(name), u32(shape.length), ...shape.map(u64), u32(tensorF32), u64(offset))
    const bytes = Buffer.alloc(aligned(data.length * 4))
    data.forEach((value, at) => {
      bytes.writeFloatLE(value, at * 4)
    })
    body.push(bytes)
    offset += bytes.length
  }
  const start = Buffer.concat(head)
  return Buffer.concat([start, Buffer.alloc(aligned(start.length) - start.length), ...body])
}

const int32ArrayType = 5

function encodeValue(entry: GgufValue): Buffer[] {
  switch (entry.kind) {
    case 'uint32':
      return [u32(TYPE.uint32), u32(entry.value)]
    case 'float32': {
      const bytes = Buffer.alloc(4)
      bytes.writeFloatLE(entry.value)
      return [u32(TYPE.float32), bytes]
    }
    case 'bool':
      return [u32(TYPE.bool), Buffer.from([entry.value ? 1 : 0])]
    case 'string':
      return [u32(TYPE.string), text(entry.value)]
    case 'strings':
      return [u32(TYPE.array), u32(TYPE.string), u64(entry.value.length), ...entry.value.map(text)]
    case 'int32s':
      return [u32(TYPE.array), u32(int32ArrayType), u64(entry.value.length), ...entry.value.map(u32)]
  }
}

function aligned(sizeBytes: number): number {
  return Math.ceil(sizeBytes / alignmentBytes) * alignmentBytes
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value)
  return bytes
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(BigInt(value))
  return bytes
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value)
  return Buffer.concat([u64(bytes.length), bytes])
}
