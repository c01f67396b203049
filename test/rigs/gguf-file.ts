// Files that pass for models: a GGUF header and bytes of our choice. Nothing can load them. Effects: writes one file,
// sparse where asked.

import { closeSync, ftruncateSync, openSync, writeFileSync, writeSync } from 'node:fs'

export type GgufHeader = {
  readonly magic?: string
  readonly version?: number
  readonly tensors?: bigint
  readonly metadata?: bigint
}

export function ggufHeader({ magic = 'GGUF', version = 3, tensors = 2n, metadata = 3n }: GgufHeader = {}): Uint8Array {
  const bytes = Buffer.alloc(24)
  bytes.write(magic, 0, 'latin1')
  bytes.writeUInt32LE(version, 4)
  bytes.writeBigUInt64LE(tensors, 8)
  bytes.writeBigUInt64LE(metadata, 16)
  return bytes
}

/** `sizeBytes` in all; equal `fill` gives equal bytes. */
export function ggufBytes(sizeBytes: number, fill = 1): Uint8Array {
  const bytes = new Uint8Array(sizeBytes)
  for (let at = 0; at < sizeBytes; at += 1) bytes[at] = (at * fill + (at >> 9)) & 0xff
  bytes.set(ggufHeader())
  return bytes
}

export function writeGguf(path: string, sizeBytes: number, fill = 1): string {
  writeFileSync(path, ggufBytes(sizeBytes, fill))
  return path
}

/** Takes no room, whatever its size. */
export function writeSparseGguf(path: string, sizeBytes: number): string {
  const fd = openSync(path, 'w')
  writeSync(fd, ggufHeader())
  ftruncateSync(fd, sizeBytes)
  closeSync(fd)
  return path
}
